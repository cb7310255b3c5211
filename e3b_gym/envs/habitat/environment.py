"""Reward-free exploration of homes with the real `habitat.Env` (Section 4.3 of the paper).

The agent moves 0.25 m forward or turns by 10 degrees for 500 steps; the reward is always 0. Stop ends the episode
(`terminated`), the time limit truncates it.

Observation (Dict):
    rgb     uint8 [size, size, 3]
    depth   float32 [size, size, 1], 0 to 10 m along the camera's axis, scaled to 0 to 1
    gps     float32 [2], metres ahead and to the right of the start
    compass float32 [1], radians turned to the left since the start

Differs from habitat-lab's gym environment: Gymnasium's API; this environment's generator chooses the episodes
(habitat-lab's iterator treats seed 0 as no seed); `terminated` and `truncated` are distinguished; no log lines.
"""

from __future__ import annotations

import gzip
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from e3b_gym.envs.habitat import ACTIONS, MAX_STEPS
from e3b_gym.envs.habitat.config import Source, make_config
from e3b_gym.envs.habitat.coverage import RATIOS, ExplorationCoverage
from e3b_gym.envs.habitat.lab import PointNavDataset, habitat

KEYS = ("rgb", "depth", "gps", "compass")
RENDER_MODES = ("rgb_array",)
Observation = dict[str, NDArray[Any]]


