"""Episodes in the generated homes, as files in habitat-lab's PointNav format.

habitat-lab's dataset class (`PointNav-v1`) reads them. They are generated from seeds on first use and written to the
user's cache directory (E3B_CACHE, otherwise XDG_CACHE_HOME, otherwise ~/.cache; a temporary directory if that is not
writable): a few seconds for the 800 homes of train, less than one for the others. Episode n of a split is in its home
n modulo the number of homes, so the first 100 episodes of val are in 100 different homes. The format requires goals;
they are not used here.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import tempfile
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from e3b_gym.envs.habitat import dice, furniture, homes, materials, navigation, plan
from e3b_gym.envs.habitat.homes import SEED, SPLITS
from e3b_gym.files import atomic_write

EPISODES_PER_HOME = 5
AGENT_HEIGHT = 1.5
"""Height of habitat-lab's navigation agent, in metres."""
START_CLEARANCE = 0.25
"""Distance of a start from all obstacles in metres, so that no episode starts behind furniture; the agent's radius is
0.1."""
SCENES_DIR = "floorplan"


def data_path() -> str:
    """Returns the path of the files with {split} in place of the split, habitat-lab's option `data_path`."""
    return str(_directory() / "{split}" / "{split}.json.gz")


def write_split(split: str) -> Path:
    """Writes the file of a split unless it exists; safe in several processes at once."""
    path = Path(data_path().format(split=split))
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        content = gzip.compress(json.dumps({"episodes": _episodes(split)}).encode(), mtime=0)
        with atomic_write(path, shared=True) as temporary:
            temporary.write_bytes(content)
    return path


@lru_cache
def _directory() -> Path:
    """Returns a directory whose name depends on the code that generates homes, so that its files are never stale."""
    version = 0
    for module in (dice, plan, furniture, materials, homes, navigation):
        version = zlib.crc32(Path(str(module.__file__)).read_bytes(), version)
    version = zlib.crc32(Path(__file__).read_bytes(), version)
    try:
        cache = os.environ.get("E3B_CACHE") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        directory = Path(cache, "e3b_gym", f"floorplan-{version:08x}")
        directory.mkdir(parents=True, exist_ok=True)
        if os.access(directory, os.W_OK):
            return directory
    except (OSError, RuntimeError):  # RuntimeError: the user has no home folder
        pass
    return Path(tempfile.mkdtemp(prefix="e3b-floorplan-"))


def _episodes(split: str) -> list[dict[str, Any]]:
    numbers = SPLITS[split]
    by_home = {number: _episodes_in(number) for number in numbers}
    ordered = [by_home[number][n] for n in range(EPISODES_PER_HOME) for number in numbers]
    return [{"episode_id": str(index), **episode} for index, episode in enumerate(ordered)]


def _episodes_in(number: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng([SEED, number, 1])
    home = homes.home.__wrapped__(number)  # not cached: this would evict the homes in use
    finder = navigation.FloorPlanPathFinder(navigation.walkable_squares(home, START_CLEARANCE, AGENT_HEIGHT))
    episodes = []
    for _ in range(EPISODES_PER_HOME):
        start, goal = (finder.get_random_navigable_point(rng) for _ in range(2))
        angle = float(rng.uniform(0, math.tau))
        episodes.append(
            {
                "scene_id": f"home-{number:04d}",
                "start_position": [round(float(each), 4) for each in start],
                "start_rotation": [0.0, math.sin(angle / 2), 0.0, math.cos(angle / 2)],
                "goals": [{"position": [round(float(each), 4) for each in goal], "radius": None}],
                "info": {},
            }
        )
    return episodes
