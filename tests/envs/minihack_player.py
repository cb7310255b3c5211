"""Reads MiniHack maps in NetHack's wizard mode and finds ways through them, for the MiniHack tests."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium.utils import seeding
from nle import nethack

from e3b_gym.envs.minihack.env import find_task
from e3b_gym.envs.minihack.game import Game
from e3b_gym.envs.minihack.tasks import MOVES, Task

MAP_LEVEL, SPACE = 6, 32  # wizard mode's ^F
FLOOR, DARK_FLOOR, STAIRS_UP, STAIRS_DOWN, LAVA = 19, 20, 23, 24, 34
OPEN_DOORS, CLOSED_DOORS = {13, 14}, {15, 16}
DELTAS = dict(zip(MOVES, [(0, -1), (1, 0), (0, 1), (-1, 0), (1, -1), (1, 1), (-1, 1), (-1, -1)], strict=True))
Cell = tuple[int, int]


@dataclass
class Level:
    """What a wizard sees of a level: terrain by cell (x, y), the hero's cell and the number of monsters."""

    floor: set[Cell]
    open_doors: set[Cell]
    closed_doors: set[Cell]
    lava: set[Cell]
    stairs_down: set[Cell]
    start: Cell
    monsters: int

    @property
    def doors(self) -> set[Cell]:
        return self.open_doors | self.closed_doors

    def rooms(self) -> int:
        """Rooms that can be reached from the start through doors."""
        seen_doors: set[Cell] = set()
        rooms: list[set[Cell]] = []
        frontier = [self.start]
        while frontier:
            cell = frontier.pop()
            if any(cell in room for room in rooms):
                continue
            rooms.append(self._room_of(cell))
            for door in self.doors - seen_doors:
                adjacent = _neighbours(door)
                if adjacent & rooms[-1]:
                    seen_doors.add(door)
                    frontier += list(adjacent & self.floor - rooms[-1])
        return len(rooms)

    def _room_of(self, cell: Cell) -> set[Cell]:
        room, frontier = {cell}, [cell]
        while frontier:
            for neighbour in _neighbours(frontier.pop()) & self.floor - room:
                room.add(neighbour)
                frontier.append(neighbour)
        return room

    def way(self, start: Cell, goal: Cell) -> list[str]:
        """The shortest list of moves; doors are entered and left straight, as NetHack demands."""
        came: dict[Cell, tuple[Cell, str]] = {start: (start, "")}
        queue = deque([start])
        while queue and goal not in came:
            cell = queue.popleft()
            for move, (dx, dy) in DELTAS.items():
                target = cell[0] + dx, cell[1] + dy
                diagonal_door = len(move) == 2 and (cell in self.doors or target in self.doors)
                if target not in came and not diagonal_door and target in self.floor | self.doors:
                    came[target] = (cell, move)
                    queue.append(target)
        moves: list[str] = []
        while goal != start:
            goal, move = came[goal]
            moves.append(move)
        return moves[::-1]


def _neighbours(cell: Cell) -> set[Cell]:
    return {(cell[0] + dx, cell[1] + dy) for move, (dx, dy) in DELTAS.items() if len(move) == 1}


def read_level(id: str | Task, seed: int) -> Level:
    """The level of the first episode after `reset(seed=seed)`, mapped in wizard mode."""
    task = find_task(id)
    keys = ("glyphs", "blstats", "message", "program_state", "internal", "tty_chars")
    buffers = {key: np.zeros(**nethack.OBSERVATION_DESC[key]) for key in keys}
    game = Game(replace(task), buffers, task.max_steps, extra_options=("playmode:debug",))
    game.reset(seeding.np_random(seed)[0])
    start = int(buffers["blstats"][0]), int(buffers["blstats"][1])
    game._nethack.step(MAP_LEVEL)
    symbols = buffers["glyphs"].astype(int) - nethack.GLYPH_CMAP_OFF
    beings = {(int(x), int(y)) for y, x in np.argwhere(symbols < 0)}  # they stand on floor

    def cells(wanted: set[int]) -> set[Cell]:
        return {(int(x), int(y)) for y, x in np.argwhere(np.isin(symbols, list(wanted)))}

    monsters = _count_monsters(game, buffers)
    game.close()
    floor = cells({FLOOR, DARK_FLOOR, STAIRS_UP, STAIRS_DOWN}) | beings
    stairs_down = cells({STAIRS_DOWN})
    return Level(floor, cells(OPEN_DOORS), cells(CLOSED_DOORS), cells({LAVA}), stairs_down, start, monsters)


def _count_monsters(game: Game, buffers: dict[str, Any]) -> int:
    for key in b"#stats\n":
        game._nethack.step(key)
    lines = [bytes(row).decode("latin-1") for row in buffers["tty_chars"]]
    counts = [line.split()[1] for line in lines if line.startswith("fmon")]
    return int(counts[0]) if counts else 0


def fingerprint(env: Any, seed: int, steps: int = 60) -> bytes:
    """Every observation, reward and end of a fixed action sequence, as bytes."""
    actions = np.random.default_rng(0).integers(env.action_space.n, size=steps)
    observation, _ = env.reset(seed=seed)
    record = [observation[key].tobytes() for key in observation]
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(action)
        record += [observation[key].tobytes() for key in observation]
        record.append(repr((reward, terminated, truncated, info)).encode())
        if terminated or truncated:
            observation, _ = env.reset()
            record += [observation[key].tobytes() for key in observation]
    return b"".join(record)
