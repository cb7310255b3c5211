"""numba's njit for all compiled loops of the library, with the on-disk cache where a cache folder is writable.

Without a writable cache folder (a read-only install, a user without a home folder) `njit(cache=True)` raises, so the
functions are then compiled in every process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def cached_njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Returns a decorator: `njit(**options)`, with the on-disk cache if possible."""

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return njit(cache=True, **options)(function)
        except RuntimeError:  # "cannot cache function: no locator available"
            return njit(**options)(function)

    return decorate
