"""Playing what a run has learned: the worlds it is shown in, and who acts."""

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
# Restarts of an actor whose worlds evaluation keeps clear of; no run comes near.
_RESTARTS = 1000
_EVALUATION = 0x0E3B_E7A1  # makes evaluation's stream of seeds another one than training's


def load_player(
    folder: RunFolder | None,
    settings: Settings,
    which: str,
    spaces: tuple[gym.Space[Any], gym.Space[Any]],
    *,
    greedy: bool = False,
    seed: int = 0,
) -> Player:
    """The player of a run's checkpoint, "latest" or "best"; an agent that learns nothing needs no folder."""
    if which not in CHECKPOINTS:
        raise ValueError(f"CHECKPOINT is latest or best; got {which!r}")
    agent, checkpoints = find_agent(settings.agent), None if folder is None else folder.checkpoints
    if checkpoints is None and agent.trainer is not None:
        raise ValueError(f"{settings.agent} plays from a checkpoint, so it needs the folder of a run")
    return agent.make_player(settings.config, checkpoints, which, spaces, greedy, seed)


def training_seeds(config: RunConfig) -> NDArray[np.int64]:
    """[K, 2]: first and last seed of every range of worlds that training can have used."""
    groups, n_envs = config.env_groups
    starts = [
        np.random.SeedSequence([config.seed, group, restart]).generate_state(1)[0]
        for group in range(groups)
        for restart in range(_RESTARTS)
    ]
    first = np.array(starts, dtype=np.int64)
    return np.stack([first, first + n_envs - 1], axis=1)


def fresh_seeds(config: RunConfig, count: int, seed: int) -> list[int]:
    """`count` different seeds of worlds that training never used."""
    used = training_seeds(config)
    stream = np.random.default_rng([_EVALUATION, seed])
    seeds: list[int] = []
    while len(seeds) < count:
        candidate = int(stream.integers(2**31))
        if candidate not in seeds and not bool(((used[:, 0] <= candidate) & (candidate <= used[:, 1])).any()):
            seeds.append(candidate)
    return seeds
