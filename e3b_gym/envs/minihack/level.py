"""Writes the level file of a task, which NetHack reads.

description (.des text) -> lev_comp -> mylevel.lev -> nhdat, the archive NetHack opens at the start of a game.
MiniHack runs a shell script for this (cp, lev_comp, dlb: about 20 ms) and ignores its exit code, so if a level does not
compile, the previous one is silently used again. Here lev_comp runs directly, a failure raises `LevelError`, and Python
writes the archive; after the first time it replaces only the level. Levels drawn on a grid, which are new in every
episode, need no lev_comp (`grid_level`).
"""

from __future__ import annotations

import errno
import functools
import importlib
import importlib.util
import os
import subprocess
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from e3b_gym.envs.minihack import scratch
from e3b_gym.envs.minihack.drawing import draw_crossing, draw_rooms
from e3b_gym.envs.minihack.grid_level import LEVEL_NAME, SAMPLES, GridLevel, Opening
from e3b_gym.envs.minihack.tasks import MAP_HEIGHT, MAP_WIDTH, MultiRoom, StockLevel, Task

with warnings.catch_warnings():
    # Imported here, not where it is used: it imports pkg_resources, which warns, and it keeps an exception whose
    # traceback would keep objects alive that are being constructed.
    warnings.simplefilter("ignore")
    import minihack  # type: ignore[import-untyped]


class LevelError(RuntimeError):
    """A level description that NetHack's level compiler rejects."""


def compile_level(level: str | GridLevel, directory: Path) -> bytes:
    """Compiles a level.

    Args:
        level: The text of a .des file whose level is called `mylevel`, or a level drawn on a grid.
        directory: A private directory; nothing stays behind in it.

    Returns:
        The contents of a .lev file, for `install_level`.

    Raises:
        LevelError: If lev_comp rejects the description, with lev_comp's message.
    """
    if isinstance(level, str):
        return run_lev_comp(level, directory)
    if not level.fits:
        rows, columns = len(level.rows), len(level.rows[0])
        limits = f"lev_comp takes {MAP_HEIGHT} rows and {MAP_WIDTH} columns"
        raise LevelError(f"the map has {rows} rows and {columns} columns; {limits}")
    opening = _opening() if level.can_be_assembled else None
    return run_lev_comp(level.description(), directory) if opening is None else level.assemble(opening)


def install_level(level: bytes, directory: Path) -> None:
    """Writes the archive nhdat that starts NetHack in this level. No game may be running in the directory.

    The level is the archive's last file. Where an archive exists, only the level and the header, which holds the
    archive's length, are written.
    """
    path, (head, start) = directory / "nhdat", _archive_before_level()
    header = head + f"{start + len(level):8d}\n".encode()
    try:
        file = os.open(path, os.O_WRONLY)
    except FileNotFoundError:
        _write_archive(level, path)
        return
    try:
        written = os.pwrite(file, header, 0) + os.pwrite(file, level, start)
        os.ftruncate(file, start + len(level))
        if written != len(header) + len(level):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        path.unlink()  # half old, half new: the next level writes a whole archive
        raise
    finally:
        os.close(file)


def _write_archive(level: bytes, path: Path) -> None:
    try:
        path.write_bytes(archive(_static_files() | {f"{LEVEL_NAME}.lev": level}))
    except OSError:
        path.unlink(missing_ok=True)
        raise


@functools.cache
def _static_files() -> dict[str, bytes]:
    """The files that NetHack reads in addition to the level."""
    library = _package_directory("minihack") / "lib"
    return {name: (library / name).read_bytes() for name in ("dungeon", "quest.dat")}


@functools.cache
def _archive_before_level() -> tuple[bytes, int]:
    """The header up to the archive's length, and the offset of the level."""
    empty = archive(_static_files() | {f"{LEVEL_NAME}.lev": b""})
    return empty[: len(_archive_header(0, 0, 0, 0)) - 9], len(empty)


