"""Levels drawn on a grid: their text for NetHack's level compiler, and the compiler's output, written directly.

The compiler, lev_comp, is a separate program: starting it for every episode takes a millisecond on an idle machine,
and several if processes wait for a core. A compiled level is a number of instructions and then the instructions, for a
stack machine:

    push a value: its type, then 8 bytes, or the length and bytes of a text  |  an action: draw the map, place a door

A level drawn on a grid needs nine kinds of actions. `GridLevel.assemble` writes them as lev_comp does, byte for byte;
`level` uses it only if it agrees with the installed lev_comp.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from e3b_gym.envs.minihack.tasks import MAP_HEIGHT, MAP_WIDTH

LEVEL_NAME = "mylevel"
"""The level that MiniHack's dungeon file puts first."""

Cell = tuple[int, int]  # column, row

# NetHack's instructions and the types of what they push.
_MONSTER, _DOOR, _STAIR, _BRANCH, _WALLIFY, _MAP, _REGION, _END_REGION, _PUSH, _SELECT_POINT = (
    2, 7, 8, 17, 22, 23, 25, 38, 40, 64,
)  # fmt: skip
_INT, _TEXT, _PLACE, _AREA, _KIND = 1, 2, 4, 5, 7
_EVERYWHERE, _ANYWHERE, _ANY_KIND = 0xFFFFFFFF, 1 << 24, -1
_DOOR_STATES = {"open": 2, "closed": 4, "locked": 8}
_BRANCH_KIND, _MONSTER_DETAILS = 3, 16
_TERRAIN = bytes.maketrans(b" |L+.", bytes([1, 2, 21, 23, 25]))


@dataclass(frozen=True)
class GridLevel:
    """A map with a start, a goal, doors and monsters.

    Attributes:
        rows: The map, its rows of one width: wall "|", lava "L", door "+", floor ".", solid stone " ".
        start, goal, doors: Where the hero begins, where the stairs down are, where the doors are.
        door_state: "open", "closed" or "locked".
        monsters: How many, of any kind and anywhere.
    """

    rows: tuple[str, ...]
    start: Cell
    goal: Cell
    doors: tuple[Cell, ...] = ()
    door_state: str = "closed"
    monsters: int = 0

    @property
    def can_be_assembled(self) -> bool:
        """Whether the doors are of a known kind; otherwise lev_comp compiles the level."""
        return self.door_state in _DOOR_STATES

    @property
    def fits(self) -> bool:
        """Whether NetHack has room for the map."""
        return len(self.rows) <= MAP_HEIGHT and len(self.rows[0]) <= MAP_WIDTH

    @property
    def _elsewhere(self) -> Cell:
        """BRANCH wants an area to avoid: any cell but the start."""
        return abs(self.start[0] - 1), abs(self.start[1] - 1)

    def description(self) -> str:
        """The text of a .des file."""
        (x, y), (other_x, other_y) = self.start, self._elsewhere
        lines = [
            f"MAZE: \"{LEVEL_NAME}\", ' '",
            "FLAGS:hardfloor",
            "INIT_MAP: solidfill,' '",
            "GEOMETRY:center,center",
            "MAP",
            *self.rows,
            "ENDMAP",
            f'REGION:(0,0,{len(self.rows[0])},{len(self.rows)}),lit,"ordinary"',
            f"STAIR:({self.goal[0]},{self.goal[1]}),down",
            f"BRANCH:({x},{y},{x},{y}),({other_x},{other_y},{other_x},{other_y})",
            *(f"DOOR:{self.door_state},({door_x},{door_y})" for door_x, door_y in self.doors),
            "WALLIFY",
            *["MONSTER:random,random"] * self.monsters,
        ]
        return "\n".join(lines) + "\n"

    def assemble(self, opening: Opening) -> bytes:
        """Returns the compiled level, the bytes that lev_comp writes for `description`."""
        instructions = list(self._instructions())
        return b"".join([opening.version, _long(opening.count + len(instructions)), opening.body, *instructions])

    def _instructions(self) -> Iterator[bytes]:
        """From the map on."""
        width, height = len(self.rows[0]), len(self.rows)
        yield _push_text("".join(self.rows).encode().translate(_TERRAIN))
        yield from _ints(height, width)
        yield _do(_MAP)
        yield _push(_AREA, width << 16 | height << 24)
        yield from _ints(1, 0, 1)  # lit, ordinary, a rectangle
        yield from map(_do, (_REGION, _END_REGION))
        yield _push_place(self.goal)
        yield from _ints(0)  # down
        yield _do(_STAIR)
        yield from _ints(*self.start, *self.start, 0, *self._elsewhere, *self._elsewhere, 0, _BRANCH_KIND, 0)
        yield _push_text(b"")
        yield _do(_BRANCH)
        for door in self.doors:
            yield _push_place(door)
            yield _do(_SELECT_POINT)
            yield from _ints(_DOOR_STATES[self.door_state])
            yield _do(_DOOR)
        yield _push(_AREA, _EVERYWHERE)
        yield from _ints(0)
        yield _do(_WALLIFY)
        for _ in range(self.monsters):
            yield _push(_KIND, _ANY_KIND)
            yield _push(_PLACE, _ANYWHERE)
            yield from _ints(_MONSTER_DETAILS, 0)
            yield _do(_MONSTER)


_SAMPLE_ROWS = ("||||||| ", "|..+..| ", "|L.|..| ", "|..+..||", "|||||| |")
SAMPLES = (
    GridLevel(_SAMPLE_ROWS, (1, 3), (5, 2), ((3, 1), (3, 3)), "locked", monsters=3),
    GridLevel(_SAMPLE_ROWS, (4, 1), (2, 2), ((3, 1),), "open", monsters=1),
    GridLevel(_SAMPLE_ROWS, (5, 1), (1, 1), ((3, 3),), "closed"),
    GridLevel(("||||", "|..|", "||||"), (1, 1), (2, 1)),
)
"""Levels with every feature and distinct numbers, to compare with lev_comp."""


@dataclass(frozen=True)
class Opening:
    """The start of every level file, before the map: the compiler's version, and `count` instructions."""

    version: bytes
    count: int
    body: bytes

    @classmethod
    def of(cls, compiled: bytes) -> Opening:
        """Reads it from lev_comp's output for the first of SAMPLES."""
        own = list(SAMPLES[0]._instructions())
        version, count, rest = compiled[:40], struct.unpack("<q", compiled[40:48])[0], compiled[48:]
        return cls(version, count - len(own), rest[: len(rest) - sum(map(len, own))])


@functools.cache
def _do(instruction: int) -> bytes:
    return struct.pack("<i", instruction)


def _long(value: int) -> bytes:
    return struct.pack("<q", value)


@functools.cache
def _push(kind: int, value: int) -> bytes:
    return struct.pack("<ibq", _PUSH, kind, value)


def _push_text(text: bytes) -> bytes:
    return struct.pack("<ibi", _PUSH, _TEXT, len(text)) + text


def _push_place(cell: Cell) -> bytes:
    return _push(_PLACE, cell[0] | cell[1] << 16)


def _ints(*values: int) -> Iterable[bytes]:
    return (_push(_INT, value) for value in values)
