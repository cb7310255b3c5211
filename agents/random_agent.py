"""AGENT=random and AGENT=random-forward: agents that learn nothing, to compare with those that do.

random          every action with the same probability
random-forward  forward with probability 0.8, otherwise a turn: the second of the paper's two in Habitat
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from agents.run_config import RunConfig
from e3b_gym.building import build_explorer
from e3b_gym.config import BonusConfig
from e3b_gym.envs.registry import suite_of
from e3b_gym.online import OnlineExplorer
from e3b_gym.options import field_types
from e3b_gym.unroll import Tree

_FIELDS = ("env", "env_options", "seed")


@dataclass(frozen=True)
class RandomConfig(RunConfig):
    """A run of an agent that acts at random; it has an environment, its options, and a seed."""

    bonus: BonusConfig = field(default_factory=lambda: BonusConfig.of("none"))
    """No bonus."""

    has_networks: ClassVar[bool] = False
    name: ClassVar[str] = "random"
    """Name of the agent."""
    chances: ClassVar[tuple[float, ...] | None] = None
    """Probabilities of the last actions; None for equal ones of all."""

    @property
    def method(self) -> str:
        """The agent's name: there is no bonus to name."""
        return self.name

    def without_effect(self) -> dict[str, str]:
        reason = f"AGENT={self.name} learns nothing"
        return {name: reason for name in ("method", *field_types(type(self))) if name not in _FIELDS}

    def env_defaults(self) -> dict[str, Any]:
        suite = suite_of(self.env)
        return {} if suite is None else dict(suite.random_options)

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _FIELDS}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        return cls(**values)


@dataclass(frozen=True)
class RandomForwardConfig(RandomConfig):
    """Forward with probability 0.8, otherwise a turn to the left or to the right."""

    name: ClassVar[str] = "random-forward"
    chances: ClassVar[tuple[float, ...] | None] = (0.8, 0.1, 0.1)

    def __post_init__(self) -> None:
        super().__post_init__()
        suite = suite_of(self.env)
        if suite is None or not suite.ends_with_moves:
            raise ValueError(
                f"AGENT={self.name} walks forward and turns, and the last three actions of {self.env} are others; "
                "AGENT=random acts at random anywhere"
            )


class RandomPlayer:
    """Acts at random; see `agents.protocols.Player`.

    Args:
        config: the run.
        checkpoints, which: not used; there is nothing to load.
        spaces: observation and action space of one environment.
        greedy: refused, since there is no policy.
        seed: seed of the draws.
    """

    frames = 0
    logits = None

    def __init__(
        self,
        config: RandomConfig,
        checkpoints: Path | None,
        which: str,
        spaces: tuple[gym.Space[Any], gym.Space[Any]],
        greedy: bool,
        seed: int,
    ) -> None:
        if greedy:
            raise ValueError(f"GREEDY=1 takes the most probable action, but {config.name} has no policy")
        self._chances, self._spaces = config.chances, spaces
        self._actions = copy.deepcopy(spaces[1])  # the environment draws from its own
        self._actions.seed(seed)
        self._generator = np.random.default_rng(seed)

    def act(self, obs: Tree, starts: NDArray[np.bool_]) -> NDArray[Any]:
        """Actions [N], as many as there are `starts`."""
        actions = self._actions
        if not isinstance(actions, Discrete):
            return np.stack([actions.sample() for _ in starts])
        number = int(actions.n)
        chances = self._chances or (1 / number,) * number
        first = int(actions.start) + number - len(chances)
        return first + self._generator.choice(len(chances), size=len(starts), p=chances)

    def bonus_explorer(self, num_envs: int = 1) -> OnlineExplorer:
        return build_explorer(BonusConfig.of("none"), None, *self._spaces, num_envs)
