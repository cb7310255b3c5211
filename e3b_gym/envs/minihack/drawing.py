"""MiniGrid's generators of MultiRoom and LavaCrossing levels, number by number.

The same seed gives the level that MiniGrid's environments draw, since the same random numbers are asked for in the
same order (some, such as the colour of a door, only to be dropped). Nothing but the map is made of them: MiniGrid
builds an object for every cell and observes the result, which takes ten times as long.
As in MiniHack, empty rows above the rooms are dropped, cells left of the first and right of the last wall of a row are
solid stone, and the grid's last row is left out (MultiRoom never uses it; for LavaCrossing solid stone replaces the
wall).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from e3b_gym.envs.minihack.grid_level import Cell, GridLevel
from e3b_gym.envs.minihack.tasks import LavaCrossing, MultiRoom

_MIN_ROOM_SIZE = 4  # walls included
_TRIES_PER_ROOM = 8
_DOOR_COLOURS, _DIRECTIONS = 6, 4
_RIGHT, _BOTTOM, _LEFT, _TOP = range(4)
_LOWER_HALF = 2**32 - 1
_NUMBERS_AT_A_TIME = 64
_FLOOR, _DOOR, _LAVA, _WALL = b".+L|"

Integers = Callable[[int, int], int]


class _Room(NamedTuple):
    x: int
    y: int
    width: int
    height: int
    door: Cell  # where the chain of rooms enters it


def draw_rooms(level: MultiRoom, seed: int) -> GridLevel:
    """The level of `minigrid.envs.MultiRoomEnv` after `reset(seed=seed)`."""
    integers = seeded_integers(seed)
    rooms: list[_Room] = []
    while len(rooms) < level.rooms:
        chain = _draw_chain(level, integers)
        if len(chain) > len(rooms):
            rooms = chain
    wall = _LAVA if level.lava_walls else _WALL
    grid = [bytearray([_FLOOR]) * level.width for _ in range(level.height)]
    for i, room in enumerate(rooms):
        _draw_walls(grid, room, wall)
        if i > 0:
            integers(0, _DOOR_COLOURS - (i > 1))  # a colour that the last door does not have
            grid[room.door[1]][room.door[0]] = _DOOR
    start = _free_cell(grid, rooms[0], integers)
    integers(0, _DIRECTIONS)  # the agent's
    goal = _free_cell(grid, rooms[-1], integers, start)
    return _cut_out(grid[:-1], wall, start, goal, level)


def draw_crossing(level: LavaCrossing, seed: int) -> GridLevel:
    """The level of `minigrid.envs.CrossingEnv` with lava after `reset(seed=seed)`."""
    rng, size = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed))), level.size
    rivers = [(vertical, position) for vertical in (True, False) for position in range(2, size - 2, 2)]
    rng.shuffle(rivers)
    chosen = rivers[: level.rivers]
    columns = sorted(position for vertical, position in chosen if vertical)
    rows = sorted(position for vertical, position in chosen if not vertical)
    grid = [bytearray([_FLOOR]) * size for _ in range(size)]
    _draw_walls(grid, _Room(0, 0, size, size, (0, 0)), _WALL)
    for y in rows:
        grid[y][1 : size - 1] = bytes([_LAVA]) * (size - 2)
    for x in columns:
        for y in range(1, size - 1):
            grid[y][x] = _LAVA
    _draw_fords(grid, columns, rows, rng)
    return _cut_out(grid[:-1], _WALL, (1, 1), (size - 2, size - 2), MultiRoom(rooms=1))


def _draw_fords(grid: list[bytearray], columns: list[int], rows: list[int], rng: np.random.Generator) -> None:
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
        grid[y][x] = _FLOOR


def seeded_integers(seed: int) -> Integers:
    """A function `integers(low, high)` that returns what numpy's `Generator.integers(low, high)` returns, call by call,
    for a generator that Gymnasium has seeded. A tenth of the time: numpy's spends most of it on its arguments.

    Ranges must be shorter than 2**32. Numbers are drawn from 32-bit words by multiplication with the range
    (Lemire 2019); words that would favour some numbers are skipped.
    """
    next_word = _words(seed).__next__

    def integers(low: int, high: int) -> int:
        count = high - low
        if count == 1:
            return low
        product = next_word() * count
        if product & _LOWER_HALF < count:
            skipped = (_LOWER_HALF + 1) % count
            while product & _LOWER_HALF < skipped:
                product = next_word() * count
        return low + (product >> 32)

    return integers


def _words(seed: int) -> Iterator[int]:
    """The generator's 32-bit words: the lower, then the upper half of each of its 64-bit numbers."""
    bits = np.random.PCG64(np.random.SeedSequence(seed))

    def some() -> list[int]:
        words: list[int] = bits.random_raw(_NUMBERS_AT_A_TIME).astype("<u8").view("<u4").tolist()
        return words

    return itertools.chain.from_iterable(iter(some, None))


