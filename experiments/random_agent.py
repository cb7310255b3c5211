"""METHOD=random and METHOD=random-forward: agents that learn nothing, to stand beside those that do.

random          any action, each as often as the others
random-forward  80 % forward, else a turn: the second of the paper's two in Habitat
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from e3b_gym.building import build_explorer
from e3b_gym.config import BonusConfig
from e3b_gym.envs import check_options
from e3b_gym.online import OnlineExplorer
from e3b_gym.unroll import Tree

FORWARD = "random-forward"
# By method, the chances of the last actions of a space (in Habitat: forward, left, right); None: all are equal.
RANDOM_METHODS: dict[str, tuple[float, ...] | None] = {"random": None, FORWARD: (0.8, 0.1, 0.1)}
NOBODY = "no-learner"
"""What stands where the others have their AGENT."""


@dataclass(frozen=True)
class RandomConfig:
    """All that there is to know about a random agent."""

    env: str
    env_options: Mapping[str, Any] = field(default_factory=dict)
    method: str = "random"
    seed: int = 0
    steps: ClassVar[int] = 0
    threads: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_options(self.env_options)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for YAML."""
        return dataclasses.asdict(self)


class RandomPlayer:
    """Acts without looking; see `experiments.players.Player`.

    Args:
        method: a key of RANDOM_METHODS.
        spaces: observation and action space of one environment.
        seed: of the draws.
    """

    frames = 0
    logits = None

    def __init__(self, method: str, spaces: tuple[gym.Space[Any], gym.Space[Any]], seed: int) -> None:
        self._method, self._spaces = method, spaces
        self._actions = copy.deepcopy(spaces[1])  # the space draws from a generator, and that is the environment's
        self._actions.seed(seed)
        self._generator = np.random.default_rng(seed)

    def act(self, obs: Tree, starts: NDArray[np.bool_]) -> NDArray[Any]:
        """Actions [N], as many as there are `starts`."""
        actions = self._actions
        if not isinstance(actions, Discrete):
            return np.stack([actions.sample() for _ in starts])
        number = int(actions.n)
        chances = RANDOM_METHODS[self._method] or (1 / number,) * number
        first = int(actions.start) + number - len(chances)
        return first + self._generator.choice(len(chances), size=len(starts), p=chances)

    def bonus_explorer(self) -> OnlineExplorer:
        return build_explorer(BonusConfig.of("none"), None, *self._spaces, 1)
