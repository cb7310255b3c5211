"""OnlineExplorer: an exploration bonus for environments that step together, one step at a time.

    reset(obs) -> step(action, obs, reward, done, ...) -> step -> ... -> train() -> step -> ...

A step is an unroll of length 1 (`e3b_gym.unroll`). The latest steps are recorded; `train` trains the encoder on them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from e3b_gym.bonuses import Bonus
from e3b_gym.buffer import Recorder, require_finite_step
from e3b_gym.encoder_training import TrainerConfig, minibatches
from e3b_gym.explorer import Explorer
from e3b_gym.reward import RewardMixer
from e3b_gym.unroll import Tree, Unroll


@dataclass(frozen=True)
class StepRewards:
    """The rewards of a step, per environment."""

    total: NDArray[np.float32]
    """[N], the mixed reward, for the agent."""
    intrinsic: NDArray[np.float32]
    """[N], the bonus's part of it, beta * b / sigma."""
    extrinsic: NDArray[np.float32]
    """[N], the environment's own reward."""
    bonus: NDArray[np.float32]
    """[N], b itself."""
    episodes: dict[int, tuple[float, float]]
    """For the environments that ended an episode, its sums of intrinsic and of extrinsic."""


class OnlineExplorer(Explorer):
    """An explorer for environments that step together, one step at a time.

    Args:
        bonus: the bonus; its memory lives here.
        mixer: how the bonus enters the reward.
        num_envs: how many environments.
        record_steps: how many of the latest steps are kept for `train`.
        trainer: how the encoder is trained.
    """

    def __init__(
        self,
        bonus: Bonus,
        mixer: RewardMixer,
        num_envs: int,
        *,
        record_steps: int,
        trainer: TrainerConfig | None = None,
    ) -> None:
        self.trainer = trainer or TrainerConfig()
        super().__init__(
            bonus,
            mixer,
            num_envs,
            learning_rate=self.trainer.learning_rate,
            max_grad_norm=self.trainer.max_grad_norm,
        )
        self.record = Recorder(record_steps, num_envs)
        self._order = torch.Generator().manual_seed(self.trainer.seed)
        self._features: Any = None  # of the present observation, so that each is embedded once
        self._recent: deque[StepRewards] = deque(maxlen=record_steps)  # since the last training, for curves
        self._sums = np.zeros((2, num_envs))  # of the running episodes: intrinsic, extrinsic

    @property
    def training(self) -> bool:
        """Whether the running scale is updated and steps are kept for `train`."""
        return self._training

    @training.setter
    def training(self, value: bool) -> None:
        self._training = value
        self.record.clear()  # a record has no gaps

    def to(self, device: str | torch.device) -> Self:
        self._features = None
        return super().to(device)

    def record_up_to(self, steps: int) -> None:
        """Keeps the latest `steps` steps for `train` from now on."""
        self.record = self.record.resized(steps)
        self._recent = deque(maxlen=steps)

    def reset(self, obs: Tree) -> None:
        """All environments start an episode at `obs` (tree of numpy arrays [N, ...])."""
        require_finite_step(obs, None, {})
        self.record.start(obs)
        self._features = None
        self._sums[:] = 0.0

    def step(
        self,
        action: NDArray[Any],
        obs: Tree,
        reward: NDArray[Any],
        done: NDArray[np.bool_],
        last_observations: Mapping[int, Tree],
        *,
        restarted: NDArray[np.bool_] | None = None,
        policy_logits: Tensor | None = None,
    ) -> StepRewards:
        """Scores one step of every environment.

        Args:
            action: [N, ...].
            obs: tree of [N, ...]: where the environments are now; of the next episode where `done`.
            reward: [N], the environment's own.
            done: [N], the step ended an episode.
            last_observations: by environment, the last observation of the episodes that ended, where it is known
                (`e3b_gym.endings`).
            restarted: [N], this was no step but a reset (Gymnasium's NEXT_STEP autoreset): no bonus, and `obs` opens
                an episode.
            policy_logits: [N, A], of the acting policy; only AGAC needs them.
        """
        if not self.record.started:
            raise ValueError("the environments were stepped before the first reset(); call reset() first")
        extrinsic = np.array(reward, dtype=np.float32)
        require_finite_step(obs, extrinsic, last_observations)
        unroll = self.record.add(action, obs, done, last_observations, restarted=restarted, policy_logits=policy_logits)
        unroll = unroll.to(self.device)
        self._features = self.embed(unroll, self._features)
        bonus = self.score(self._features, unroll)[0].cpu()  # [N]
        if not self.training:
            self.record.clear()
        total, intrinsic = self.mix(torch.from_numpy(extrinsic), bonus)
        episodes = self._add_up(intrinsic.numpy(), extrinsic, done)
        rewards = StepRewards(total.numpy(), intrinsic.numpy(), extrinsic, bonus.numpy(), episodes)
        self._recent.append(rewards)
        return rewards

    def _add_up(
        self, intrinsic: NDArray[np.float32], extrinsic: NDArray[np.float32], done: NDArray[np.bool_]
    ) -> dict[int, tuple[float, float]]:
        """Sums over the running episodes; returns those of the ended ones."""
        self._sums[0] += intrinsic
        self._sums[1] += extrinsic
        ended = {env: (float(self._sums[0, env]), float(self._sums[1, env])) for env in np.flatnonzero(done).tolist()}
        self._sums[:, done] = 0.0
        return ended

    def configure(self, **changes: Any) -> None:
        """Changes settings of `TrainerConfig` between rollouts; Adam's moments stay."""
        if not changes:
            return
        self.trainer = replace(self.trainer, **changes)
        self.max_grad_norm = self.trainer.max_grad_norm
        if self.optimizer is not None:
            for group in self.optimizer.param_groups:
                group["lr"] = self.trainer.learning_rate

    def train(self, **settings: Any) -> dict[str, float]:
        """Trains the encoder on the steps recorded since the last call; returns losses, diagnostics and statistics.

        Args:
            **settings: of `TrainerConfig`, to change from now on.
        """
        self.configure(**settings)
        stats = self._statistics()
        self._recent.clear()
        if len(self.record):
            unroll = self.record.unroll()
            stats |= self._train_on(unroll) | self._diagnostics(unroll)
            self.record.clear()
            self._features = None  # the weights have changed
        return stats

    def _train_on(self, unroll: Unroll) -> dict[str, float]:
        """`epochs` passes in minibatches; returns the mean losses."""
        seen: list[dict[str, float]] = []
        with self.training_mode():
            for _ in range(self.trainer.epochs if self.optimizer is not None else 0):
                for part in minibatches(unroll, self.trainer, self._order):
                    batch = part.to(self.device)
                    seen.append(self.backward(self.embed(batch, graph=True), batch)[0])
                    self.update()
        names = seen[0] if seen else {}
        return {f"{name}_loss": sum(losses[name] for losses in seen) / len(seen) for name in names}

    @torch.no_grad()
    def _diagnostics(self, unroll: Unroll) -> dict[str, float]:
        """On one minibatch: these are for curves, and a whole rollout would cost a forward pass."""
        batch = next(minibatches(unroll, self.trainer, self._order)).to(self.device)
        return self.bonus.diagnostics(self.bonus.embed(batch), batch)

    def _statistics(self) -> dict[str, float]:
        """Of the bonus since the last training."""
        stats = {"sigma": self.mixer.sigma}
        if self._recent:
            bonus = np.concatenate([rewards.bonus for rewards in self._recent], dtype=np.float64)
            inner = sum(float(np.abs(rewards.intrinsic).sum()) for rewards in self._recent)
            outer = self.mixer.extrinsic * sum(float(np.abs(rewards.extrinsic).sum()) for rewards in self._recent)
            share = inner / (inner + outer) if inner + outer else 0.0
            stats |= {"bonus_mean": float(bonus.mean()), "bonus_std": float(bonus.std()), "reward_share": share}
        return stats

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"trainer": asdict(self.trainer), "order": self._order.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.configure(**state["trainer"])
        self._order.set_state(state["order"])
        self._features = None

    def __getstate__(self) -> dict[str, Any]:
        """Without the experience: an unpickled explorer has no environments, so it begins with `reset`."""
        fresh = {"record": Recorder(self.record.capacity, self.num_envs), "_features": None}
        return {**self.__dict__, **fresh, "_recent": deque(maxlen=self.record.capacity)}
