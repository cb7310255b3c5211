"""numba's njit for every compiled loop of the library: kept on disk where that can be written, else compiled anew.

Without a place for its cache (a read-only install, a user without a home) numba refuses to decorate at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def cached_njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator: `njit(**options)` with a cache on disk where there can be one."""

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return njit(cache=True, **options)(function)
        except RuntimeError:  # "cannot cache function: no locator available"
            return njit(**options)(function)

    return decorate
