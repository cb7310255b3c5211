"""The reward that the agent optimises: the environment's reward plus the scaled bonus.

    r = clip( extrinsic * w(r_env) + beta * b / sigma ),    w(r) = r if r > 0 else penalties * r

sigma is a running standard deviation of the bonus. `std` is the correct one. `authors` is what the authors' code
computes: it divides sums over a [T, B] batch by T instead of T B, which at their B = 8 gives 20 to 34 times the correct
value; their beta = 1 was tuned for it. `none` does not scale the bonus.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from e3b_gym.errors import NonFiniteError
from e3b_gym.options import NotNegative, Positive, check

Normaliser: TypeAlias = Literal["std", "authors", "none"]
_AUTHORS_BATCH = 8  # environments in one of the authors' learner batches


def require_finite(name: str, values: Tensor | NDArray[Any] | float, remedy: str) -> None:
    """The gate for what the agent and the encoder learn from.

    Args:
        name: what the values are, such as "the bonus".
        values: of any shape.
        remedy: what to do if one is NaN or infinite.

    Raises:
        NonFiniteError: One is.
    """
    finite = torch.isfinite(values) if isinstance(values, Tensor) else np.isfinite(values)
    if not bool(finite.all()):
        raise NonFiniteError(f"{name} has NaN or infinite values; {remedy}")


class RunningMoments:
    """Count, mean and sum of squared deviations of a stream of batches, merged exactly (Chan et al. 1979)."""

    def __init__(self) -> None:
        self.count = self.mean = self.squares = 0.0

    def merge(self, count: float, mean: float, squares: float) -> None:
        total = self.count + count
        gap = mean - self.mean
        self.squares += squares + gap * gap * self.count * count / total
        self.mean += gap * count / total
        self.count = total

    @property
    def std(self) -> float:
        return math.sqrt(self.squares / self.count) if self.count else 0.0


class RewardMixer:
    """Combines the environment's reward and the bonus. `update` updates the running scale, a call applies it.

    Args:
        beta: weight of the bonus.
        normaliser: "std", "authors" or "none"; see the module.
        extrinsic: weight of the environment's reward; 0: reward-free.
        penalties: further weight of its negative rewards; 0 ignores them. A small penalty for useless actions teaches a
            beginner never to try them, before it has found what they are good for.
        clip: the total is clipped to [-clip, clip]; None: no clipping. The authors clip to 1.
        floor: sigma is at least this share of the mean of the bonus. A bonus that hardly varies (a count with a clock
            is 0.99 at every step) would otherwise be inflated by its small deviation.

    Examples:
        >>> import torch
        >>> from e3b_gym import RewardMixer
        >>> mixer = RewardMixer(beta=0.5, normaliser="none")
        >>> mixer(torch.tensor([0.0, 1.0]), torch.tensor([2.0, 2.0]))  # reward + 0.5 * bonus
        tensor([1., 2.])
    """

    def __init__(
        self,
        beta: float = 1.0,
        *,
        normaliser: Normaliser = "std",
        extrinsic: float = 1.0,
        penalties: float = 1.0,
        clip: float | None = None,
        floor: float = 0.1,
    ) -> None:
        self.beta: float = check("beta", beta, NotNegative)
        self.normaliser: str = check("normaliser", normaliser, Normaliser)
        self.extrinsic: float = check("extrinsic", extrinsic, NotNegative)
        self.penalties: float = check("penalties", penalties, NotNegative)
        self.clip: float | None = check("clip", clip, Positive | None)
        self.floor: float = check("floor", floor, NotNegative)
        self.norm = True  # False: the bonus is not divided by sigma, but sigma is still updated
        self._moments = RunningMoments()

    def update(self, bonus: Tensor) -> None:
        """Updates the running scale with a batch of bonuses."""
        if self.normaliser == "none" or bonus.numel() == 0:
            return
        values = bonus.detach().double()
        count = values.numel() / (_AUTHORS_BATCH if self.normaliser == "authors" else 1)
        mean = float(values.sum()) / count
        squares = float((values - mean).square().sum())
        require_finite("the bonus", squares, "check the observations and the encoder's loss")
        self._moments.merge(count, mean, squares)

    @property
    def sigma(self) -> float:
        """Divisor of the bonus; 1 before the first update."""
        if self.normaliser == "none" or not self.norm:
            return 1.0
        floor = self.floor * abs(self._moments.mean) if self.normaliser == "std" else 0.0
        return max(self._moments.std, floor) or 1.0

    def intrinsic(self, bonus: Tensor) -> Tensor:
        """Returns beta * bonus / sigma, in the shape of the bonus."""
        return bonus * (self.beta / self.sigma)

    def weigh(self, reward: Tensor) -> Tensor:
        """Returns the environment's part of the mixed reward, in the shape of its reward."""
        weighted = self.extrinsic * reward
        return weighted if self.penalties == 1 else torch.where(weighted < 0, self.penalties * weighted, weighted)

    def __call__(self, reward: Tensor, bonus: Tensor) -> Tensor:
        """Returns the total reward, in the shape of reward and bonus."""
        if reward.shape != bonus.shape:
            raise ValueError(
                f"reward and bonus must have the same shape; got {tuple(reward.shape)} and {tuple(bonus.shape)}"
            )
        for name, values in (("the reward", reward), ("the bonus", bonus)):
            require_finite(name, values, "fix its source, or they spread to the agent")
        return self.combine(reward, self.intrinsic(bonus))

    def combine(self, reward: Tensor, intrinsic: Tensor) -> Tensor:
        """The mixed reward from the environment's and the scaled bonus, without checking either."""
        total = self.weigh(reward) + intrinsic
        return total if self.clip is None else total.clamp(-self.clip, self.clip)

    def state_dict(self) -> dict[str, Any]:
        moments = self._moments
        return {
            "normaliser": self.normaliser,
            "norm": self.norm,
            "count": moments.count,
            "mean": moments.mean,
            "squares": moments.squares,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state["normaliser"] != self.normaliser:
            raise ValueError(
                f"the scale was saved with normaliser={state['normaliser']!r}, but this mixer has "
                f"normaliser={self.normaliser!r}; build it with the saved one"
            )
        self.norm = bool(state["norm"])
        moments = self._moments
        moments.count, moments.mean, moments.squares = (float(state[name]) for name in ("count", "mean", "squares"))


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


def bonus_statistics(steps: Sequence[StepRewards], mixer: RewardMixer) -> dict[str, float]:
    """Scale of the bonus, its mean and standard deviation over `steps`, and its share of the reward, for curves."""
    stats = {"sigma": mixer.sigma}
    if steps:
        bonus = np.concatenate([rewards.bonus for rewards in steps], dtype=np.float64)
        inner = sum(float(np.abs(rewards.intrinsic).sum()) for rewards in steps)
        outer = sum(float(mixer.weigh(torch.from_numpy(rewards.extrinsic)).abs().sum()) for rewards in steps)
        share = inner / (inner + outer) if inner + outer else 0.0
        stats |= {"bonus_mean": float(bonus.mean()), "bonus_std": float(bonus.std()), "reward_share": share}
    return stats
