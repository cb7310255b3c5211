"""1000 homes, each generated from its number, as arrays for rendering and navigation.

    home(0) ... home(799)    train
    home(800) ... home(899)  val
    home(900) ... home(999)  test       (the sizes of HM3D's splits)

A home is a grid of 10 cm cells, [z, x], each with the index of its kind. A kind has the heights and materials of floor
and ceiling. A wall is a cell with an infinitely high floor, a table a cell with a high floor, a door a cell with a low
ceiling. Coordinates are habitat's: x to the east, y up, z to the south, in metres, with the origin at the outer corner
of the home.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from e3b_gym.envs.habitat import materials
from e3b_gym.envs.habitat.dice import Dice
from e3b_gym.envs.habitat.furniture import Rectangle, furnish
from e3b_gym.envs.habitat.materials import CREAM, WHITE, Material, colour
from e3b_gym.envs.habitat.plan import CELL, OUTER_WALL, Doorway, Plan, Room, draw_plan

SPLITS = {"train": range(800), "val": range(800, 900), "test": range(900, 1000)}
CEILING, DOOR_HEIGHT, ARCH_HEIGHT = 2.6, 2.05, 2.3
SEED = 5805
FRAME = 0.06
"""Width of the frames of windows and paintings, in metres."""


class Scene(NamedTuple):
    """A home as input of the renderer. K kinds, M materials, D decorations; material 0 means none."""

    cells: NDArray[np.uint8]
    """[Z, X] index of the kind."""
    floor: NDArray[np.float64]
    """[K] height of the floor in metres; infinite in walls."""
    ceiling: NDArray[np.float64]
    """[K] height of the ceiling in metres."""
    top: NDArray[np.uint8]
    """[K] material of the floor."""
    under: NDArray[np.uint8]
    """[K] material of the ceiling."""
    side: NDArray[np.uint8]
    """[K] material of its vertical sides, 0 for the wall material of the cell in front."""
    wall: NDArray[np.uint8]
    """[K] material of walls as seen from this kind."""
    decor: NDArray[np.uint8]
    """[K] index of its decoration, 0 for none."""
    decor_heights: NDArray[np.float64]
    """[D, 2] lower and upper edge in metres."""
    decor_materials: NDArray[np.uint8]
    """[D, 2] material of the inside and of the frame."""
    patterns: NDArray[np.uint8]
    """[M] index of the pattern."""
    tones: NDArray[np.uint8]
    """[M, TONES, 3] colours from base to accent."""
    densities: NDArray[np.float64]
    """[M] texels per metre."""
    glows: NDArray[np.bool_]
    """[M] brightness does not depend on the distance."""


@dataclass(frozen=True)
class Home:
    """One home."""

    number: int
    plan: Plan
    scene: Scene
    furniture: tuple[tuple[str, Rectangle], ...]

    @property
    def size(self) -> tuple[float, float]:
        """Metres along x and z."""
        return self.plan.width * CELL, self.plan.depth * CELL


@lru_cache(maxsize=256)
def home(number: int) -> Home:
    """Returns the home with this number; takes about 5 ms unless it is one of the last 256 (0.1 MB each).

    Raises:
        ValueError: There is no such home.
    """
    count = sum(map(len, SPLITS.values()))
    if not 0 <= number < count:
        raise ValueError(f"there is no home {number}; they are numbered 0 to {count - 1}")
    dice = Dice(SEED, number)
    return _Builder(draw_plan(dice), dice).build(number)


class _Builder:
    """Adds walls, doors, furniture and decorations to the grid, and fills the tables of a `Scene`."""

    def __init__(self, plan: Plan, dice: Dice) -> None:
        self.plan = plan
        self.dice = dice
        self.materials: list[Material] = [Material(materials.PLAIN, WHITE, CREAM, 32)]
        self.decors: list[tuple[float, float, int, int]] = [(0.0, 0.0, 0, 0)]
        self.kinds: list[tuple[float, float, int, int, int, int, int]] = []
        self.trim = self.add_material(Material(materials.PLAIN, WHITE, CREAM, 32))
        self.solid = self.add_kind(floor=np.inf, ceiling=np.inf)
        self.cells = np.full((plan.depth, plan.width), self.solid, np.uint8)
        self.furniture: list[tuple[str, Rectangle]] = []

    def add_material(self, material: Material) -> int:
        self.materials.append(material)
        return len(self.materials) - 1

    def add_kind(
        self,
        floor: float = 0.0,
        ceiling: float = CEILING,
        top: int = 0,
        under: int = 0,
        side: int = 0,
        wall: int = 0,
        decor: int = 0,
    ) -> int:
        self.kinds.append((floor, ceiling, top, under, side, wall, decor))
        return len(self.kinds) - 1

    def fill(self, box: Rectangle, kind: int) -> None:
        x0, z0, x1, z1 = box
        self.cells[z0:z1, x0:x1] = kind

    def build(self, number: int) -> Home:
        looks = [self._lay_room(room) for room in self.plan.rooms]
        for door in self.plan.doorways:
            _, wall, floor, _ = looks[door.rooms[0]]
            height = ARCH_HEIGHT if door.is_arch else DOOR_HEIGHT
            kind = self.add_kind(ceiling=height, top=floor, under=self.trim, wall=wall)
            self.fill((door.x0, door.z0, door.x1, door.z1), kind)
        for i, room in enumerate(self.plan.rooms):
            doorways = [door for door in self.plan.doorways if i in door.rooms]
            self._put_furniture(room, doorways, looks[i])
            self._hang_pictures(room)
            self._put_windows(room)
        return Home(number, self.plan, self._scene(), tuple(self.furniture))

    def _lay_room(self, room: Room) -> tuple[int, int, int, int]:
        """Returns (kind, wall material, floor material, ceiling material)."""
        wall = self.add_material(materials.random_wall(self.dice))
        floor = self.add_material(materials.random_floor(self.dice))
        shade = self.dice.uniform(0.75, 0.97)
        paint = colour(self.dice.uniform(), self.dice.uniform(0, 0.1), shade)
        darker = colour(0.1, 0.05, 0.85 * shade)
        pattern = materials.TILES if self.dice.uniform() < 0.3 else materials.PLAIN
        ceiling = self.add_material(Material(pattern, paint, darker, 24))
        kind = self.add_kind(top=floor, under=ceiling, wall=wall)
        self.fill((room.x0, room.z0, room.x1, room.z1), kind)
        return kind, wall, floor, ceiling

    def _put_furniture(self, room: Room, doorways: list[Doorway], look: tuple[int, int, int, int]) -> None:
        _, wall, _, ceiling = look
        for placed in furnish(room, doorways, self.dice):
            cover = materials.random_furniture(self.dice)
            if placed.piece.name == "shelf":
                cover = cover._replace(pattern=materials.BOOKS)
            body = self.add_material(cover)
            kind = self.add_kind(floor=placed.piece.height, top=body, under=ceiling, side=body, wall=wall)
            self.fill(placed.box, kind)
            if placed.back is not None:
                back = self.add_material(materials.random_furniture(self.dice))
                kind = self.add_kind(floor=placed.piece.back, top=back, under=ceiling, side=back, wall=wall)
                self.fill(placed.back, kind)
            self.furniture.append((placed.piece.name, placed.box))

    def _hang_pictures(self, room: Room) -> None:
        for box in self._wall_strips(room, probability=0.55, shortest=5, longest=12):
            painting = materials.FIRST_PAINTING + self.dice.integer(0, materials.PAINTINGS)
            hue = self.dice.uniform()
            inside = Material(painting, colour(hue, 0.9, 0.9), colour(hue + 0.4, 0.8, 0.4), 64)
            frame = self.add_material(Material(materials.PLAIN, colour(hue, 0.4, 0.2), (20, 20, 20), 32))
            low = self.dice.uniform(1.0, 1.3)
            self._decorate(box, low, low + self.dice.uniform(0.4, 0.8), inside, frame)

    def _put_windows(self, room: Room) -> None:
        for box in self._wall_strips(room, probability=0.8, shortest=9, longest=20, outside=True):
            ground = colour(self.dice.uniform(0.2, 0.4), 0.6, self.dice.uniform(0.3, 0.6))
            sky = colour(0.57, self.dice.uniform(0.15, 0.45), 1.0)
            self._decorate(box, 0.9, 2.1, Material(materials.OUTDOORS, ground, sky, 28, glows=True), self.trim)

    def _decorate(self, box: Rectangle, low: float, high: float, inside: Material, frame: int) -> None:
        self.decors.append((low, high, self.add_material(inside), frame))
        self.fill(box, self.add_kind(floor=np.inf, ceiling=np.inf, decor=len(self.decors) - 1))
        self.decors.append((low, high, frame, frame))
        edge = self.add_kind(floor=np.inf, ceiling=np.inf, decor=len(self.decors) - 1)
        x0, z0, x1, z1 = box
        self.cells[z0, x0] = self.cells[z1 - 1, x1 - 1] = edge

    def _wall_strips(
        self, room: Room, probability: float, shortest: int, longest: int, outside: bool = False
    ) -> list[Rectangle]:
        """Returns at most one strip of bare wall, one cell thick, on each of the room's four walls."""
        strips = []
        for along_z, at, first, last in (
            (True, room.x0 - 1, room.z0, room.z1),
            (True, room.x1, room.z0, room.z1),
            (False, room.z0 - 1, room.x0, room.x1),
            (False, room.z1, room.x0, room.x1),
        ):
            length = min(self.dice.integer(shortest, longest + 1), last - first - 2)
            start = first + 1 + self.dice.integer(0, max(last - first - length - 1, 1))
            edge = self.plan.width if along_z else self.plan.depth
            is_outside = at == OUTER_WALL - 1 or at == edge - OUTER_WALL
            box = (at, start, at + 1, start + length) if along_z else (start, at, start + length, at + 1)
            x0, z0, x1, z1 = box
            is_bare = bool((self.cells[z0:z1, x0:x1] == self.solid).all())
            if self.dice.uniform() < probability and is_outside == outside and is_bare:
                strips.append(box)
        return strips

    def _scene(self) -> Scene:
        floor, ceiling, top, under, side, wall, decor = zip(*self.kinds, strict=True)
        if len(self.kinds) > 256 or len(self.materials) > 256:
            raise OverflowError(f"{len(self.kinds)} kinds and {len(self.materials)} materials: at most 256 each")
        return Scene(
            self.cells,
            np.array(floor, np.float64),
            np.array(ceiling, np.float64),
            np.array(top, np.uint8),
            np.array(under, np.uint8),
            np.array(side, np.uint8),
            np.array(wall, np.uint8),
            np.array(decor, np.uint8),
            np.array([each[:2] for each in self.decors], np.float64),
            np.array([each[2:] for each in self.decors], np.uint8),
            np.array([each.pattern for each in self.materials], np.uint8),
            materials.tones(self.materials),
            np.array([each.density for each in self.materials], np.float64),
            np.array([each.glows for each in self.materials], np.bool_),
        )
