"""numba's njit for all compiled loops of the library, with the on-disk cache where a cache folder is writable.

Without a writable cache folder (a read-only install, a user without a home folder) `njit(cache=True)` raises, so the
functions are then compiled in every process.

A compiled function with floating-point arithmetic that other compiled functions call needs `forceinline=True` if LLVM
would leave the call in place. There are then two copies of it, one optimised on its own and one with its caller, and
the process that compiles uses the first while a process that reads the cache uses the second: last bits differ, and
the same seed gives other numbers in the first run.
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
