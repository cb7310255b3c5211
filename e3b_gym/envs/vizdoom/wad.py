"""The sparse maps of MyWayHome, generated in memory from the map that ViZDoom installs.

Pathak et al. (2017) used two variants of `my_way_home.wad` with a fixed start. This module reproduces the spot and the
heading measured in those variants; other differences were not checked.
In the installed map a script that runs when the player enters chooses the start,

    spot = random(start, start + count - 1);  angle = random(0.0, 1.0)      (one full turn is 1.0)

so a variant is the installed map with `count` = 1 and a constant angle. `start` and `count` are map variables with
initial values in the MINI chunk of the compiled script (lump BEHAVIOR); the angle is nine bytes of its code. All
replaced values keep their length, so no offset in the file changes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass


@dataclass(frozen=True)
class Spawn:
    """A fixed start."""

    spot: int
    """Thing id of the map spot."""
    x: float
    y: float
    angle: int
    """Heading in degrees, anticlockwise from east."""


SPARSE = Spawn(spot=10, x=240.0, y=-176.0, angle=0)
VERY_SPARSE = Spawn(spot=15, x=543.986, y=-672.089, angle=180)

_FIXED_POINT = 1 << 16
# MINI: size of the chunk, index of the first variable, then the vest's x and thing id, and the first spot and
# their number.
_VARIABLES = b"MINI" + struct.pack("<4i", 20, 0, 1312 * _FIXED_POINT, 22)
_ALL_SPOTS = struct.pack("<2i", 10, 17)
# Compiled `SetActorAngle(0, random(0.0, 1.0))`: push the two bytes 0, 0 and the word 1.0; draw. The first 0
# is the player.
_RANDOM_ANGLE = bytes.fromhex("b0 00 00 03 00 00 01 00 39")


def with_fixed_spawn(wad: bytes, spawn: Spawn) -> bytes:
    """Returns the map `wad` (the contents of the installed `my_way_home.wad`) with one start and one heading.

    Raises:
        ValueError: The bytes to replace do not occur exactly once, so this is another map or release.
    """
    angle = round(spawn.angle / 360 * _FIXED_POINT)
    # push byte 0 (the player), push word angle, and two no-ops for the remaining bytes
    fixed_angle = struct.pack("<3Bi2B", 0xA7, 0, 3, angle, 0, 0)
    wad = _replace_once(wad, _VARIABLES + _ALL_SPOTS, _VARIABLES + struct.pack("<2i", spawn.spot, 1))
    return _replace_once(wad, _RANDOM_ANGLE, fixed_angle)


def _replace_once(data: bytes, old: bytes, new: bytes) -> bytes:
    if data.count(old) != 1:
        raise ValueError(
            f"expected the bytes {old.hex(' ')} once in my_way_home.wad, found them {data.count(old)} times; "
            "this release of ViZDoom has another map: install vizdoom>=1.3,<1.4"
        )
    return data.replace(old, new)
