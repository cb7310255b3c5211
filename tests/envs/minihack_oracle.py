"""MiniGrid's own environments as the source of MiniHack's levels, which `e3b_gym.envs.minihack.drawing` must equal."""

from __future__ import annotations

from typing import Any

from minigrid import envs

from e3b_gym.envs.minihack.grid_level import GridLevel
from e3b_gym.envs.minihack.tasks import LavaCrossing, MultiRoom


def minigrid_env(level: MultiRoom | LavaCrossing) -> Any:
    """The MiniGrid environment whose generator draws such levels."""
    if isinstance(level, LavaCrossing):
        return envs.CrossingEnv(size=level.size, num_crossings=level.rivers)
    return envs.MultiRoomEnv(
        minNumRooms=level.rooms,
        maxNumRooms=level.rooms,
        maxRoomSize=level.max_room_size,
        width=level.width,
        height=level.height,
    )


def copy_grid(grid_env: Any, level: MultiRoom | LavaCrossing) -> GridLevel:
    """The current grid of a MiniGrid env as a NetHack level, cut out as MiniHack does it."""
    rooms = level if isinstance(level, MultiRoom) else MultiRoom(rooms=1)
    wall = "L" if rooms.lava_walls else "|"
    symbols = {"wall": wall, "door": "+", "lava": "L"}
    grid, rows, doors, top = grid_env.grid, [], [], 0
    for y in range(grid.height - 1):
        cells = [grid.get(x, y) for x in range(grid.width)]
        row = "".join("." if cell is None else symbols.get(cell.type, ".") for cell in cells)
        if wall not in row:
            top += not rows
            continue
        first, last = row.index(wall), row.rindex(wall)
        rows.append(" " * first + row[first : last + 1] + " " * (grid.width - last - 1))
        doors += [(x, y - top) for x, symbol in enumerate(row) if symbol == "+"]
    (goal,) = [
        (x, y - top)
        for y in range(grid.height)
        for x in range(grid.width)
        if getattr(grid.get(x, y), "type", None) == "goal"
    ]
    start = int(grid_env.agent_pos[0]), int(grid_env.agent_pos[1]) - top
    return GridLevel(tuple(rows), start, goal, tuple(doors), rooms.doors, rooms.monsters)
