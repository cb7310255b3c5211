"""Playing what a run has learned: the worlds it is shown in, and who acts."""

from __future__ import annotations

from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from agents.checkpoint import Checkpoint, CheckpointStore
from agents.impala.config import Config
from agents.impala.networks import networks_for
from e3b_gym.online import OnlineExplorer
from e3b_gym.unroll import Tree
from experiments.ppo_config import PPOConfig
from experiments.random_agent import RandomConfig, RandomPlayer
from experiments.runs import RunFolder
from experiments.settings import Settings

AnyConfig = Config | PPOConfig | RandomConfig
CHECKPOINTS = ("latest", "best")
# Restarts of an actor whose worlds evaluation keeps clear of; no run comes near.
_RESTARTS = 1000
_EVALUATION = 0x0E3B_E7A1  # makes evaluation's stream of seeds another one than training's


class Player(Protocol):
    """Acts in a batch of environments.

    Attributes:
        frames: that it had learned from.
        logits: [N, A], of its last actions; None if it has no policy.
    """

    @property
    def frames(self) -> int: ...
    @property
    def logits(self) -> Tensor | None: ...

    def act(self, obs: Tree, starts: NDArray[np.bool_]) -> NDArray[Any]:
        """Actions [N] for obs, tree of [N, ...]; `starts` [N] marks those that open an episode."""

    def bonus_explorer(self) -> OnlineExplorer:
        """The learned bonus for one environment."""


def world_options(config: AnyConfig) -> dict[str, Any]:
    """The options that the run's environments are made with."""
    if isinstance(config, RandomConfig):
        return dict(config.env_options)
    if isinstance(config, Config):
        return {**networks_for(config).env_options, **config.env_options}
    from experiments.sb3_agents import sb3_networks

    return {**sb3_networks(config).env_options, **config.env_options}


def load_player(
    folder: RunFolder | None,
    settings: Settings,
    which: str,
    spaces: tuple[gym.Space[Any], gym.Space[Any]],
    *,
    greedy: bool = False,
    seed: int = 0,
) -> Player:
    """The player of a run's checkpoint, "latest" or "best"; a random agent has none, and needs no folder."""
    if which not in CHECKPOINTS:
        raise ValueError(f"CHECKPOINT is latest or best; got {which!r}")
    if isinstance(settings.config, RandomConfig):
        if greedy:
            raise ValueError(f"GREEDY=1 takes the most probable action, but {settings.config.method} has no policy")
        return RandomPlayer(settings.config.method, spaces, seed)
    if folder is None:
        raise ValueError(f"{settings.config.method} plays from a checkpoint, so it needs the folder of a run")
    if isinstance(settings.config, Config):
        from experiments.impala_agent import ImpalaPlayer

        return ImpalaPlayer(settings.config, load_checkpoint(folder, "IMPALA", which), spaces, greedy, seed)
    from experiments.sb3_agents import ALGORITHMS, SB3Player

    checkpoint = load_checkpoint(folder, ALGORITHMS[settings.agent].__name__, which)
    return SB3Player(settings.agent, settings.config, checkpoint, spaces, greedy, seed)


def load_checkpoint(folder: RunFolder, agent: str, which: str) -> Checkpoint:
    """The latest or the best checkpoint of a run."""
    store = CheckpointStore(folder.checkpoints, agent)
    return store.load_best() if which == "best" else store.load_latest()


def training_seeds(config: AnyConfig) -> NDArray[np.int64]:
    """[K, 2]: first and last seed of every range of worlds that training can have used."""
    if isinstance(config, RandomConfig):
        return np.empty((0, 2), dtype=np.int64)
    actors = config.actors if isinstance(config, Config) else 1
    starts = [
        np.random.SeedSequence([config.seed, actor, restart]).generate_state(1)[0]
        for actor in range(actors)
        for restart in range(_RESTARTS)
    ]
    first = np.array(starts, dtype=np.int64)
    return np.stack([first, first + config.n_envs - 1], axis=1)


def fresh_seeds(config: AnyConfig, count: int, seed: int) -> list[int]:
    """`count` different seeds of worlds that training never used."""
    used = training_seeds(config)
    stream = np.random.default_rng([_EVALUATION, seed])
    seeds: list[int] = []
    while len(seeds) < count:
        candidate = int(stream.integers(2**31))
        if candidate not in seeds and not bool(((used[:, 0] <= candidate) & (candidate <= used[:, 1])).any()):
            seeds.append(candidate)
    return seeds
