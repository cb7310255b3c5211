"""The NetHack engine, restarted many times in one process.

NetHack can start a game only once after its library was loaded, because nothing resets its variables. NLE's own class
therefore loads the library for every episode. This takes longer than the rest of a reset, and longer each time, because
the C library keeps a list of everything that was ever loaded. `InPlaceNetHack` loads a copy once and restores the
initial values between two episodes.

It calls the library's functions nle_start, nle_step and nle_end with structures that a compiler would normally lay out.
`open_nethack` uses it only for the release of NLE whose structures are defined here, and only if the library has the
same sizes; otherwise it uses NLE's class, which plays the same games for the same seeds.
"""

from __future__ import annotations

import _ctypes
import ctypes
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Protocol

import nle  # type: ignore[import-untyped]
from nle import _pynethack, nethack
from numpy.typing import NDArray

from e3b_gym.envs.minihack import library

KNOWN_RELEASES = ("1.3.0",)
"""Releases of NLE that have the structures below."""

CALENDAR_OFFSET = 1
"""NLE draws a game's date from its core seed plus this."""

_POINTERS = (
    "glyphs",
    "chars",
    "colors",
    "specials",
    "blstats",
    "message",
    "program_state",
    "internal",
    "inv_glyphs",
    "inv_strs",
    "inv_letters",
    "inv_oclasses",
    "screen_descriptions",
    "tty_chars",
    "tty_colors",
    "tty_cursor",
    "misc",
)


class _Observation(ctypes.Structure):
    """The structure that NetHack and its caller share: key, end of the game, and addresses of the observations."""

    _fields_ = (
        ("action", ctypes.c_int),
        ("done", ctypes.c_int),
        ("in_normal_game", ctypes.c_char),
        ("how_done", ctypes.c_int),
        *((name, ctypes.c_void_p) for name in _POINTERS),
    )


class _Seeds(ctypes.Structure):
    _fields_ = (
        ("core", ctypes.c_ulong),
        ("disp", ctypes.c_ulong),
        ("reseed", ctypes.c_bool),
        ("given", ctypes.c_bool),
        ("level", ctypes.c_ulong),
        ("level_given", ctypes.c_bool),
    )


class _Settings(ctypes.Structure):
    _fields_ = (
        ("directory", ctypes.c_char * 4096),
        ("score_prefix", ctypes.c_char * 4096),
        ("options", ctypes.c_char * 32768),
        ("wizard_kit", ctypes.c_char * 4096),
        ("spawn_monsters", ctypes.c_int),
        ("recording", ctypes.c_char * 4096),
        ("seeds", _Seeds),
        ("fix_moon_phase", ctypes.c_bool),
        ("time_seed", ctypes.c_ulong),
        ("time_seed_given", ctypes.c_bool),
    )


class NetHack(Protocol):
    """The part of NLE's class `Nethack` that a game uses."""

    def set_buffers(self, **buffers: NDArray[Any]) -> None:
        """Names the arrays that take the observations."""

    def set_initial_seeds(self, core: int, disp: int, reseed: bool, lgen: int | None) -> None:
        """Sets the seeds of the next game."""

    def reset(self) -> None:
        """Starts the next game."""

    def step(self, key: int) -> None:
        """Presses a key."""

    def done(self) -> bool:
        """Whether the game is over."""

    def close(self) -> None:
        """Ends the game and unloads the library."""


def open_nethack(directory: Path, options: str) -> tuple[NetHack, IO[Any]]:
    """NetHack for one game directory, and the file of its library, to close after it."""
    file, path = library.private_copy(directory)
    if works_in_place():
        return InPlaceNetHack(path, str(directory), options), file
    game: NetHack = _pynethack.Nethack(path, str(directory), options, spawn_monsters=False, fix_moon_phase=True)
    return game, file


def works_in_place() -> bool:
    """Whether the installed NLE can be started again in place."""
    where = library.layout()
    return (
        nle.__version__ in KNOWN_RELEASES
        and where is not None
        and where.settings[1] == ctypes.sizeof(_Settings)
        and ctypes.sizeof(ctypes.c_ulong) == 8
    )


