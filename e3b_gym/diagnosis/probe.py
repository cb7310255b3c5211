"""Probe: scores steps like an OnlineExplorer, but learns nothing and hands out what happened inside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from e3b_gym.bonuses import Bonus, Elliptical, InverseDynamics, NoBonus, Product, Scaled, Sum
from e3b_gym.bonuses.representations import OnRepresentation
from e3b_gym.buffer import require_finite_step
from e3b_gym.explorer import Explorer
from e3b_gym.online import Recorder
from e3b_gym.reward import RewardMixer, StepRewards
from e3b_gym.unroll import Tree, Unroll


class Probe:
    """A bonus on `num_envs` environments, with its own memory; neither the running scale nor a weight changes.

    Args:
        bonus: the trained bonus.
        mixer: the trained scale.
        num_envs: N.
        memory: the state of a lifelong memory to begin with; None for an empty memory.

    Attributes:
        step_parts: of the last step, fields of `Episode` [N, ...].
    """

    training = False

    def __init__(
        self, bonus: Bonus, mixer: RewardMixer, num_envs: int, memory: Mapping[str, Any] | None = None
    ) -> None:
        self.bonus, self.mixer, self.num_envs = bonus, mixer, num_envs
        self.step_parts: dict[str, NDArray[Any] | None] = {}
        self._buffer = Recorder(1, num_envs)
        self._features: Any = None
        self._explorer = Explorer(bonus, mixer, num_envs)
        self._explorer.training = False
        if memory is not None:
            self._explorer.memory.load_state_dict(memory)

    def reset(self, obs: Tree) -> None:
        """All environments start an episode at `obs` (tree of numpy arrays [N, ...])."""
        self._buffer.start(obs)
        self._features = None

    @torch.no_grad()
    def step(
        self,
        action: NDArray[Any],
        obs: Tree,
        reward: NDArray[Any],
        done: NDArray[np.bool_],
        last: Mapping[int, Tree],
        *,
        restarted: NDArray[np.bool_] | None = None,
        policy_logits: Tensor | None = None,
    ) -> StepRewards:
        """Scores one step of every environment; arguments as in `OnlineExplorer.step`."""
        extrinsic = np.array(reward, dtype=np.float32)
        require_finite_step(obs, extrinsic, last)
        unroll = self._buffer.add(action, obs, done, last, restarted=restarted, policy_logits=policy_logits)
        unroll = unroll.to(self._explorer.device)
        self._features = self._explorer.embed(unroll, self._features)
        bonus = self._explorer.score(self._features, unroll)[0].cpu()  # [N]
        total, intrinsic = (part.numpy() for part in self._explorer.mix(torch.from_numpy(extrinsic), bonus))
        self.step_parts = {
            "extrinsic": extrinsic.astype(np.float64),
            "bonus": bonus.double().numpy(),
            "intrinsic": intrinsic.astype(np.float64),
            "valid": unroll.valid[0].cpu().numpy(),
            **self._embedding(unroll),
        }
        return StepRewards(total, intrinsic, extrinsic, bonus.numpy(), {})

    def _embedding(self, unroll: Unroll) -> dict[str, NDArray[Any] | None]:
        """phi of both ends of the step, and whether the inverse model recognises the action."""
        parts: dict[str, NDArray[Any] | None] = {"opening": None, "phi": None, "inverse_right": None}
        for term, features in _terms(self.bonus, self._features):
            if not isinstance(term, OnRepresentation) or parts["phi"] is not None:
                continue
            parts["opening"] = features.current[0].float().cpu().numpy()
            parts["phi"] = features.next[0].float().cpu().numpy()
            if isinstance(term.representation, InverseDynamics):
                inverse = term.representation.inverse
                right = inverse.accuracy(features.current, features.next, unroll.action)[0]
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