class HabitatExploration(gymnasium.Env[Observation, np.int64]):
    """An agent that explores a different home in each episode.

    Args:
        source: Simulator, episodes and scenes.
        size: Height and width of both images in pixels; the paper has 256.
        split: Split of the dataset.
        allow_stop: Include the action stop, which ends the episode; False: three actions.
        max_steps: Steps until truncation.
        coverage: Add `info["coverage"]`, the share of the home seen so far, to every step. Slow; for evaluation.
        coverage_ratio: "navigable", or "authors" for the ratio of the authors' code (`coverage.py`).
        render_mode: "rgb_array" for the camera image, with the map next to it if `coverage` is on.
    """

    metadata = {"render_modes": list(RENDER_MODES), "render_fps": 10}  # noqa: RUF012  # Gymnasium's name and type

    def __init__(
        self,
        source: Source,
        size: int = 128,
        split: str = "train",
        allow_stop: bool = True,
        max_steps: int = MAX_STEPS,
        coverage: bool = False,
        coverage_ratio: Literal["navigable", "authors"] = "navigable",
        render_mode: str | None = None,
    ) -> None:
        for name, value, paper in (("size", size, "256 pixels"), ("max_steps", max_steps, f"{MAX_STEPS}")):
            if not isinstance(value, int | np.integer) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}; the paper has {paper}")
        size, max_steps = int(size), int(max_steps)
        if coverage_ratio not in RATIOS:
            raise ValueError(f"unknown coverage_ratio {coverage_ratio!r}; choose from {', '.join(RATIOS)}")
        if render_mode is not None and render_mode not in RENDER_MODES:
            raise ValueError(f"unknown render_mode {render_mode!r}; choose from {', '.join(RENDER_MODES)} or None")
        self.action_names = ACTIONS if allow_stop else ACTIONS[1:]
        self.action_space = spaces.Discrete(len(self.action_names))
        self.observation_space = spaces.Dict(
            {
                "rgb": spaces.Box(0, 255, (size, size, 3), np.uint8),
                "depth": spaces.Box(0.0, 1.0, (size, size, 1), np.float32),
                "gps": spaces.Box(-np.inf, np.inf, (2,), np.float32),
                "compass": spaces.Box(-np.pi, np.pi, (1,), np.float32),
            }
        )
        self.max_steps, self._split = max_steps, split
        self.render_mode = render_mode
        self.config = make_config(source, split, size, max_steps, coverage_ratio if coverage else None)
        """The configuration of habitat-lab."""
        self._dataset = load_dataset(source, split)
        self.habitat = habitat.Env(self.config, self._dataset)
        """The wrapped `habitat.Env`."""
        measures = self.habitat.task.measurements.measures
        self._coverage: ExplorationCoverage | None = measures.get(ExplorationCoverage.cls_uuid)
        self._running = False
        self._last: Observation | None = None

    @property
    def num_episodes(self) -> int:
        """Number of episodes of the split."""
        return len(self._dataset.episodes)

    @property
    def scenes(self) -> list[str]:
        """The home of each episode of the split."""
        return [episode.scene_id for episode in self._dataset.episodes]

    @property
    def exploration(self) -> ExplorationCoverage:
        """Coverage of the current episode: the map, the seen part, the path, and an image of them."""
        if self._coverage is None:
            raise ValueError("coverage is off; make the environment with coverage=True")
        if self._last is None:
            raise ResetNeeded("no episode has begun; call reset() first")
        return self._coverage

    def map_image(self, scale: int = 2) -> NDArray[np.uint8]:
        """Returns the map of the home with the seen part and the agent's path; needs `coverage=True`."""
        return self.exploration.map_image(scale)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Starts a random episode of the split, or episode n with `options={"episode": n}`.

        Raises:
            ValueError: There is no episode n, or no home for it, or the agent cannot stand at its start.
        """
        super().reset(seed=seed)
        index = int(self.np_random.integers(self.num_episodes))
        if options is not None and "episode" in options:
            index = options["episode"]
            if not isinstance(index, int | np.integer) or not 0 <= index < self.num_episodes:
                raise ValueError(f"there is no episode {index!r}; the split has {self.num_episodes}, counted from 0")
        self._running, self._last = False, None  # the simulator may reject the episode in the middle of its reset
        self.habitat.current_episode = self._dataset.episodes[index]
        try:
            self._last = self._contiguous(self.habitat.reset())
        except ValueError as error:
            raise ValueError(f"episode {index} of {self._split!r} cannot start: {error}") from error
        self._running = True
        return self._last, self._info()

    def step(self, action: np.int64 | int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        if not self._running:
            raise ResetNeeded("no episode is running; call reset() before step()")
        if not self.action_space.contains(action):
            raise ValueError(
                f"actions are 0 to {len(self.action_names) - 1} ({', '.join(self.action_names)}), got {action!r}"
            )
        name = self.action_names[action]
        self._last = self._contiguous(self.habitat.step(name))
        terminated = name == "stop"
        truncated = bool(self.habitat.episode_over) and not terminated
        self._running = not (terminated or truncated)
        return self._last, 0.0, terminated, truncated, self._info()

    @staticmethod
    def _contiguous(observations: Any) -> Observation:
        """Copies the observations where needed: images of habitat-sim are slices of larger arrays."""
        return {key: np.ascontiguousarray(observations[key]) for key in KEYS}

    def _info(self) -> dict[str, Any]:
        return {} if self._coverage is None else {"coverage": float(self._coverage.get_metric())}

    def render(self) -> NDArray[np.uint8] | None:  # type: ignore[override]  # Gymnasium types it as a list, too
        if self.render_mode is None or self._last is None:
            return None
        camera: NDArray[np.uint8] = self._last["rgb"].copy()
        if self._coverage is None:
            return camera
        plan = self._coverage.map_image(scale=1)
        height = max(len(camera), len(plan))
        pictures = [np.pad(each, ((0, height - len(each)), (0, 4), (0, 0))) for each in (camera, plan)]
        return np.concatenate(pictures, axis=1)

    def close(self) -> None:
        self.habitat.close()
        self._running = False


def load_dataset(source: Source, split: str) -> Any:
    """Returns the episodes of a split as habitat-lab's PointNav dataset, shared by all environments of a process.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: The file cannot be read, or has no episodes.
    """
    path = Path(source.data_path.format(split=split))
    if not path.is_file():
        raise FileNotFoundError(f"no episodes at {path}; docs/habitat.md explains where to get them")
    try:
        dataset = _read(source, split, path.stat().st_mtime_ns)
    except (gzip.BadGzipFile, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is not a file of habitat-lab's PointNav episodes (gzipped JSON): {type(error).__name__}: {error}"
        ) from error
    if not dataset.episodes:
        raise ValueError(f"the split {split!r} has no episodes: the list in {path} is empty")
    return dataset


@lru_cache(maxsize=4)
def _read(source: Source, split: str, modified: int) -> Any:
    """Reads the dataset; `modified` is part of the cache key, so that a changed file is read again."""
    config = make_config(source, split, 1, 1, None)
    return PointNavDataset(config.habitat.dataset)
