"""MiniGrid's generators of MultiRoom and LavaCrossing levels, reimplemented with the same random numbers.

The same seed gives the level that MiniGrid's environments draw, because the same random numbers are drawn in the same
order (some, such as the colour of a door, are then dropped). Only the map is built: MiniGrid also builds an object for
every cell and an observation, which takes more than ten times as long.
As in MiniHack, empty rows above the rooms are dropped, cells left of the first and right of the last wall of a row are
solid stone, and the grid's last row is left out (MultiRoom never uses it; for LavaCrossing solid stone replaces the
wall).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from e3b_gym.envs.minihack import room_kernels
from e3b_gym.envs.minihack.grid_level import Cell, GridLevel
from e3b_gym.envs.minihack.tasks import LavaCrossing, MultiRoom

_NUMBERS = 256  # enough for nine levels of ten; the others start again with more
_FLOOR, _DOOR, _LAVA, _WALL = room_kernels.FLOOR, room_kernels.DOOR, ord("L"), ord("|")


def draw_rooms(level: MultiRoom, seed: int) -> GridLevel:
    """The level of `minigrid.envs.MultiRoomEnv` after `reset(seed=seed)`."""
    wall = _LAVA if level.lava_walls else _WALL
    rooms = np.empty((level.rooms, 6), np.int64)
    grid = np.empty((level.height, level.width), np.uint8)
    used = np.zeros(1, np.int64)
    for words in _growing_words(seed):
        used[0] = 0
        x, y, goal_x, goal_y = room_kernels.draw(words, used, rooms, grid, level.max_room_size, wall)
        if used[0] <= words.size:
            break
    return _cut_out(grid[:-1], wall, (x, y), (goal_x, goal_y), level)


def _growing_words(seed: int) -> Iterator[NDArray[np.int64]]:
    """The first 32-bit words of a generator that Gymnasium has seeded, each time twice as many: the lower, then the
    upper half of each of its 64-bit numbers.
    """
    bits = np.random.PCG64(np.random.SeedSequence(seed))
    numbers = bits.random_raw(_NUMBERS)
    while True:
        yield numbers.astype("<u8").view("<u4").astype(np.int64)
        numbers = np.concatenate([numbers, bits.random_raw(numbers.size)])


def draw_crossing(level: LavaCrossing, seed: int) -> GridLevel:
    """The level of `minigrid.envs.CrossingEnv` with lava after `reset(seed=seed)`."""
    rng, size = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed))), level.size
    rivers = [(vertical, position) for vertical in (True, False) for position in range(2, size - 2, 2)]
    rng.shuffle(rivers)
    chosen = rivers[: level.rivers]
    columns = sorted(position for vertical, position in chosen if vertical)
    rows = sorted(position for vertical, position in chosen if not vertical)
    grid = np.full((size, size), _WALL, np.uint8)
    grid[1:-1, 1:-1] = _FLOOR
    grid[rows, 1:-1] = _LAVA
    grid[1:-1, columns] = _LAVA
    _draw_fords(grid, columns, rows, rng)
    return _cut_out(grid[:-1], _WALL, (1, 1), (size - 2, size - 2), MultiRoom(rooms=1))


def _draw_fords(grid: NDArray[np.uint8], columns: list[int], rows: list[int], rng: np.random.Generator) -> None:
    """Opens each river once, along a path from the first field between rivers to the last."""
    turns = [True] * len(columns) + [False] * len(rows)  # True crosses a column
    rng.shuffle(turns)
    x_limits, y_limits = [0, *columns, len(grid) - 1], [0, *rows, len(grid) - 1]
    i = j = 0
    for crosses_column in turns:
        if crosses_column:
            x, y = x_limits[i + 1], int(rng.integers(y_limits[j] + 1, y_limits[j + 1]))
            i += 1
        else:
            x, y = int(rng.integers(x_limits[i] + 1, x_limits[i + 1])), y_limits[j + 1]
            j += 1
        grid[y, x] = _FLOOR


def _cut_out(grid: NDArray[np.uint8], wall: int, start: Cell, goal: Cell, level: MultiRoom) -> GridLevel:
    """A level of the rows that hold walls."""
    width = grid.shape[1]
    text = grid.tobytes()
    lines = [text[i : i + width] for i in range(0, len(text), width)]
    top = next(y for y, line in enumerate(lines) if wall in line)
    rows: list[str] = []
    doors: list[Cell] = []
    for line in lines[top:]:
        first, last = line.find(wall), line.rfind(wall)
        if first < 0:
            continue
        doors += _cells_of(line, _DOOR, len(rows))
        rows.append(line[first : last + 1].decode().rjust(last + 1).ljust(width))
    start, goal = (start[0], start[1] - top), (goal[0], goal[1] - top)
    return GridLevel(tuple(rows), start, goal, tuple(doors), level.doors, level.monsters)


def _cells_of(line: bytes, symbol: int, y: int) -> Iterator[Cell]:
    x = line.find(symbol)
    while x >= 0:
        yield x, y
        x = line.find(symbol, x + 1)
