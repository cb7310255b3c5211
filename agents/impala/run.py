"""AGENT=impala for the commands: the trainee, which trains and saves, and the player of its checkpoints."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from agents.checkpoint import SavingTrainee, load_checkpoint, loading
from agents.impala.config import Config
from agents.impala.model import IMPALA
from agents.impala.policy import Policy, act
from agents.networks import networks_for
from agents.protocols import Update
from e3b_gym.building import build_explorer
from e3b_gym.online import OnlineExplorer
from e3b_gym.unroll import Tree, tree_map


class ImpalaTrainee(SavingTrainee):
    """An IMPALA run in progress.

    Args:
        config: the run.
        keep: how many checkpoints stay.
        resume: the folder of checkpoints to resume from; None for a new run.
    """

    def __init__(self, config: Config, keep: int, resume: Path | None = None) -> None:
        super().__init__("IMPALA", keep)
        self.model = IMPALA.from_config(config)
        checkpoint = self.load_from(resume)
        if checkpoint is not None:
            with loading(checkpoint):
                self.extra = dict(checkpoint.state["extra"])
                self.model.load_state_dict(checkpoint.state)
                self.model.learner.explorer.make_memory()
        self.model.learner.explorer.make_memory()
        self.model.start(config.steps)

    @property
    def frames(self) -> int:
        return self.model.num_timesteps

    @property
    def seconds(self) -> dict[str, float]:
        return self.model.seconds

    def train(self, observe: Callable[[Update], None], stop: Callable[[], bool]) -> None:
        """Learns until all steps are done or `stop()` is True."""
        for update in self.model.updates(self.model.config.steps):
            observe(update)
            if stop():
                return

    def save(self, score: float | None, extra: dict[str, Any]) -> None:
        """A checkpoint, with `extra` plain data in it."""
        self.save_state({**self.model.state_dict(), "extra": extra}, self.frames, score)

    def close(self) -> None:
        self.model.close()


class ImpalaPlayer:
    """Plays what a checkpoint holds, in a batch of environments.

    Args:
        config: the run.
        checkpoints: the folder of what it saved.
        which: "latest" or "best".
        spaces: observation and action space of one environment.
        greedy: take the most probable action; else draw from the policy.
        seed: seed of the draws.
    """

    def __init__(
        self,
        config: Config,
        checkpoints: Path,
        which: str,
        spaces: tuple[gym.Space[Any], gym.Space[Any]],
        greedy: bool,
        seed: int,
    ) -> None:
        checkpoint = load_checkpoint(checkpoints, "IMPALA", which)
        self.frames, self._greedy = checkpoint.frames, greedy
        self._config, self._spaces, self._checkpoint = config, spaces, checkpoint
        self._policy = Policy(networks_for(config), *spaces, config.value_heads).eval()
        with loading(checkpoint):
            self._policy.load_state_dict(checkpoint.state["learner"]["policy"])
        self._policy.remember_rows()
        self._generator = torch.Generator().manual_seed(seed)
        self._state: tuple[Tensor, Tensor] | None = None
        self.logits = self.values = torch.empty(0)

    def act(self, obs: Tree, starts: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Actions [N] for obs, tree of [N, ...]; `starts` [N] marks those that open an episode."""
        state = self._policy.initial_state(len(starts)) if self._state is None else self._state
        actions, out = act(self._policy, obs, starts, state, None if self._greedy else self._generator)
        self._state, self.logits, self.values = out.state, out.logits[0], out.values[0]  # [N, A], [N, heads]
        return actions

    @torch.no_grad()
    def value_of(self, env: int, obs: Tree) -> NDArray[np.float64]:
        """[heads]: the values of an observation that environment `env` has just arrived in."""
        if self._state is None:
            raise ValueError("the player has not acted yet; call act first")
        rows = tree_map(lambda leaf: torch.as_tensor(np.asarray(leaf))[None, None], obs)
        h, c = (part[:, env : env + 1].contiguous() for part in self._state)
        return self._policy(rows, torch.zeros(1, 1, dtype=torch.bool), (h, c)).values[0, 0].double().numpy()  # type: ignore[no-any-return]

    def bonus_explorer(self, num_envs: int = 1) -> OnlineExplorer:
        """The learned bonus for `num_envs` environments, with the scale that training arrived at."""
        config = self._config
        bonus = dataclasses.replace(config.bonus, seed=config.seed).with_encoder(networks_for(config).phi)
        explorer = build_explorer(bonus, None, *self._spaces, num_envs)
        explorer.bonus.bind_policy(self._policy)
        with loading(self._checkpoint):
            explorer.load_learned(self._checkpoint.state["learner"]["explorer"])
        explorer.training = False
        return explorer


def initial_tables(config: Config) -> dict[str, dict[str, Tensor]]:
    """Embedding tables of policy and bonus before the first update, which the run's seed gives."""
    learner = IMPALA.from_config(config).learner
    return {
        file: {f"{name}.weight": part.weight for name, part in model.named_modules() if isinstance(part, nn.Embedding)}
        for file, model in (("policy", learner.policy), ("bonus", learner.explorer.bonus))
    }
