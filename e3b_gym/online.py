"""OnlineExplorer: an exploration bonus for environments that step together, one step at a time.

    reset(obs) -> step(action, obs, reward, done, ...) -> step -> ... -> train() -> step -> ...

A step is an unroll of length 1 (`e3b_gym.unroll`). `Recorder` keeps the latest steps in a ring; `train` trains the
encoder on them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from e3b_gym.bonuses import Bonus
from e3b_gym.buffer import Rows, UnrollBuffer, require_finite_step
from e3b_gym.encoder_training import TrainerConfig, train_on
from e3b_gym.explorer import Explorer
from e3b_gym.reward import RewardMixer, StepRewards, bonus_statistics
from e3b_gym.unroll import Tree, Unroll, tree_leaves, tree_map


class Recorder:
    """Keeps up to `capacity` consecutive steps of `num_envs` environments.

    Args:
        capacity: how many of the latest steps are kept; older ones are dropped.
        num_envs: how many environments step together.
    """

    def __init__(self, capacity: int, num_envs: int) -> None:
        if capacity < 1:
            raise ValueError(f"at least 1 step must be recorded; got {capacity}")
        self.capacity = capacity
        self.num_envs = num_envs
        self._present: Tree = None  # until the first step, when the buffer is made
        self._buffer: UnrollBuffer | None = None
        self._row = 0  # of the present observation
        self._count = 0  # of recorded steps, which end at `_row`
        self._with_logits = 0  # how many of the latest steps have the policy's logits
        self._starts = np.ones(num_envs, dtype=np.bool_)  # the present observation opens an episode
        self._step_starts = np.ones((capacity + 1, num_envs), dtype=np.bool_)

    def __len__(self) -> int:
        return self._count

    @property
    def full(self) -> bool:
        return self._count == self.capacity

    @property
    def started(self) -> bool:
        """Whether there is a present observation."""
        return self._present is not None or self._buffer is not None

    def start(self, obs: Tree) -> None:
        """All environments were reset to `obs` (tree of arrays [N, ...]), wherever they were before."""
        if self._buffer is None:
            self._present = tree_map(np.array, obs)
        else:
            if self._count:
                # The last step's arrival is overwritten here, so it becomes an end whose observation is not known.
                self._buffer.done[self._row - 1] = True
            self._buffer.write_obs(self._row, obs)
        self._starts = np.ones(self.num_envs, dtype=np.bool_)

    def add(
        self,
        action: NDArray[Any],
        obs: Tree,
        done: NDArray[np.bool_],
        last_observations: Mapping[int, Tree],
        *,
        restarted: NDArray[np.bool_] | None = None,
        policy_logits: Tensor | None = None,
    ) -> Unroll:
        """Records a step and returns it as an unroll of length 1. Arguments as in `OnlineExplorer.step`."""
        ended, starts = np.array(done, dtype=np.bool_), self._starts
        if restarted is not None:
            # A reset is written as a step without a known end: it gets no bonus and no dynamics pair.
            ended, starts = ended | restarted, starts & ~restarted
        buffer, row = self._made_for(action), self._row
        buffer.write_step(row, action, ended, last_observations)
        self._keep_logits(buffer, row, policy_logits)
        self._step_starts[row] = starts
        self._starts = ended
        self._row = (row + 1) % (self.capacity + 1)
        self._count = min(self._count + 1, self.capacity)
        buffer.write_obs(self._row, obs)
        return self._latest(1)

    def _made_for(self, action: NDArray[Any]) -> UnrollBuffer:
        if self._buffer is None:
            self._buffer = UnrollBuffer.like(self._present, action, self.capacity + 1)
            self._buffer.write_obs(0, self._present)
            self._present = None
        return self._buffer

    def _keep_logits(self, buffer: UnrollBuffer, row: int, logits: Tensor | None) -> None:
        self._with_logits = 0 if logits is None else self._with_logits + 1
        if logits is not None:
            if buffer.logits is None:
                buffer.logits = np.zeros((self.capacity + 1, *logits.shape), np.float32)
            buffer.logits[row] = logits.numpy()

    def unroll(self) -> Unroll:
        """The recorded steps, oldest first."""
        return self._latest(self._count)

    def _latest(self, steps: int) -> Unroll:
        if self._buffer is None or steps == 0:
            raise ValueError("nothing is recorded yet; step the environments first")
        first, last = self._row - steps, self._row
        # Rows that wrap around the end of the ring are put in order by a copy. Negative rows count from the ring's end.
        turned = first < 0
        step_rows: Rows = [*range(first, last)] if turned else slice(first, last)
        obs_rows: Rows = [*range(first, last + 1)] if turned else slice(first, last + 1)
        return self._buffer.read(obs_rows, step_rows, self._step_starts[first], with_logits=self._with_logits >= steps)

    def clear(self) -> None:
        """Drops the steps and keeps the present observation."""
        self._count = self._with_logits = 0
        if self._buffer is not None:
            for leaf in tree_leaves(self._buffer.obs):
                leaf[0] = leaf[self._row]
        self._row = 0

    def resized(self, capacity: int) -> Recorder:
        """An empty recorder for `capacity` steps that continues from the present observation."""
        new = Recorder(capacity, self.num_envs)
        if self.started:
            buffer, row = self._buffer, self._row
            new.start(self._present if buffer is None else tree_map(lambda leaf: leaf[row], buffer.obs))
            new._starts = self._starts
        return new


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
                (`e3b_gym.buffer.EndingReader`).
            restarted: [N], this was a reset, not a step (Gymnasium's NEXT_STEP autoreset): no bonus, and `obs` opens
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
            **settings: fields of `TrainerConfig` that change from now on.
        """
        self.configure(**settings)
        stats = bonus_statistics(self._recent, self.mixer)
        self._recent.clear()
        if len(self.record):
            unroll = self.record.unroll()
            stats |= train_on(unroll, self, self.trainer, self._order)
            self.record.clear()
            self._features = None  # the weights have changed
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
