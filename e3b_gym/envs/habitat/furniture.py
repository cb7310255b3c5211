"""Furniture: boxes at walls or in the middle of a room, which never block a door or divide a room.

Each kind of room has its own pieces. A piece stands on the floor and may have a higher part along the wall (the back of
a sofa, the head of a bed). It is placed only where the rest of the room stays connected for an agent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from e3b_gym.compiling import cached_njit
from e3b_gym.envs.habitat.dice import Dice
from e3b_gym.envs.habitat.plan import Doorway, Room

CLEARANCE = 8
"""Cells around a door that stay empty."""
TRIES = 6

Rectangle = tuple[int, int, int, int]
"""x0, z0, x1, z1 in cells, half open."""


@dataclass(frozen=True)
class Piece:
    """A box; lengths in cells, heights in metres."""

    name: str
    length: int
    """Size along the wall."""
    depth: int
    height: float
    back: float = 0.0
    """Height of the two cells next to the wall; 0: as the rest."""
    by_wall: bool = True


BED = Piece("bed", 15, 20, 0.5, back=1.0)
WARDROBE = Piece("wardrobe", 14, 6, 2.1)
CABINET = Piece("cabinet", 9, 5, 1.0)
DESK = Piece("desk", 12, 6, 0.75, back=1.1)
SHELF = Piece("shelf", 10, 3, 1.9)
SOFA = Piece("sofa", 19, 9, 0.45, back=0.85)
ARMCHAIR = Piece("armchair", 8, 8, 0.45, back=0.9)
TABLE = Piece("table", 12, 8, 0.72, by_wall=False)
ROUND = Piece("side table", 5, 5, 0.5, by_wall=False)
COUNTER = Piece("counter", 22, 6, 0.92)
FRIDGE = Piece("fridge", 6, 6, 1.85)
TUB = Piece("tub", 16, 7, 0.55)
BASIN = Piece("basin", 6, 5, 0.85, back=1.6)
PLANT = Piece("plant", 3, 3, 1.3)
SIDEBOARD = Piece("sideboard", 10, 3, 0.85)

SETS: tuple[tuple[Piece, ...], ...] = (
    (BED, WARDROBE, CABINET, DESK, ROUND),
    (SOFA, TABLE, ARMCHAIR, SHELF, SHELF, PLANT),
    (COUNTER, FRIDGE, TABLE, CABINET),
    (TUB, BASIN, CABINET, PLANT),
    (DESK, SHELF, SHELF, ARMCHAIR, PLANT),
    (TABLE, CABINET, SIDEBOARD, PLANT),
)
CORRIDOR_SET = (SIDEBOARD, PLANT)


@dataclass(frozen=True)
class Placed:
    """A piece at its position: its box, and the box of its back if it has one."""

    piece: Piece
    box: Rectangle
    back: Rectangle | None


def furnish(room: Room, doorways: Sequence[Doorway], dice: Dice) -> Iterator[Placed]:
    """Places a random set of pieces.

    Args:
        room: The room.
        doorways: Doors of the room.
        dice: Random generator.
    """
    pieces = CORRIDOR_SET if room.is_corridor else dice.choice(SETS)
    taken = np.zeros((room.z1 - room.z0, room.x1 - room.x0), bool)  # [z, x] from the room's corner
    kept_free = np.zeros_like(taken)
    for door in doorways:
        _window(kept_free, room, door, CLEARANCE)[...] = True
    for piece in pieces:
        if dice.uniform() < 0.2:
            continue
        for _ in range(TRIES):
            placed = _random_position(piece, room, dice)
            if placed is None:
                continue
            spot = _window(taken, room, placed.box)
            if spot.any() or _window(kept_free, room, placed.box).any():
                continue
            spot[...] = True
            if _is_one_part(taken, room, doorways):
                yield placed
                break
            spot[...] = False


def _window(grid: NDArray[np.bool_], room: Room, of: Rectangle | Doorway, margin: int = 0) -> NDArray[np.bool_]:
    """Returns the part of a room's grid within `margin` cells of a rectangle."""
    x0, z0, x1, z1 = of if isinstance(of, tuple) else (of.x0, of.z0, of.x1, of.z1)
    rows = slice(max(z0 - margin - room.z0, 0), max(z1 + margin - room.z0, 0))
    columns = slice(max(x0 - margin - room.x0, 0), max(x1 + margin - room.x0, 0))
    return grid[rows, columns]


def _random_position(piece: Piece, room: Room, dice: Dice) -> Placed | None:
    """Returns the piece at a random wall, or anywhere with a random rotation; None if the room is too small."""
    side = dice.integer(0, 4)  # of the wall: -x, +x, -z, +z
    along_z = side < 2
    size_x, size_z = (piece.depth, piece.length) if along_z else (piece.length, piece.depth)
    free_x, free_z = room.sides[0] - size_x, room.sides[1] - size_z
    if free_x < 0 or free_z < 0:
        return None
    x0 = room.x0 + dice.integer(0, free_x + 1)
    z0 = room.z0 + dice.integer(0, free_z + 1)
    if piece.by_wall:
        x0 = (room.x0, room.x1 - size_x, x0, x0)[side]
        z0 = (z0, z0, room.z0, room.z1 - size_z)[side]
    x1, z1 = x0 + size_x, z0 + size_z
    backs = ((x0, z0, x0 + 2, z1), (x1 - 2, z0, x1, z1), (x0, z0, x1, z0 + 2), (x0, z1 - 2, x1, z1))
    return Placed(piece, (x0, z0, x1, z1), backs[side] if piece.back > 0 else None)


def _is_one_part(taken: NDArray[np.bool_], room: Room, doorways: Sequence[Doorway]) -> bool:
    """Whether passages at least half a metre wide connect all doors, and little floor is cut off."""
    doors = np.array([(door.x0, door.z0, door.x1, door.z1) for door in doorways], np.int64)  # [D, 4]
    doors -= np.array([room.x0, room.z0, room.x0, room.z0])
    return bool(_reaches_all(taken, doors))


@cached_njit()
def _reaches_all(taken: NDArray[np.bool_], doors: NDArray[np.int64]) -> bool:
    """Flood fill from the first door, two cells away from everything but doors."""
    depth, width = taken.shape
    open_floor = np.zeros((depth, width), np.bool_)
    for z in range(2, depth - 2):
        for x in range(2, width - 2):
            open_floor[z, x] = not taken[z - 2 : z + 3, x - 2 : x + 3].any()
    for x0, z0, x1, z1 in doors:
        open_floor[max(z0 - 3, 0) : z1 + 3, max(x0 - 3, 0) : x1 + 3] = True
    x0, z0 = doors[0, :2]
    first = (min(max(z0, 0), depth - 1), min(max(x0, 0), width - 1))
    reached = np.zeros_like(open_floor)
    reached[first] = True
    stack = [first]
    while len(stack) > 0:
        z, x = stack.pop()
        for dz, dx in ((0, 1), (0, -1), (1, 0), (-1, 0)):
            v, u = z + dz, x + dx
            if 0 <= v < depth and 0 <= u < width and open_floor[v, u] and not reached[v, u]:
                reached[v, u] = True
                stack.append((v, u))
    for x0, z0 in doors[:, :2]:
        if not reached[min(max(z0, 0), depth - 1), min(max(x0, 0), width - 1)]:
            return False
    return bool(reached.sum() >= 0.9 * open_floor.sum())
