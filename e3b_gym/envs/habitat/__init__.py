"""Habitat: reward-free exploration of generated homes, or of scanned homes if those are installed.

    Habitat-FloorPlan-v0    1000 homes generated from seeds, rendered by this package; needs habitat-lab only
    Habitat-HM3D-v0         the paper's homes; needs habitat-sim and HM3D, installed separately (docs/habitat.md)

Both are `environment.HabitatExploration` on the real `habitat.Env`, with the same configuration and options. `make`
imports habitat-lab, nothing else does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from e3b_gym.envs.registry import SuiteNotInstalledError, Task

if TYPE_CHECKING:
    from e3b_gym.envs.habitat.environment import HabitatExploration

FLOOR_PLAN, HM3D = "Habitat-FloorPlan-v0", "Habitat-HM3D-v0"
HM3D_EPISODES = "data/datasets/pointnav/hm3d/v1/{split}/{split}.json.gz"
HM3D_SCENES = "data/scene_datasets"

ACTIONS = ("stop", "move_forward", "turn_left", "turn_right")
MAX_STEPS = 500
TASKS = {
    FLOOR_PLAN: Task("exploration", ACTIONS, MAX_STEPS, "the paper's setting, in 1000 generated homes"),
    HM3D: Task("exploration", ACTIONS, MAX_STEPS, "the paper; HM3D through habitat-sim"),
}


def make(
    id: str, split: str = "train", data_path: str | None = None, scenes_dir: str | None = None, **options: Any
) -> HabitatExploration:
    """Makes one Habitat environment.

    Args:
        id: `Habitat-FloorPlan-v0` or `Habitat-HM3D-v0`.
        split: train, val or test; for HM3D any split whose file exists.
        data_path: Path of the episodes, a file in habitat-lab's PointNav format, with {split} in place of the split,
            for HM3D or for your own episodes in the generated homes.
        scenes_dir: Path of the scenes.
        **options: Options of `HabitatExploration`.

    Raises:
        SuiteNotInstalledError: HM3D without habitat-sim; the message says what to install and where to put the data.
    """
    from e3b_gym.envs.habitat.environment import HabitatExploration

    make_source = _floor_plan if id == FLOOR_PLAN else _hm3d
    source = make_source(split, data_path, scenes_dir)
    return HabitatExploration(source, split=split, **options)


def _floor_plan(split: str, data_path: str | None, scenes_dir: str | None) -> Any:
    from e3b_gym.envs.habitat import dataset, simulator
    from e3b_gym.envs.habitat.config import Source
    from e3b_gym.envs.habitat.homes import SPLITS

    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}; choose from {', '.join(SPLITS)}")
    if data_path is None:
        dataset.write_split(split)
        data_path = dataset.data_path()
    return Source(simulator.NAME, str(data_path), str(scenes_dir or dataset.SCENES_DIR))


def _hm3d(split: str, data_path: str | None, scenes_dir: str | None) -> Any:
    from e3b_gym.envs.habitat.config import Source
    from e3b_gym.envs.habitat.lab import has_habitat_sim

    data_path, scenes_dir = str(data_path or HM3D_EPISODES), str(scenes_dir or HM3D_SCENES)
    if not has_habitat_sim():
        raise SuiteNotInstalledError(
            f"{HM3D} needs habitat-sim, which cannot be installed with pip, and data. "
            "1. In a conda environment with Python 3.11 (the stable channel, aihabitat, has builds for 3.9 only): "
            "conda install habitat-sim withbullet headless -c conda-forge -c aihabitat-nightly. "
            f"2. The scenes, into {scenes_dir}/hm3d: request access at https://aihabitat.org/datasets/hm3d, then run "
            "python -m habitat_sim.utils.datasets_download --username ID --password SECRET --uids hm3d_train_v0.2 "
            "hm3d_val_v0.2 --data-path data. "
            "3. The episodes: https://dl.fbaipublicfiles.com/habitat/data/datasets/pointnav/hm3d/v1/"
            f"pointnav_hm3d_v1.zip, unpacked so that {data_path.format(split=split)} exists. "
            f"{FLOOR_PLAN} needs none of this."
        )
    return Source("Sim-v0", data_path, scenes_dir)
