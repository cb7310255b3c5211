"""Random floor plans: rooms, corridors and the doors between them.

A plan is a rectangle with sides of 8 to 14 m, divided often by a corridor, then into rooms by splitting the longer side
repeatedly. Doors follow a random spanning tree over rooms that share enough wall, corridors first, plus a few more, so
that every room can be reached, some on more than one path. Lengths are in cells of 10 cm.
"""

from __future__ import annotations

from dataclasses import dataclass

from e3b_gym.envs.habitat.dice import Dice

CELL = 0.1
"""Side of a cell in metres."""
OUTER_WALL = 2
LEAST_SIDE = 25
DOOR, ARCH = 10, 17


@dataclass(frozen=True)
class Room:
    """The inside of a room: cells x0 <= x < x1 and z0 <= z < z1."""

    x0: int
    z0: int
    x1: int
    z1: int
    is_corridor: bool = False

    @property
    def sides(self) -> tuple[int, int]:
        """Size along x, along z."""
        return self.x1 - self.x0, self.z1 - self.z0


@dataclass(frozen=True)
class Doorway:
    """The cells of an opening in a wall one cell thick, and the rooms on its two sides."""

    x0: int
    z0: int
    x1: int
    z1: int
    rooms: tuple[int, int]
    is_arch: bool


@dataclass(frozen=True)
class Plan:
    """Rooms and doors of a home."""

    width: int
    """Size along x, outer walls included."""
    depth: int
    """Size along z, outer walls included."""
    rooms: tuple[Room, ...]
    doorways: tuple[Doorway, ...]


def draw_plan(dice: Dice) -> Plan:
    """Returns a random plan in which every room can be reached."""
    while True:
        width, depth = dice.integer(88, 141), dice.integer(88, 141)
        inside = Room(OUTER_WALL, OUTER_WALL, width - OUTER_WALL, depth - OUTER_WALL)
        rooms = tuple(_with_corridor(inside, dice) if dice.uniform() < 0.75 else _divide(inside, dice))
        doorways = _connect(rooms, dice)
        if doorways is not None and len(rooms) >= 5:
            return Plan(width, depth, rooms, doorways)


def _cut(room: Room, at: int, along_x: bool, thickness: int = 1) -> tuple[Room, Room]:
    """Returns two rooms with a wall between them that starts at cell `at`."""
    if along_x:
        return Room(room.x0, room.z0, at, room.z1), Room(at + thickness, room.z0, room.x1, room.z1)
    return Room(room.x0, room.z0, room.x1, at), Room(room.x0, at + thickness, room.x1, room.z1)


def _with_corridor(inside: Room, dice: Dice) -> list[Room]:
    """Returns a corridor along the whole longer side, and rooms on both sides of it."""
    crosses_x = inside.sides[0] < inside.sides[1]  # then the corridor runs along z
    length = inside.sides[0 if crosses_x else 1]
    start = inside.x0 if crosses_x else inside.z0
    breadth = dice.integer(11, 15)
    at = start + dice.integer(LEAST_SIDE + 2, max(LEAST_SIDE + 3, length - LEAST_SIDE - breadth - 3))
    before, rest = _cut(inside, at, crosses_x)
    begin = at + 1
    corridor, after = _cut(rest, begin + breadth, crosses_x)
    corridor = Room(corridor.x0, corridor.z0, corridor.x1, corridor.z1, is_corridor=True)
    return [corridor, *_divide(before, dice), *_divide(after, dice)]


def _divide(room: Room, dice: Dice) -> list[Room]:
    """Splits a room until the longer side is between 2.5 m and about 5.5 m."""
    along_x = room.sides[0] >= room.sides[1]
    longer = max(room.sides)
    if longer < 2 * LEAST_SIDE + 1 or longer <= dice.integer(42, 60):
        return [room]
    start = room.x0 if along_x else room.z0
    at = start + dice.integer(LEAST_SIDE, longer - LEAST_SIDE)
    first, second = _cut(room, at, along_x)
    return _divide(first, dice) + _divide(second, dice)


def _shared_wall(a: Room, b: Room) -> tuple[bool, int, int, int] | None:
    """Returns (crossed along x, position, first cell, last cell + 1) of the wall between a and b if b follows a
    directly, otherwise None."""
    if a.x1 + 1 == b.x0 and min(a.z1, b.z1) - max(a.z0, b.z0) >= DOOR + 2:
        return True, a.x1, max(a.z0, b.z0), min(a.z1, b.z1)
    if a.z1 + 1 == b.z0 and min(a.x1, b.x1) - max(a.x0, b.x0) >= DOOR + 2:
        return False, a.z1, max(a.x0, b.x0), min(a.x1, b.x1)
    return None


def _connect(rooms: tuple[Room, ...], dice: Dice) -> tuple[Doorway, ...] | None:
    """Returns the doors: Kruskal's spanning tree over random weights, and one in eight of the other walls; None if a
    room cannot be reached."""
    walls = {}
    for i, a in enumerate(rooms):
        for j, b in enumerate(rooms):
            wall = _shared_wall(a, b)
            if wall is not None:
                corridor = a.is_corridor or b.is_corridor
                walls[i, j] = (dice.uniform() * (0.5 if corridor else 1.0), wall)
    group = list(range(len(rooms)))
    doorways = []
    for (i, j), (_, wall) in sorted(walls.items(), key=lambda item: item[1][0]):
        if group[i] != group[j]:
            old = group[j]
            group = [group[i] if each == old else each for each in group]
        elif dice.uniform() > 1 / 8:
            continue
        doorways.append(_doorway(wall, (i, j), dice))
    return tuple(doorways) if len(set(group)) == 1 else None


def _doorway(wall: tuple[bool, int, int, int], rooms: tuple[int, int], dice: Dice) -> Doorway:
    crosses_x, at, first, last = wall
    is_arch = last - first >= ARCH + 8 and dice.uniform() < 0.25
    breadth = ARCH if is_arch else DOOR
    start = dice.integer(first + 1, last - breadth)
    if crosses_x:
        return Doorway(at, start, at + 1, start + breadth, rooms, is_arch)
    return Doorway(start, at, start + breadth, at + 1, rooms, is_arch)
