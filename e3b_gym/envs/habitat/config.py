"""habitat-lab's configuration for reward-free exploration, the same for generated and for scanned homes.

It starts from habitat-lab's own PointNav benchmark on HM3D (RGB and depth at 90 degrees from 1.25 m, depth from 0 to
10 m, steps of 0.25 m, turns of 10 degrees, as in the paper) and replaces the goal and its measures by GPS and
compass. Only `simulator.type`, `dataset.data_path` and `dataset.scenes_dir` differ between the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from e3b_gym.envs.habitat.lab import habitat, read_write

BENCHMARK = "benchmark/nav/pointnav/pointnav_hm3d.yaml"


@dataclass(frozen=True)
class Source:
    """Where scenes and episodes come from."""

    simulator: str
    data_path: str
    """With {split} in place of the split's name."""
    scenes_dir: str


@lru_cache(maxsize=1)
def _benchmark() -> Any:
    """Composed once: it takes a third of a second."""
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
    """The configuration of one environment, to be given to `habitat.Env`.

    Args:
        source: Where scenes and episodes come from.
        split: Of the dataset.
        size: Pixels a side of both pictures.
        max_steps: Until habitat ends the episode.
        coverage: Which ratio `ExplorationCoverage` measures; None leaves it out.
    """
    config = _benchmark().copy()
    with read_write(config):
        lab = config.habitat
        lab.simulator.type = source.simulator
        lab.dataset.data_path = source.data_path
        lab.dataset.scenes_dir = source.scenes_dir
        lab.dataset.split = split
        lab.environment.max_episode_steps = max_steps
        # The environment chooses episodes. habitat-lab's iterator would shuffle those that environments share, and
        # would seed and use the global generators of Python and NumPy, unless told otherwise (0 is no seed to it).
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