class InPlaceNetHack:
    """NetHack in a library that stays loaded; used like NLE's class.

    The interpreter's lock is held throughout: two threads never run in one game.

    Args:
        path: The library, which nothing else in this process may use.
        directory: The game's files.
        options: NetHack's options, comma-separated.
    """

    def __init__(self, path: str, directory: str, options: str) -> None:
        if len(directory.encode()) >= 4095 or len(options.encode()) >= 32768:
            raise ValueError(f"the path or the options of a game are too long for NetHack: {directory}, {options}")
        self._path = path
        self._settings = _Settings(directory=directory.encode(), options=options.encode(), fix_moon_phase=True)
        self._observation = _Observation()
        self._settings_at = ctypes.addressof(self._settings)
        self._observation_at = ctypes.addressof(self._observation)
        self._buffers: Mapping[str, NDArray[Any]] = {}
        self._context: int | None = None  # NetHack's own state of a running game
        self._load()

    def set_buffers(self, **buffers: NDArray[Any]) -> None:
        """Names the arrays that take the observations; they are kept alive."""
        if self._context is not None:
            raise RuntimeError("set_buffers called after reset()")
        for name, array in buffers.items():
            expected = nethack.OBSERVATION_DESC[name]
            if array.shape != expected["shape"] or array.dtype != expected["dtype"] or not array.flags.c_contiguous:
                raise ValueError(
                    f"{name}: got {array.dtype} {array.shape}; NetHack writes {expected['dtype']} {expected['shape']}, "
                    "C-contiguous"
                )
            setattr(self._observation, name, array.ctypes.data)
        self._buffers = buffers

    def set_initial_seeds(self, core: int, disp: int, reseed: bool, lgen: int | None) -> None:
        """Sets the seeds of the next game, and its date by the first of them; `lgen` seeds levels only, or is None."""
        self._settings.seeds = _Seeds(core, disp, reseed, True, lgen or 0, lgen is not None)
        self._settings.time_seed, self._settings.time_seed_given = core + CALENDAR_OFFSET, True

    def reset(self) -> None:
        """Starts the next game. The previous one should be over: one that is dropped midway leaks memory."""
        self._require_library()
        if self._context is not None:
            over = self.done()
            self._end_game()
            if over:
                self._variables.restore()
            else:  # only unloading runs the destructors of what the game still holds
                self._unload()
                self._load()
        self._context = self._start(self._observation_at, None, self._settings_at)
        self._settings.seeds = _Seeds()
        if self._observation.done:
            raise RuntimeError("NetHack done right after reset")

    def step(self, key: int) -> None:
        """Presses a key."""
        if self._context is None:
            raise RuntimeError("step called without reset()")
        if self._observation.done:
            raise RuntimeError("Called step on finished NetHack")
        self._observation.action = key
        self._step(self._context, self._observation_at)

    def done(self) -> bool:
        """Whether the game is over."""
        return bool(self._observation.done)

    def close(self) -> None:
        """Ends the game and unloads the library."""
        if self._library is not None:
            self._end_game()
            self._unload()

    def _load(self) -> None:
        where = library.layout()
        if where is None:
            raise RuntimeError(f"{self._path}: not a library whose variables are known; use NLE's own class")
        self._library: ctypes.PyDLL | None = ctypes.PyDLL(self._path)
        self._variables = library.Variables(self._library, where)
        self._start = _function(self._library, "nle_start", 3, ctypes.c_void_p)
        self._step = _function(self._library, "nle_step", 2, ctypes.c_void_p)
        self._end = _function(self._library, "nle_end", 1, None)

    def _unload(self) -> None:
        if self._library is not None:
            _ctypes.dlclose(self._library._handle)
        self._library = None

    def _end_game(self) -> None:
        if self._context is not None:
            self._end(self._context)
        self._context = None

    def _require_library(self) -> None:
        if self._library is None:
            raise RuntimeError("this NetHack is closed; open another")


def _function(loaded: ctypes.PyDLL, name: str, arguments: int, result: Any) -> Callable[..., Any]:
    function = getattr(loaded, name)
    function.argtypes, function.restype = [ctypes.c_void_p] * arguments, result
    return function  # type: ignore[no-any-return]
