"""Players of runs, and the seeds on which they are evaluated."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from agents.protocols import Player
from agents.registry import find_agent
from agents.run_config import RunConfig
from experiments.runs import RunFolder
from experiments.settings import Settings

CHECKPOINTS = ("latest", "best")
# Number of restarts of an actor whose seeds evaluation avoids; no run has that many.
_RESTARTS = 1000
_EVALUATION = 0x0E3B_E7A1  # separates the stream of evaluation seeds from that of training


def load_player(
    folder: RunFolder | None,
    settings: Settings,
    which: str,
    spaces: tuple[gym.Space[Any], gym.Space[Any]],
    *,
    greedy: bool = False,
    seed: int = 0,
) -> Player:
    """Returns the player of the "latest" or "best" checkpoint of a run; a random agent needs no folder."""
    if which not in CHECKPOINTS:
        raise ValueError(f"CHECKPOINT must be latest or best; got {which!r}")
    agent, checkpoints = find_agent(settings.agent), None if folder is None else folder.checkpoints
    if checkpoints is None and agent.trainer is not None:
        raise ValueError(f"{settings.agent} plays from a checkpoint, so it needs the folder of a run")
    return agent.make_player(settings.config, checkpoints, which, spaces, greedy, seed)


def training_seeds(config: RunConfig) -> NDArray[np.int64]:
    """Returns [K, 2]: first and last seed of every range that training may have used."""
    groups, n_envs = config.env_groups
    starts = [config.env_seed(group, restart) for group in range(groups) for restart in range(_RESTARTS)]
    first = np.array(starts, dtype=np.int64)
    return np.stack([first, first + n_envs - 1], axis=1)


def fresh_seeds(config: RunConfig, count: int, seed: int) -> list[int]:
    """Returns `count` different seeds that training did not use."""
    used = training_seeds(config)
    stream = np.random.default_rng([_EVALUATION, seed])
    seeds: list[int] = []
    while len(seeds) < count:
        candidate = int(stream.integers(2**31))
        if candidate not in seeds and not bool(((used[:, 0] <= candidate) & (candidate <= used[:, 1])).any()):
            seeds.append(candidate)
    return seeds
