"""What every reward wrapper does, whatever its framework: score each step, mix the reward, record, train.

    reset(obs) -> step(action, obs, reward, done, ...) -> step -> ... -> train() -> step -> ...

A step is an unroll of length 1 (`e3b_gym.unroll`). The engine keeps the features of the last observation, so each
observation is embedded once while acting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from e3b_gym.bonuses import Bonus, Memory
from e3b_gym.buffer import Recorder
from e3b_gym.encoder_training import EncoderTrainer, TrainerConfig
from e3b_gym.errors import NonFiniteError
from e3b_gym.reward import RewardMixer
from e3b_gym.unroll import Tree


@dataclass(frozen=True)
class Paid:
    """What a step is worth, per environment.

    Attributes:
        total: float32 [N], the mixed reward, for the agent.
        intrinsic: float32 [N], the bonus's part of it, beta * b / sigma.
        extrinsic: float32 [N], the environment's own reward.
        bonus: float32 [N], b itself.
        episodes: of the environments that ended an episode, its sums of intrinsic and of extrinsic.
    """

    total: NDArray[np.float32]
    intrinsic: NDArray[np.float32]
    extrinsic: NDArray[np.float32]
    bonus: NDArray[np.float32]
    episodes: dict[int, tuple[float, float]]


class Explorer:
    """A bonus at work on `num_envs` environments that step together.

    Args:
        bonus: the bonus; its memory lives here.
        mixer: how the bonus enters the reward.
        num_envs: how many environments.
        record_steps: how many of the latest steps are kept for `train`.
        trainer: settings of the encoder's optimiser.
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
        self.bonus = bonus
        self.mixer = mixer
        self.num_envs = num_envs
        self.trainer = EncoderTrainer(bonus, trainer)
        bonus.eval()  # dropout would make a known state look new; the trainer switches to training mode and back
        self.record = Recorder(record_steps, num_envs)
        self._training = True
        self._memory: Memory | None = None
        self._saved_memory: dict[str, Any] | None = None  # loaded, and given to the memory when that is made
        self._features: Any = None
        self._paid: deque[Paid] = deque(maxlen=record_steps)  # since the last training, for curves
        self._sums = np.zeros((2, num_envs))  # of the running episodes: intrinsic, extrinsic

    @property
    def training(self) -> bool:
        """Whether the running scale learns, and steps are kept for `train`."""
        return self._training

    @training.setter
    def training(self, value: bool) -> None:
        self._training = value
        self.record.clear()  # a record has no gaps

    @property
    def memory(self) -> Memory:
        """Made when first needed: a policy encoder has no size before the policy is bound."""
        if self._memory is None:
            self._memory = self.bonus.new_memory(self.num_envs)
            if self._saved_memory is not None:
                self._memory.load_state_dict(self._saved_memory)
                self._saved_memory = None
        return self._memory

    def record_up_to(self, steps: int) -> None:
        """Keeps the latest `steps` steps for `train` from now on."""
        self.record = self.record.resized(steps)
        self._paid = deque(maxlen=steps)

    def reset(self, obs: Tree) -> None:
        """All environments start an episode at `obs` (tree of numpy arrays [N, ...])."""
        self.record.start(obs)
        self._features = None
        self._sums[:] = 0.0

    def step(
        self,
        action: NDArray[Any],
        obs: Tree,
        reward: NDArray[Any],
        done: NDArray[np.bool_],
        terminals: Mapping[int, Tree],
        *,
        restarted: NDArray[np.bool_] | None = None,
        policy_logits: Tensor | None = None,
    ) -> Paid:
        """Scores one step of every environment.

        Args:
            action: [N, ...], what was done; must not be written to afterwards.
            obs: tree of [N, ...]: where the environments are now; of the next episode where `done`.
            reward: [N], the environment's own.
            done: [N], the step ended an episode.
            terminals: by environment, the last observation of the episodes that ended, where it is known.
            restarted: [N], this was no step but a reset (Gymnasium's NEXT_STEP autoreset): no bonus, and `obs` opens
                an episode.
            policy_logits: [N, A], what the acting policy said; only AGAC needs it.
        """
        if not self.record.started:
            raise ValueError("the environments were stepped before the first reset(); call reset() first")
        extrinsic = np.array(reward, dtype=np.float32)
        if not np.isfinite(extrinsic).all():
            bad = np.flatnonzero(~np.isfinite(extrinsic)).tolist()
            raise NonFiniteError(f"the reward of environment {bad} is NaN or infinite; fix the environment")
        unroll = self.record.add(action, obs, done, terminals, restarted=restarted, policy_logits=policy_logits)
        with torch.no_grad():
            self._features = self.bonus.embed(unroll, self._features)
            bonus = self.bonus.score(self._features, unroll, self.memory)[0].float().cpu()  # [N]
        if self._training:
            # An arrival that nobody saw says nothing about the scale of the bonus.
            self.mixer.update(bonus if not done.any() and restarted is None else bonus[unroll.valid[0]])
        else:
            self.record.clear()
        return self._pay(extrinsic, bonus, done)

    def _pay(self, extrinsic: NDArray[np.float32], bonus: Tensor, done: NDArray[np.bool_]) -> Paid:
        total = self.mixer(torch.from_numpy(extrinsic), bonus).numpy()
        intrinsic = self.mixer.intrinsic(bonus).numpy()
        self._sums[0] += intrinsic
        self._sums[1] += extrinsic
        episodes = {}
        for env in np.flatnonzero(done).tolist():
            episodes[env] = (float(self._sums[0, env]), float(self._sums[1, env]))
            self._sums[:, env] = 0.0
        paid = Paid(total, intrinsic, extrinsic, bonus.numpy(), episodes)
        self._paid.append(paid)
        return paid

    def train(self, **settings: Any) -> dict[str, float]:
        """Trains the encoder on the steps recorded since the last call; returns losses, diagnostics and statistics.

        Args:
            **settings: of `TrainerConfig`, to change from now on.
        """
        self.trainer.configure(**settings)
        stats = self._statistics()
        self._paid.clear()
        if len(self.record):
            stats |= self.trainer.train(self.record.unroll())
            self.record.clear()
            self._features = None  # the weights have changed
        return stats

    def _statistics(self) -> dict[str, float]:
        """Of the bonus since the last training."""
        stats = {"sigma": self.mixer.sigma}
        if self._paid:
            bonus = np.concatenate([paid.bonus for paid in self._paid], dtype=np.float64)
            inner = sum(float(np.abs(paid.intrinsic).sum()) for paid in self._paid)
            outer = self.mixer.extrinsic * sum(float(np.abs(paid.extrinsic).sum()) for paid in self._paid)
            share = inner / (inner + outer) if inner + outer else 0.0
            stats |= {"bonus_mean": float(bonus.mean()), "bonus_std": float(bonus.std()), "reward_share": share}
        return stats

    def state_dict(self) -> dict[str, Any]:
        return {
            "num_envs": self.num_envs,
            "bonus": self.bonus.state_dict(),
            "mixer": self.mixer.state_dict(),
            "norm": self.mixer.norm,
            "memory": self._saved_memory if self._memory is None else self._memory.state_dict(),
            "trainer": self.trainer.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over what was learned. The memory only where the number of environments is the same."""
        self.bonus.load_state_dict(state["bonus"])
        self.mixer.load_state_dict(state["mixer"])
        self.mixer.norm = state["norm"]
        self.trainer.load_state_dict(state["trainer"])
        self._memory = None
        self._saved_memory = state["memory"] if state["num_envs"] == self.num_envs else None
        self._features = None

    def __getstate__(self) -> dict[str, Any]:
        """Without the experience: an unpickled engine has no environments, so it begins with `reset`."""
        fresh = {"record": Recorder(self.record.capacity, self.num_envs), "_features": None}
        return {**self.__dict__, **fresh, "_paid": deque(maxlen=self.record.capacity)}