def _draw_chain(level: MultiRoom, integers: Integers) -> list[_Room]:
    """Rooms each of which opens into the next; fewer than asked for where one finds no place."""
    rooms: list[_Room] = []
    door = integers(0, level.width - 2), integers(0, level.width - 2)
    entry = _LEFT
    room = _draw_room(level, rooms, entry, door, integers)
    while room is not None:
        rooms.append(room)
        if len(rooms) == level.rooms:
            break
        entry_of_room = entry
        for _ in range(_TRIES_PER_ROOM):
            exit_wall = integers(0, 3)
            exit_wall += exit_wall >= entry_of_room  # any but the wall of the entry
            door = _draw_exit(rooms[-1], exit_wall, integers)
            entry = (exit_wall + 2) % 4
            room = _draw_room(level, rooms, entry, door, integers)
            if room is not None:
                break
    return rooms


def _draw_exit(room: _Room, wall: int, integers: Integers) -> Cell:
    """A door in a wall of a room."""
    x, y, width, height, _ = room
    if wall == _RIGHT:
        return x + width - 1, y + integers(1, height - 1)
    if wall == _BOTTOM:
        return x + integers(1, width - 1), y + height - 1
    if wall == _LEFT:
        return x, y + integers(1, height - 1)
    return x + integers(1, width - 1), y


def _draw_room(level: MultiRoom, rooms: list[_Room], entry: int, door: Cell, integers: Integers) -> _Room | None:
    """A room behind a door in its wall `entry`; None where it leaves the grid or meets another room."""
    width = integers(_MIN_ROOM_SIZE, level.max_room_size + 1)
    height = integers(_MIN_ROOM_SIZE, level.max_room_size + 1)
    x, y = door
    if rooms:  # the first room has its corner there
        if entry in (_LEFT, _RIGHT):
            x -= width - 1 if entry == _RIGHT else 0
            y = integers(y - height + 2, y)
        else:
            y -= height - 1 if entry == _BOTTOM else 0
            x = integers(x - width + 2, x)
    if x < 0 or y < 0 or x + width > level.width or y + height >= level.height:
        return None
    for other in rooms[:-1]:
        apart_in_x = x + width < other.x or other.x + other.width <= x
        if not apart_in_x and not (y + height < other.y or other.y + other.height <= y):
            return None
    return _Room(x, y, width, height, door)


def _draw_walls(grid: list[bytearray], room: _Room, wall: int) -> None:
    x, y, width, height, _ = room
    grid[y][x : x + width] = grid[y + height - 1][x : x + width] = bytes([wall]) * width
    for row in grid[y : y + height]:
        row[x] = row[x + width - 1] = wall


def _free_cell(grid: list[bytearray], room: _Room, integers: Integers, taken: Cell | None = None) -> Cell:
    """A cell of a room that is neither wall nor door nor `taken`."""
    x, y, width, height, _ = room
    while True:
        cell = integers(x, x + width), integers(y, y + height)
        if grid[cell[1]][cell[0]] == _FLOOR and cell != taken:
            return cell


def _cut_out(grid: list[bytearray], wall: int, start: Cell, goal: Cell, level: MultiRoom) -> GridLevel:
    """A level of the rows that hold walls."""
    top = next(y for y, row in enumerate(grid) if wall in row)
    rows: list[str] = []
    doors: list[Cell] = []
    for row in grid[top:]:
        first, last = row.find(wall), row.rfind(wall)
        if first < 0:
            continue
        doors += _cells_of(row, _DOOR, len(rows))
        rows.append(" " * first + row[first : last + 1].decode() + " " * (len(row) - last - 1))
    start, goal = (start[0], start[1] - top), (goal[0], goal[1] - top)
    return GridLevel(tuple(rows), start, goal, tuple(doors), level.doors, level.monsters)


def _cells_of(row: bytearray, symbol: int, y: int) -> Iterator[Cell]:
    x = row.find(symbol)
    while x >= 0:
        yield x, y
        x = row.find(symbol, x + 1)
