"""The interface of an agent for `make train`, `evaluate` and `watch`: a trainee that reports updates, a player."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from e3b_gym.unroll import Tree

if TYPE_CHECKING:
    from e3b_gym.online import OnlineExplorer

Stats: TypeAlias = dict[str, float]


@dataclass(frozen=True)
class Episodes:
    """The episodes that ended in an unroll: the environment's own return, length, success (NaN where unknown)."""

    returns: NDArray[np.float32]
    lengths: NDArray[np.int64]
    successes: NDArray[np.float32]


@dataclass(frozen=True)
class Update:
    """The results of one rollout; with several learners, one of each.

    Attributes:
        frames: environment steps so far, in all parts of the run.
        stats: numbers by name for the curves, of each step of the optimiser; averages over the learners.
        episodes: that ended in it.
        reward, done: float32 and bool [T, N], of its steps; the environment's own reward. None where not recorded.
    """

    frames: int
    stats: list[Stats]
    episodes: Episodes
    reward: NDArray[np.float32] | None = None
    done: NDArray[np.bool_] | None = None


class Trainee(Protocol):
    """An agent in training, made as `trainer(config, keep, resume)`.

    `keep` is the number of checkpoints that stay; `resume` the folder of checkpoints to resume from, or None.
    """

    extra: dict[str, Any]
    """Plain data out of the checkpoint that it resumes from."""

    @property
    def frames(self) -> int: ...
    @property
    def seconds(self) -> Mapping[str, float]: ...
    def save_into(self, folder: Path) -> None: ...
    def train(self, observe: Callable[[Update], None], stop: Callable[[], bool]) -> None: ...
    def save(self, score: float | None, extra: dict[str, Any]) -> None: ...
    def close(self) -> None: ...


class Player(Protocol):
    """Acts in a batch of environments, made as `player(config, checkpoints, which, spaces, greedy, seed)`.

    `checkpoints` is the folder of a run's checkpoints, `which` "latest" or "best", `spaces` those of one environment.
    """

    @property
    def frames(self) -> int:
        """Environment steps that it had learned from."""

    @property
    def logits(self) -> Tensor | None:
        """[N, A], of its last actions; None if it has no policy."""

    def act(self, obs: Tree, starts: NDArray[np.bool_]) -> NDArray[Any]:
        """Actions [N] for obs, tree of [N, ...]; `starts` [N] marks those that open an episode."""

    def bonus_explorer(self, num_envs: int = 1) -> OnlineExplorer:
        """The learned bonus for `num_envs` environments."""