@functools.cache
def _opening() -> Opening | None:
    """The start of compiled levels, or None if the lev_comp of this NLE writes other levels than `grid_level` does."""
    try:
        with tempfile.TemporaryDirectory(dir=scratch.base_directory()) as directory:
            compiled = {level: run_lev_comp(level.description(), Path(directory)) for level in SAMPLES}
    except LevelError:
        return None
    opening = Opening.of(compiled[SAMPLES[0]])
    return opening if all(level.assemble(opening) == found for level, found in compiled.items()) else None


def run_lev_comp(description: str, directory: Path) -> bytes:
    """NetHack's level compiler: the text of a .des file -> the contents of the .lev file."""
    source, compiled = directory / f"{LEVEL_NAME}.des", directory / f"{LEVEL_NAME}.lev"
    source.write_text(description)
    try:
        run = subprocess.run(
            [_lev_comp(), source.name], cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        if run.returncode != 0 or not compiled.exists():
            raise LevelError(f"lev_comp rejected the level: {run.stderr.decode(errors='replace').strip()}")
        return compiled.read_bytes()
    finally:
        source.unlink()
        compiled.unlink(missing_ok=True)


def archive(files: dict[str, bytes]) -> bytes:
    """Packs files as NetHack's `dlb cf nhdat ...` does: a text header, a directory of offsets, then the
    contents.
    """
    names = ["Directory", *files]
    header_length = len(_archive_header(0, 0, 0, 0))
    start = header_length + sum(len(_archive_entry(name, 0)) for name in names)
    entries, offset = [_archive_entry("Directory", 0)], start
    for name, content in files.items():
        entries.append(_archive_entry(name, offset))
        offset += len(content)
    name_bytes = sum(len(name) + 1 for name in names)  # each with a terminator, as C stores them
    header = _archive_header(len(names), name_bytes, start, offset)
    return b"".join([header, *entries, *files.values()])


def _archive_header(count: int, name_bytes: int, start: int, total: int) -> bytes:
    return f"{1:3d} {count:8d} {name_bytes:8d} {start:8d} {total:8d}\n".encode()


def _archive_entry(name: str, offset: int) -> bytes:
    return f"n{name} {offset:8d}\n".encode()


def level_source(task: Task) -> Callable[[int], str | GridLevel]:
    """The function from a seed to a level.

    Stock levels ignore the seed: NetHack generates their content itself.
    """
    level = task.level
    if isinstance(level, StockLevel):
        text = stock_definition(level.entry_point)[0]
        return lambda seed: text
    if isinstance(level, MultiRoom):
        return functools.partial(draw_rooms, level)
    return functools.partial(draw_crossing, level)


@functools.cache
def stock_definition(entry_point: str) -> tuple[str, tuple[bytes, ...]]:
    """Reads level description and goal messages from one of MiniHack's classes, without starting NetHack.

    A recorder is inserted into the class's bases before MiniHack's own class, so that it receives what the class
    defines.

    Returns:
        The .des text, and the messages of which any ends the task with success (empty: the stairs down are
        the goal).
    """
    module_name, class_name = entry_point.split(":")
    stock_class = getattr(importlib.import_module(f"minihack.envs.{module_name}"), class_name)
    base = minihack.MiniHackSkill if issubclass(stock_class, minihack.MiniHackSkill) else minihack.MiniHackNavigation
    recorded: dict[str, Any] = {}

    def record(self: Any, *args: Any, **kwargs: Any) -> None:
        recorded.update(kwargs)

    recorder = type("Recorder", (base,), {"__init__": record})
    type(class_name, (stock_class, recorder), {"__del__": lambda self: None})()
    description = recorded["des_file"]
    if description.endswith(".des"):
        description = (_package_directory("minihack") / "dat" / description).read_text()
    manager = recorded.get("reward_manager")
    messages = [message for event in manager.events for message in event.messages] if manager is not None else []
    return description, tuple(message.encode() for message in messages)


@functools.cache
def _package_directory(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ImportError(f"{package} is not installed; pip install 'e3b-gym[minihack]'")
    return Path(spec.origin).parent


@functools.cache
def _lev_comp() -> str:
    return str(_package_directory("nle") / "nethackdir" / "lev_comp")
