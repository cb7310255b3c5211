"""Navigation: where an agent can stand, how it slides along walls, and shortest paths.

The floor is divided into squares of 5 cm. An agent (a disc) can stand in a square if no wall, furniture or low door is
closer to the square's centre than its radius; only the largest connected area counts. `FloorPlanPathFinder` has the
interface of habitat-sim's PathFinder, for one floor at height 0.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from e3b_gym.compiling import cached_njit
from e3b_gym.envs.habitat.homes import Home, home
from e3b_gym.envs.habitat.plan import CELL

SQUARE = 0.05
"""Side of a square in metres."""
_PER_CELL = round(CELL / SQUARE)
_STRIDE = 0.02
"""Metres between two checks of the ground during a move."""

Array = NDArray[Any]
Point = Sequence[float] | Array


def walkable_squares(home_: Home, radius: float, height: float) -> NDArray[np.bool_]:
    """Returns the squares [Z, X] in which an agent can stand."""
    scene = home_.scene
    blocks = (scene.floor > 0) | (scene.ceiling < height)  # [K]
    blocked = blocks[scene.cells].repeat(_PER_CELL, axis=0).repeat(_PER_CELL, axis=1)
    largest: NDArray[np.bool_] = _largest_part(_at_distance(blocked, radius))
    return largest


@lru_cache(maxsize=256)
def path_finder(number: int, radius: float, height: float) -> FloorPlanPathFinder:
    """Returns the path finder of a home; those of the last 256 homes are cached (0.1 MB each)."""
    return FloorPlanPathFinder(walkable_squares(home(number), radius, height))


class FloorPlanPathFinder:
    """Path finder of one home; it stores nothing about agents."""

    is_loaded = True

    def __init__(self, walkable: NDArray[np.bool_]) -> None:
        self.walkable = walkable
        """[Z, X] squares."""
        self._distances_to: dict[tuple[int, int], Array] = {}  # distances to a goal, for the last four goals

    def get_bounds(self) -> tuple[Array, Array]:
        """Returns two opposite corners of the home, [3] each."""
        depth, width = self.walkable.shape
        return np.zeros(3, np.float32), np.array([width * SQUARE, 0.0, depth * SQUARE], np.float32)

    @property
    def navigable_area(self) -> float:
        """Navigable area in square metres."""
        return float(self.walkable.sum()) * SQUARE**2

    def is_navigable(self, point: Point, max_y_delta: float = 0.5) -> bool:
        """Whether an agent can stand there; the height may be off by `max_y_delta`."""
        if not np.isfinite(point).all():
            return False
        j, i = self._square(point)
        depth, width = self.walkable.shape
        if not (0 <= j < depth and 0 <= i < width and abs(point[1]) <= max_y_delta):
            return False
        return bool(self.walkable[j, i])

    def get_topdown_view(self, meters_per_pixel: float, height: float, eps: float = 0.5) -> NDArray[np.bool_]:
        """Returns bool [Z, X]: the centre of the pixel is navigable, and the floor is within `eps` of `height`."""
        if not meters_per_pixel > 0:
            raise ValueError(f"meters_per_pixel must be positive, got {meters_per_pixel}")
        depth, width = self.walkable.shape
        if abs(height) > eps:
            return np.zeros((round(depth * SQUARE / meters_per_pixel), round(width * SQUARE / meters_per_pixel)), bool)
        rows, columns = (
            np.minimum(
                (np.arange(round(side * SQUARE / meters_per_pixel)) + 0.5) * (meters_per_pixel / SQUARE), side - 1
            )
            for side in (depth, width)
        )
        view: NDArray[np.bool_] = self.walkable[rows.astype(np.int64)[:, None], columns.astype(np.int64)]
        return view

    def get_random_navigable_point(self, rng: np.random.Generator | None = None) -> Array:
        """Returns a point [3] drawn uniformly from the walkable floor."""
        rng = np.random.default_rng() if rng is None else rng
        squares = np.flatnonzero(self.walkable)
        j, i = divmod(int(rng.choice(squares)), self.walkable.shape[1])
        dx, dz = rng.uniform(0.1, 0.9, 2)
        return np.array([(i + dx) * SQUARE, 0.0, (j + dz) * SQUARE], np.float32)

    def snap_point(self, point: Point) -> Array:
        """Returns the point if it is navigable, otherwise the centre of the nearest walkable square."""
        if self.is_navigable(point):
            return np.array(point, np.float32)
        j, i = np.nonzero(self.walkable)
        nearest = int(np.argmin(((i + 0.5) * SQUARE - point[0]) ** 2 + ((j + 0.5) * SQUARE - point[2]) ** 2))
        return np.array([(i[nearest] + 0.5) * SQUARE, 0.0, (j[nearest] + 0.5) * SQUARE], np.float32)

    def distance_to_closest_obstacle(self, point: Point, max_search_radius: float = 2.0) -> float:
        """Returns the distance in metres to the nearest place where an agent cannot stand, at most
        `max_search_radius`."""
        j, i = np.nonzero(~self.walkable)
        gap_x = np.maximum(np.abs((i + 0.5) * SQUARE - point[0]) - SQUARE / 2, 0)
        gap_z = np.maximum(np.abs((j + 0.5) * SQUARE - point[2]) - SQUARE / 2, 0)
        return float(min(np.sqrt(gap_x**2 + gap_z**2).min(), max_search_radius))

    def try_step(self, start: Point, end: Point) -> Array:
        """Returns the end point [3] of a move from start towards end that slides along walls."""
        x, z = _walk(self.walkable, float(start[0]), float(start[2]), float(end[0]), float(end[2]), True)
        return np.array([x, start[1], z], np.float32)

    def try_step_no_sliding(self, start: Point, end: Point) -> Array:
        """Returns the end point [3] of a move from start towards end that stops at walls."""
        x, z = _walk(self.walkable, float(start[0]), float(start[2]), float(end[0]), float(end[2]), False)
        return np.array([x, start[1], z], np.float32)

    def find_path(self, start: Point, goal: Point) -> list[Array]:
        """Returns the corners of the shortest path, both ends included; empty if there is none."""
        if not (self.is_navigable(start) and self.is_navigable(goal)):
            return []
        target = self._square(goal)
        if target not in self._distances_to:
            if len(self._distances_to) >= 4:
                self._distances_to.pop(next(iter(self._distances_to)))
            self._distances_to[target] = _distances(self.walkable, *target)
        ends = float(start[0]), float(start[2]), float(goal[0]), float(goal[2])
        corners = _straight_path(self.walkable, self._distances_to[target], *ends)
        return [np.array([x, 0.0, z], np.float32) for x, z in corners]

    @staticmethod
    def _square(point: Point) -> tuple[int, int]:
        return math.floor(point[2] / SQUARE), math.floor(point[0] / SQUARE)


@cached_njit()
def _at_distance(blocked: Array, radius: float) -> Array:
    """Returns the squares [Z, X] whose centres are at least `radius` away from every blocked square."""
    reach = math.ceil(radius / SQUARE + 0.5)
    near = np.zeros((2 * reach + 1, 2 * reach + 1), np.bool_)
    for j in range(-reach, reach + 1):
        for i in range(-reach, reach + 1):
            # From the centre of one square to the nearest edge of the other.
            gap = SQUARE * math.hypot(max(abs(j) - 0.5, 0.0), max(abs(i) - 0.5, 0.0))
            near[reach + j, reach + i] = gap < radius - 1e-9
    depth, width = blocked.shape
    free = ~blocked
    for j in range(depth):
        for i in range(width):
            left, right = max(i - 1, 0), min(i + 1, width - 1)
            above, below = max(j - 1, 0), min(j + 1, depth - 1)
            if not blocked[j, i] or (
                blocked[j, left] and blocked[j, right] and blocked[above, i] and blocked[below, i]
            ):
                continue  # free, or surrounded by blocked squares, which are closer to all free squares
            for y in range(max(j - reach, 0), min(j + reach + 1, depth)):
                for x in range(max(i - reach, 0), min(i + reach + 1, width)):
                    if near[reach + y - j, reach + x - i]:
                        free[y, x] = False
    return free


@cached_njit()
def _largest_part(free: Array) -> Array:
    """Returns the largest set of free squares that are connected by their sides."""
    depth, width = free.shape
    part = np.zeros((depth, width), np.int64)  # 0: not visited, or not free
    best, best_size, count = 0, 0, 0
    for start_j in range(depth):
        for start_i in range(width):
            if not free[start_j, start_i] or part[start_j, start_i] > 0:
                continue
            count += 1
            size = 1
            part[start_j, start_i] = count
            stack = [(start_j, start_i)]
            while len(stack) > 0:
                j, i = stack.pop()
                for dj, di in ((0, 1), (0, -1), (1, 0), (-1, 0)):
                    y, x = j + dj, i + di
                    if 0 <= y < depth and 0 <= x < width and free[y, x] and part[y, x] == 0:
                        part[y, x] = count
                        size += 1
                        stack.append((y, x))
            if size > best_size:
                best, best_size = count, size
    return np.asarray((part == best) & free)


@cached_njit()
def _is_walkable(walkable: Array, x: float, z: float) -> bool:
    j, i = math.floor(z / SQUARE), math.floor(x / SQUARE)
    return 0 <= j < walkable.shape[0] and 0 <= i < walkable.shape[1] and walkable[j, i]


@cached_njit()
def _walk(walkable: Array, x: float, z: float, to_x: float, to_z: float, slides: bool) -> tuple[float, float]:
    """Moves in short strides; a blocked stride continues along x or z alone if `slides`, otherwise stops."""
    strides = max(1, math.ceil(math.hypot(to_x - x, to_z - z) / _STRIDE))
    dx, dz = (to_x - x) / strides, (to_z - z) / strides
    for _ in range(strides):
        if _is_walkable(walkable, x + dx, z + dz):
            x += dx
            z += dz
        elif not slides:
            break
        elif _is_walkable(walkable, x + dx, z):
            x += dx
        elif _is_walkable(walkable, x, z + dz):
            z += dz
    return x, z


@cached_njit()
def _distances(walkable: Array, goal_j: int, goal_i: int) -> Array:
    """Returns distances to the goal in squares [Z, X] over eight neighbours (Dijkstra); infinite without a path."""
    depth, width = walkable.shape
    distance = np.full((depth, width), np.inf)
    distance[goal_j, goal_i] = 0.0
    heap = [(0.0, goal_j, goal_i)]
    while len(heap) > 0:
        walked, j, i = heapq.heappop(heap)
        if walked > distance[j, i]:
            continue
        for dj in range(-1, 2):
            for di in range(-1, 2):
                y, x = j + dj, i + di
                if not (0 <= y < depth and 0 <= x < width and walkable[y, x]):
                    continue
                if not (walkable[y, i] and walkable[j, x]):  # a diagonal step must not touch a corner
                    continue
                reached = walked + math.sqrt(dj * dj + di * di)
                if reached < distance[y, x]:
                    distance[y, x] = reached
                    heapq.heappush(heap, (reached, y, x))
    return distance


@cached_njit()
def _sees(walkable: Array, a: Array, b: Array) -> bool:
    """Whether the straight line from a to b stays on walkable squares."""
    strides = max(1, math.ceil(math.hypot(b[0] - a[0], b[1] - a[1]) / _STRIDE))
    for n in range(1, strides):
        share = n / strides
        if not _is_walkable(walkable, a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1])):
            return False
    return True


@cached_njit()
def _straight_path(walkable: Array, distance: Array, x: float, z: float, to_x: float, to_z: float) -> Array:
    """Returns the corners [N, 2] of the path of decreasing distance, without corners that a straight line can skip."""
    j, i = math.floor(z / SQUARE), math.floor(x / SQUARE)
    if not np.isfinite(distance[j, i]):
        return np.empty((0, 2))
    way = [(x, z)]
    while distance[j, i] > 0:
        best_j, best_i = j, i
        for dj in range(-1, 2):
            for di in range(-1, 2):
                if walkable[j + dj, i] and walkable[j, i + di] and distance[j + dj, i + di] < distance[best_j, best_i]:
                    best_j, best_i = j + dj, i + di
        j, i = best_j, best_i
        way.append(((i + 0.5) * SQUARE, (j + 0.5) * SQUARE))
    way.append((to_x, to_z))
    points = np.array(way)
    for _ in range(2):  # forwards, then backwards: the second pass removes corners that the first one kept
        points = _shortcuts(walkable, points)[::-1].copy()
    return points


@cached_njit()
def _shortcuts(walkable: Array, points: Array) -> Array:
    kept = [0]
    while kept[-1] < len(points) - 1:
        following = len(points) - 1
        while following > kept[-1] + 1 and not _sees(walkable, points[kept[-1]], points[following]):
            following -= 1
        kept.append(following)
    return np.asarray(points[np.array(kept)])
