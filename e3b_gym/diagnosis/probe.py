"""Probe: an OnlineExplorer that learns nothing and records what happened inside each step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from e3b_gym.bonuses import Bonus, Elliptical, InverseDynamics, NoBonus, Product, Scaled, Sum
from e3b_gym.bonuses.representations import OnRepresentation
from e3b_gym.online import OnlineExplorer
from e3b_gym.reward import RewardMixer, StepRewards
from e3b_gym.unroll import Unroll


class Probe(OnlineExplorer):
    """A bonus on `num_envs` environments, with its own memory; neither the running scale nor a weight changes.

    Args:
        bonus: the trained bonus.
        mixer: the trained scale.
        num_envs: N.
        memory: the state of a lifelong memory to begin with; None for an empty memory.

    Attributes:
        step_parts: the last step, as fields of `Episode` [N, ...].
    """

    def __init__(
        self, bonus: Bonus, mixer: RewardMixer, num_envs: int, memory: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(bonus, mixer, num_envs, record_steps=1)
        self.training = False
        self.step_parts: dict[str, NDArray[Any] | None] = {}
        if memory is not None:
            self.memory.load_state_dict(memory)

    def score(self, features: Any, unroll: Unroll) -> Tensor:
        bonus = super().score(features, unroll)
        self.step_parts = {"valid": unroll.valid[0].cpu().numpy(), **self._embedding(features, unroll)}
        return bonus

    def step(self, *args: Any, **kwargs: Any) -> StepRewards:
        rewards = super().step(*args, **kwargs)
        for name in ("extrinsic", "bonus", "intrinsic"):
            self.step_parts[name] = getattr(rewards, name).astype(np.float64)
        return rewards

    def _embedding(self, features: Any, unroll: Unroll) -> dict[str, NDArray[Any] | None]:
        """phi of both ends of the step, and whether the inverse model recognises the action."""
        parts: dict[str, NDArray[Any] | None] = {"opening": None, "phi": None, "inverse_right": None}
        for term, of_term in _terms(self.bonus, features):
            if not isinstance(term, OnRepresentation) or parts["phi"] is not None:
                continue
            parts["opening"] = of_term.current[0].float().cpu().numpy()
            parts["phi"] = of_term.next[0].float().cpu().numpy()
            if isinstance(term.representation, InverseDynamics):
                inverse = term.representation.inverse
                right = inverse.accuracy(of_term.current, of_term.next, unroll.action)[0]
                parts["inverse_right"] = right.double().cpu().numpy()
        return parts


def _terms(bonus: Bonus, features: Any) -> Iterator[tuple[Bonus, Any]]:
    """The terms of a composition with their features."""
    if not isinstance(bonus, (Product, Sum, Scaled)):
        yield bonus, features
        return
    for term, part in zip(bonus.terms, features, strict=True):
        yield from _terms(cast(Bonus, term), part)


def bonus_setup(bonus: Bonus, mixer: RewardMixer) -> dict[str, Any]:
    """The fields of `Setup` that a bonus and its mixer know."""
    setup: dict[str, Any] = {
        "beta": mixer.beta,
        "extrinsic": mixer.extrinsic,
        "penalties": mixer.penalties,
        "sigma": mixer.sigma,
        "normaliser": mixer.normaliser if mixer.norm else "none",
        "clip": mixer.clip,
        "has_bonus": not isinstance(bonus, NoBonus),
    }
    ellipse = next((part for part in bonus.modules() if isinstance(part, Elliptical)), None)
    if ellipse is not None:
        setup |= {"ridge": ellipse.ridge, "opens": ellipse.include_first, "unit_length": ellipse.unit_length}
    return setup
