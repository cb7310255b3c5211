"""What an agent brings to `make train`, `make evaluate` and `make watch`: a trainee and a player."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from agents.impala.training import Update
from e3b_gym.online import OnlineExplorer
from e3b_gym.unroll import Tree


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
