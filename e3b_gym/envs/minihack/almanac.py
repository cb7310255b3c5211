"""Finds seeds that start NetHack on an ordinary day.

NetHack depends on the date: the hero's luck changes at full moon, at new moon (together a quarter of all days) and on
Friday the 13th. With `fix_moon_phase` NLE derives the date from the game's core seed instead of the clock. This module
calls NLE's own library for that date: 10 us, instead of 2 ms for starting a game and leaving it.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

from nle.nethack.nethack import DLPATH  # type: ignore[import-untyped]

from e3b_gym.envs.minihack.engine import CALENDAR_OFFSET

_NEW_MOON, _FULL_MOON = 0, 4
_FRIDAY = 5
_Date = ctypes.c_int * 16  # struct tm: nine ints and what the C library adds


def is_ordinary(core_seed: int) -> bool:
    """Whether a game with this core seed begins on an ordinary day.

    Also True if this release of NLE has no such function; the game's greeting then decides.
    """
    fill = _date_filler()
    if fill is None:
        return True
    date = _Date()
    fill(date, core_seed + CALENDAR_OFFSET)
    day, year, weekday, day_of_year = date[3], date[5], date[6], date[7]
    if weekday == _FRIDAY and day == 13:
        return False
    return moon_phase(year, day_of_year) not in (_NEW_MOON, _FULL_MOON)


def moon_phase(year: int, day_of_year: int) -> int:
    """NetHack's moon, 0..7: eight phases in 29.5 days (22 of 177 sixths of a day each), from its age on January 1st
    (the epact of the year's place in the cycle of 19 years)."""
    golden_number = year % 19 + 1
    epact = (11 * golden_number + 18) % 30
    if epact == 24 or (epact == 25 and golden_number > 11):
        epact += 1
    return ((day_of_year + epact) * 6 + 11) % 177 // 22 & 7


@functools.cache
def _date_filler() -> Callable[[Any, int], None] | None:
    """NLE's function (struct tm *, seed), or None in a release without it."""
    try:
        fill = ctypes.CDLL(DLPATH).nle_fill_fixed_tm
    except (OSError, AttributeError):
        return None
    fill.argtypes, fill.restype = [ctypes.c_void_p, ctypes.c_ulong], None
    return fill
