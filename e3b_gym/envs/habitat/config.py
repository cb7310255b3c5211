"""The configuration of habitat-lab for reward-free exploration, the same for generated and scanned homes.

It is habitat-lab's PointNav benchmark on HM3D (RGB and depth with a field of view of 90 degrees at a height of 1.25 m,
depth from 0 to 10 m, steps of 0.25 m, turns of 10 degrees, as in the paper), with GPS and compass in place of the goal
and its measures. Only `simulator.type`, `dataset.data_path` and `dataset.scenes_dir` differ between the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from e3b_gym.envs.habitat.lab import habitat, read_write

BENCHMARK = "benchmark/nav/pointnav/pointnav_hm3d.yaml"


@dataclass(frozen=True)
class Source:
    """Simulator, episodes and scenes."""

    simulator: str
    """Name of the simulator in habitat-lab's registry."""
    data_path: str
    """Path of the episodes, with {split} in place of the split."""
    scenes_dir: str
    """Folder of the scenes."""


@lru_cache(maxsize=1)
def _benchmark() -> Any:
    """Returns habitat-lab's configuration; cached, because composing it takes a third of a second."""
    lab_sensors = "+habitat/task/lab_sensors@habitat.task.lab_sensors"
    return habitat.get_config(
        BENCHMARK,
        overrides=[
            f"{lab_sensors}.gps_sensor=gps_sensor",
            f"{lab_sensors}.compass_sensor=compass_sensor",
            "~habitat.task.lab_sensors.pointgoal_with_gps_compass_sensor",
        ],
    )


def make_config(source: Source, split: str, size: int, max_steps: int, coverage: str | None) -> Any:
    """Returns the configuration of one environment for `habitat.Env`.

    Args:
        source: Simulator, episodes and scenes.
        split: Split of the dataset.
        size: Height and width of both images in pixels.
        max_steps: Steps until habitat ends the episode.
        coverage: Ratio that `ExplorationCoverage` measures; None: no coverage.
    """
    config = _benchmark().copy()
    with read_write(config):
        lab = config.habitat
        lab.simulator.type = source.simulator
        lab.dataset.data_path = source.data_path
        lab.dataset.scenes_dir = source.scenes_dir
        lab.dataset.split = split
        lab.environment.max_episode_steps = max_steps
        # The environment chooses the episodes. Without these options habitat-lab's iterator shuffles the list that
        # environments share, and seeds and uses the global generators of Python and NumPy (0 means no seed).
        lab.seed = 0
        lab.environment.iterator_options.shuffle = False
        lab.environment.iterator_options.max_scene_repeat_steps = -1
        for sensor in lab.simulator.agents.main_agent.sim_sensors.values():
            sensor.height = sensor.width = size
        lab.task.measurements = {}
        if coverage is not None:
            from e3b_gym.envs.habitat.coverage import ExplorationCoverageConfig

            lab.task.measurements.exploration_coverage = ExplorationCoverageConfig(ratio=coverage)
    return config
