"""From a task to the level file that NetHack reads.

description (.des text) -> lev_comp -> mylevel.lev -> nhdat, the archive NetHack opens at the start of a game.
MiniHack runs a shell script for this (cp, lev_comp, dlb: about 20 ms) and ignores its exit code, so that a
level that does not compile silently replays the last one. Here lev_comp runs directly, a failure raises
`LevelError`, and Python writes the archive.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from e3b_gym.envs.minihack.tasks import LavaCrossing, MultiRoom, StockLevel, Task

with warnings.catch_warnings():
    # Here and not where it is used: it imports pkg_resources, which warns, and keeps an exception whose traceback would
    # hold on to whoever is being constructed at that moment.
    warnings.simplefilter("ignore")
    import minihack  # type: ignore[import-untyped]

LEVEL_NAME = "mylevel"
"""The level that MiniHack's dungeon file puts first."""


class LevelError(RuntimeError):
    """A level description that NetHack's level compiler rejects."""


def compile_level(description: str, directory: Path) -> bytes:
    """Compiles a level description with lev_comp.

    Args:
        description: The text of a .des file whose level is called `mylevel`.
        directory: A private directory; nothing stays behind in it.

    Returns:
        The nhdat archive that starts NetHack in this level.

    Raises:
        LevelError: If lev_comp rejects the description, with its own words.
    """
    source, compiled = directory / f"{LEVEL_NAME}.des", directory / f"{LEVEL_NAME}.lev"
    source.write_text(description)
    try:
        run = subprocess.run(
            [_lev_comp(), source.name], cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        if run.returncode != 0 or not compiled.exists():
            raise LevelError(f"lev_comp rejected the level: {run.stderr.decode(errors='replace').strip()}")
        level = compiled.read_bytes()
    finally:
        source.unlink()
        compiled.unlink(missing_ok=True)
    library = _package_directory("minihack") / "lib"
    return archive(
        {
            "dungeon": _read(library / "dungeon"),
            f"{LEVEL_NAME}.lev": level,
            "quest.dat": _read(library / "quest.dat"),
        }
    )


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


def description_source(task: Task) -> Callable[[int], str]:
    """The function from a level seed to a level description.

    Stock levels ignore the seed: NetHack fills them itself.
    """
    level = task.level
    if isinstance(level, StockLevel):
        text = stock_definition(level.entry_point)[0]
        return lambda seed: text
    grid_env = _minigrid_env(level)

    def describe(seed: int) -> str:
        grid_env.reset(seed=seed)
        return grid_description(grid_env, level)

    return describe


def _minigrid_env(level: MultiRoom | LavaCrossing) -> Any:
    envs = importlib.import_module("minigrid.envs")
    if isinstance(level, LavaCrossing):
        return envs.CrossingEnv(size=level.size, num_crossings=level.rivers)
    return envs.MultiRoomEnv(
        minNumRooms=level.rooms,
        maxNumRooms=level.rooms,
        maxRoomSize=level.max_room_size,
        width=level.width,
        height=level.height,
    )


def grid_description(grid_env: Any, level: MultiRoom | LavaCrossing) -> str:
    """Writes the current grid of a MiniGrid env as a NetHack level description.

    As in MiniHack, empty rows above the rooms are dropped, cells left of the first and right of the last wall
    of a row are solid stone, and the grid's last row is left out (MultiRoom never uses it; for LavaCrossing
    solid stone replaces the wall).
    """
    rooms = level if isinstance(level, MultiRoom) else MultiRoom(rooms=1)
    wall = "L" if rooms.lava_walls else "|"
    symbols = {"wall": wall, "door": "+", "lava": "L"}
    grid, doors = grid_env.grid, []
    rows: list[str] = []
    top = 0
    width = grid.width
    for y in range(grid.height - 1):
        cells = grid.grid[y * width : (y + 1) * width]
        row = "".join(["." if cell is None else symbols.get(cell.type, ".") for cell in cells])
        if wall not in row:
            top += not rows
            continue
        first, last = row.index(wall), row.rindex(wall)
        rows.append(" " * first + row[first : last + 1] + " " * (width - last - 1))
        doors += [(x, y - top) for x, symbol in enumerate(row) if symbol == "+"]
    goal_x, goal_y = _goal_position(grid)
    start = int(grid_env.agent_pos[0]), int(grid_env.agent_pos[1]) - top
    return _description(rows, start, (goal_x, goal_y - top), doors, rooms)


def _goal_position(grid: Any) -> tuple[int, int]:
    index = next(i for i, cell in enumerate(grid.grid) if cell is not None and cell.type == "goal")
    y, x = divmod(index, grid.width)
    return x, y


def _description(
    rows: list[str],
    start: tuple[int, int],
    goal: tuple[int, int],
    doors: list[tuple[int, int]],
    level: MultiRoom,
) -> str:
    x, y = start
    elsewhere_x, elsewhere_y = abs(x - 1), abs(y - 1)  # BRANCH wants an area to avoid: any cell but the start
    lines = [
        f"MAZE: \"{LEVEL_NAME}\", ' '",
        "FLAGS:hardfloor",
        "INIT_MAP: solidfill,' '",
        "GEOMETRY:center,center",
        "MAP",
        *rows,
        "ENDMAP",
        f'REGION:(0,0,{len(rows[0])},{len(rows)}),lit,"ordinary"',
        f"STAIR:({goal[0]},{goal[1]}),down",
        f"BRANCH:({x},{y},{x},{y}),({elsewhere_x},{elsewhere_y},{elsewhere_x},{elsewhere_y})",
        *(f"DOOR:{level.doors},({door_x},{door_y})" for door_x, door_y in doors),
        "WALLIFY",
        *["MONSTER:random,random"] * level.monsters,
    ]
    return "\n".join(lines) + "\n"


@functools.cache
def stock_definition(entry_point: str) -> tuple[str, tuple[bytes, ...]]:
    """Reads level description and goal messages from one of MiniHack's classes, without starting NetHack.

    A recorder is slipped into the class's bases just above MiniHack's own, so that it receives what the class
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


@functools.cache
def _read(path: Path) -> bytes:
    return path.read_bytes()
