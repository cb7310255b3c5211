"""`ExplorationCoverage`: share of a home that the agent has seen in an episode (Section 4.3 of the paper).

    coverage = revealed navigable area / navigable area

on a map with 5 cm per pixel, revealed by habitat-lab's fog-of-war function with a field of view of 90 degrees and a
range of 5 m (habitat-lab's defaults, and the paper's camera). It is a measure in habitat-lab's registry and works with
any simulator that has a path finder.

`ratio="authors"` is what the authors' evaluation computes: all revealed pixels / pixels that still have the value of
free floor on habitat-lab's `TopDownMap` when the episode ends. On that map habitat-lab has drawn the border of the free
area, the start, the goal, the shortest path and the agent's path. These pixels are missing from the denominator but
count in the numerator, and a line drawn over the edge of a wall lets the agent see through it. So this ratio is larger
(twice as large for a short walk), grows with the length of the path, and may exceed 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from omegaconf import OmegaConf

from e3b_gym.envs.habitat.lab import Measure, MeasurementConfig, TopDownMap, TopDownMapConfig, maps, registry
from e3b_gym.envs.habitat.lab import reveal_fog_of_war as reveal

METRES_PER_PIXEL = 0.05
VISIBILITY, FIELD_OF_VIEW = 5.0, 90.0
RATIOS = ("navigable", "authors")
UNSEEN, SEEN, BLOCKED, PATH, START, END = (
    np.array(rgb, np.uint8)
    for rgb in ((150, 150, 160), (252, 224, 140), (255, 255, 255), (40, 90, 200), (30, 150, 60), (210, 40, 40))
)


@dataclass
class ExplorationCoverageConfig(MeasurementConfig):  # type: ignore[misc]  # habitat-lab is untyped here
    """The entry of the measure in `habitat.task.measurements`."""

    type: str = "ExplorationCoverage"
    """Name of the measure in habitat's registry."""
    ratio: str = "navigable"
    """Denominator of the coverage, as in `ExplorationCoverage`."""


@registry.register_measure
class ExplorationCoverage(Measure):  # type: ignore[misc]
    """Coverage of the floor that the agent starts on, from 0 to 1."""

    cls_uuid = "exploration_coverage"

    def __init__(self, sim: Any, config: Any, *_: Any, **__: Any) -> None:
        ratio: Literal["navigable", "authors"] = config.ratio
        if ratio not in RATIOS:
            raise ValueError(f"unknown ratio {ratio!r}; choose from {', '.join(RATIOS)}")
        self._sim = sim
        self._ratio = ratio
        self._drawn = _AuthorsMap(sim) if ratio == "authors" else None
        self.path: list[tuple[int, int]] = []
        """Position of the agent at each step: row (z) and column (x) on the map."""
        super().__init__()

    def _get_uuid(self, *_: Any, **__: Any) -> str:
        return self.cls_uuid

    def reset_metric(self, episode: Any, *args: Any, **kwargs: Any) -> None:
        height = self._sim.get_agent_state().position[1]
        self._map = maps.get_topdown_map(
            self._sim.pathfinder, height, draw_border=False, meters_per_pixel=METRES_PER_PIXEL
        )  # [Z, X] uint8, 1 where an agent can stand
        self._fog = np.zeros_like(self._map)
        self._area = int(np.count_nonzero(self._map))
        self.path = []
        self._poses: set[tuple[int, int, float]] = set()
        if self._drawn is not None:
            self._drawn.reset_metric(episode)
        self._look()

    def update_metric(self, episode: Any, *args: Any, **kwargs: Any) -> None:
        if self._drawn is not None:
            self._drawn.update_metric(episode, None)
        self._look()

    def _look(self) -> None:
        state = self._sim.get_agent_state()
        row, column = maps.to_grid(state.position[2], state.position[0], self._map.shape, sim=self._sim)
        self.path.append((row, column))
        angle = TopDownMap.get_polar_angle(state)
        pose = (row, column, float(angle))
        if pose not in self._poses:  # a second observation from the same pose reveals nothing
            self._poses.add(pose)
            reach = VISIBILITY / METRES_PER_PIXEL
            self._fog = reveal(self._map, self._fog, np.array([row, column]), angle, FIELD_OF_VIEW, reach)
        if self._drawn is None:
            self._metric = int(np.count_nonzero(self._fog)) / max(self._area, 1)
        else:
            self._metric = self._drawn.ratio()

    @property
    def navigable(self) -> NDArray[np.bool_]:
        """[Z, X] bool: an agent can stand there."""
        return np.asarray(self._map != maps.MAP_INVALID_POINT)

    @property
    def seen(self) -> NDArray[np.bool_]:
        """[Z, X] bool: the agent has seen it."""
        return np.asarray(self._fog == 1)

    def map_image(self, scale: int = 2) -> NDArray[np.uint8]:
        """Returns the map [scale * Z, scale * X, 3] with seen floor, unseen floor, and the path from green to red."""
        if scale < 1:
            raise ValueError(f"scale must be at least 1, got {scale}")
        picture = np.where(self.seen[..., None], SEEN, np.where(self.navigable[..., None], UNSEEN, BLOCKED))
        picture = picture.repeat(scale, axis=0).repeat(scale, axis=1)
        points = (np.array(self.path) + 0.5) * scale  # [T, 2]
        for a, b in pairwise(points):
            count = int(np.abs(b - a).max()) + 1
            _dots(picture, a + np.linspace(0, 1, count)[:, None] * (b - a), PATH, radius=scale // 2)
        _dots(picture, points[:1], START, radius=2 * scale)
        _dots(picture, points[-1:], END, radius=2 * scale)
        return picture


class _AuthorsMap(TopDownMap):  # type: ignore[misc]
    """habitat-lab's map and drawings at 5 cm per pixel (its default of 1024 pixels runs at 10 steps per second)."""

    def __init__(self, sim: Any) -> None:
        super().__init__(sim, OmegaConf.structured(TopDownMapConfig()))

    def reset_metric(self, episode: Any, *args: Any, **kwargs: Any) -> None:
        low, high = self._sim.pathfinder.get_bounds()
        self._map_resolution = max(round(min(high[0] - low[0], high[2] - low[2]) / METRES_PER_PIXEL), 1)
        self.line_thickness = max(round(self._map_resolution * 2 / 128), 1)
        self.point_padding = 2 * -(-self._map_resolution // 128)
        super().reset_metric(episode, *args, **kwargs)

    def ratio(self) -> float:
        seen = np.count_nonzero(self._metric["fog_of_war_mask"] == 1)
        return int(seen) / max(int(np.count_nonzero(self._metric["map"] == maps.MAP_VALID_POINT)), 1)


def _dots(picture: NDArray[np.uint8], points: NDArray[np.float64], colour: NDArray[np.uint8], radius: int) -> None:
    for row, column in points.astype(np.int64):
        rows = slice(max(row - radius, 0), row + radius + 1)
        picture[rows, max(column - radius, 0) : column + radius + 1] = colour
