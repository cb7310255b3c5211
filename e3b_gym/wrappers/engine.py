"""What every reward wrapper does, whatever its framework: score each step, mix the reward, record, train.

    reset(obs) -> step(action, obs, reward, done, ...) -> step -> ... -> train() -> step -> ...

A step is an unroll of length 1 (`e3b_gym.unroll`). The engine remembers the last observation and its features, so each
observation is embedded once while acting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from e3b_gym.bonuses import Bonus, Memory
from e3b_gym.reward import RewardMixer
from e3b_gym.unroll import Tree, Unroll, tree_map
from e3b_gym.wrappers.training import EncoderTrainer, TrainerConfig


@dataclass(frozen=True)
class Paid:
    """What a step is worth, per environment, float32 [N].

    Attributes:
        total: the mixed reward, for the agent.
        intrinsic: the bonus's part of it, beta * b / sigma.
        bonus: b itself.
    """

    total: NDArray[np.float32]
    intrinsic: NDArray[np.float32]
    bonus: NDArray[np.float32]


@dataclass
class Tally:
    """Sums over the steps since the encoder was last trained, for curves."""

    steps: int = 0
    bonus: float = 0.0
    bonus_squared: float = 0.0
    intrinsic: float = 0.0
    extrinsic: float = 0.0

    def add(self, paid: Paid, extrinsic: NDArray[Any]) -> None:
        self.steps += len(paid.bonus)
        self.bonus += float(paid.bonus.sum())
        self.bonus_squared += float(np.square(paid.bonus, dtype=np.float64).sum())
        self.intrinsic += float(np.abs(paid.intrinsic).sum())
        self.extrinsic += float(np.abs(extrinsic).sum())

    def summary(self) -> dict[str, float]:
        mean = self.bonus / max(self.steps, 1)
        variance = max(self.bonus_squared / max(self.steps, 1) - mean * mean, 0.0)
        total = self.intrinsic + self.extrinsic
        return {
            "bonus_mean": mean,
            "bonus_std": variance**0.5,
            "reward_share": self.intrinsic / total if total else 0.0,
        }


class BonusEngine:
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
        self.training = True
        self.trainer = EncoderTrainer(bonus, trainer)
        self.tally = Tally()
        self._memory: Memory | None = None
        self._record: deque[Unroll] = deque(maxlen=record_steps)
        self._obs: Tree = None
        self._starts = torch.ones(num_envs, dtype=torch.bool)
        self._features: Any = None

    @property
    def memory(self) -> Memory:
        """Made when first needed: a policy encoder has no size before the policy is bound."""
        if self._memory is None:
            self._memory = self.bonus.new_memory(self.num_envs)
        return self._memory

    def record_up_to(self, steps: int) -> None:
        """Keeps the latest `steps` steps for `train` from now on."""
        if steps < 1:
            raise ValueError(f"at least 1 step must be recorded; got {steps}")
        self._record = deque(self._record, maxlen=steps)

    def reset(self, obs: Tree) -> None:
        """All environments start an episode at `obs` (tree of numpy arrays [N, ...])."""
        self._obs = as_tensors(obs)
        self._starts = torch.ones(self.num_envs, dtype=torch.bool)
        self._features = None

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
            action: [N, ...], what was done.
            obs: tree of [N, ...]: where the environments are now; of the next episode where `done`.
            reward: [N], the environment's own.
            done: [N], the step ended an episode.
            terminals: by environment, the last observation of the episodes that ended, where it is known.
            restarted: [N], this was no step but a reset (Gymnasium's NEXT_STEP autoreset): no bonus, and `obs` opens
                an episode.
            policy_logits: [N, A], what the acting policy said; only AGAC needs it.
        """
        if self._obs is None:
            raise ValueError("the environments were stepped before the first reset(); call reset() first")
        unroll = self._unroll(action, as_tensors(obs), done, terminals, restarted, policy_logits)
        with torch.no_grad():
            self._features = self.bonus.embed(unroll, self._features)
            bonus = self.bonus.score(self._features, unroll, self.memory)[0].cpu()  # [N]
        self._obs = tree_map(lambda leaf: leaf[1], unroll.obs)
        self._starts = unroll.done[0]
        if self.training:
            self.mixer.update(bonus)
            self._record.append(unroll)
        total = self.mixer(torch.as_tensor(np.asarray(reward), dtype=torch.float32), bonus)
        paid = Paid(total.numpy(), self.mixer.intrinsic(bonus).numpy(), bonus.numpy())
        self.tally.add(paid, self.mixer.extrinsic * reward)
        return paid

    def _unroll(
        self,
        action: NDArray[Any],
        obs: Tree,
        done: NDArray[np.bool_],
        terminals: Mapping[int, Tree],
        restarted: NDArray[np.bool_] | None,
        policy_logits: Tensor | None,
    ) -> Unroll:
        ended, starts = torch.as_tensor(done, dtype=torch.bool), self._starts
        if restarted is not None and restarted.any():
            # A reset is written as a step without a known end: it pays nothing and pairs nothing.
            again = torch.as_tensor(restarted, dtype=torch.bool)
            ended, starts = ended | again, starts & ~again
        known = torch.zeros_like(ended)
        known[sorted(terminals)] = True
        rows = [terminals[env] for env in sorted(terminals)]
        last = as_tensors(tree_map(lambda *leaves: np.stack(leaves), *rows)) if rows else None
        return Unroll(
            obs=tree_map(lambda before, after: torch.stack([before, after]), self._obs, obs),  # [2, N, ...]
            action=torch.as_tensor(np.array(action))[None],
            done=ended[None],
            starts=starts,
            terminal_obs=last,
            terminal_known=known[None],
            policy_logits=None if policy_logits is None else policy_logits[None],
        )

    def train(self) -> dict[str, float]:
        """Trains the encoder on the steps recorded since the last call; returns losses, diagnostics and the tally."""
        stats = self.tally.summary() | {"sigma": self.mixer.sigma}
        self.tally = Tally()
        if self._record:
            unroll = join(list(self._record))
            self._record.clear()
            stats |= self.trainer.train(unroll)
            self._features = None  # the weights have changed
        return stats

    def state_dict(self) -> dict[str, Any]:
        return {
            "num_envs": self.num_envs,
            "bonus": self.bonus.state_dict(),
            "mixer": self.mixer.state_dict(),
            "memory": None if self._memory is None else self._memory.state_dict(),
            "trainer": self.trainer.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.bonus.load_state_dict(state["bonus"])
        self.mixer.load_state_dict(state["mixer"])
        self.trainer.load_state_dict(state["trainer"])
        if state["memory"] is not None and state["num_envs"] == self.num_envs:
            self.memory.load_state_dict(state["memory"])
        self._features = None


def join(steps: Sequence[Unroll]) -> Unroll:
    """Consecutive unrolls of length 1 as one unroll."""
    terminals = [step.terminal_obs for step in steps if step.terminal_obs is not None]
    logits = [step.policy_logits for step in steps if step.policy_logits is not None]
    return Unroll(
        obs=tree_map(
            lambda last, *leaves: torch.cat([*(leaf[:1] for leaf in leaves), last[1:]]),
            steps[-1].obs,
            *(step.obs for step in steps),
        ),
        action=torch.cat([step.action for step in steps]),
        done=torch.cat([step.done for step in steps]),
        starts=steps[0].starts,
        terminal_obs=tree_map(lambda *leaves: torch.cat(leaves), *terminals) if terminals else None,
        terminal_known=torch.cat([step.known for step in steps]),
        policy_logits=torch.cat(logits) if len(logits) == len(steps) else None,
    )


def as_tensors(obs: Tree) -> Tree:
    """A tree of numpy arrays as tensors that nobody else writes to. NaN in an observation is an error."""
    return _as_tensors(obs, "observation")


def _as_tensors(tree: Tree, path: str) -> Tree:
    if isinstance(tree, dict):
        return {key: _as_tensors(value, f"{path}[{key!r}]") for key, value in tree.items()}
    if isinstance(tree, tuple):
        return tuple(_as_tensors(value, f"{path}[{i}]") for i, value in enumerate(tree))
    array = np.array(tree)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        envs = np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(axis=1)).tolist()
        raise ValueError(f"{path} of environment {envs} has NaN or infinite values; fix the environment")
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)  # torch has few operations on wide unsigned integers
    return torch.from_numpy(array)
