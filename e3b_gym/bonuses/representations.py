"""Representations phi(s): an encoder and the self-supervised loss that trains it.

    inverse dynamics   -log p(a_t | g(phi(s_t), phi(s_{t+1})))       E3B (paper, section 4.2), ICM, RIDE
    forward dynamics   1/2 |f(phi(s_t), a_t) - phi(s_{t+1})|^2       ICM, RIDE

Departs from the authors' code: a pair never spans two episodes. The last pair of an episode uses the terminal
observation, or is left out if that is not known.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from e3b_gym.bonuses.base import Bonus
from e3b_gym.bonuses.features import Features, embed_unroll
from e3b_gym.encoders import ForwardHead, InverseHead
from e3b_gym.unroll import Unroll


class Representation(nn.Module):
    """An encoder with its loss. `encoder` maps a tree of [rows, ...] to [rows, dim]."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    @property
    def dim(self) -> int:
        return int(self.encoder.dim)  # type: ignore[arg-type]

    def embed(self, unroll: Unroll, previous: Features | None = None) -> Features:
        return embed_unroll(self.encoder, unroll, previous)

    def loss(self, features: Features, unroll: Unroll) -> dict[str, Tensor]:
        return {}

    def diagnostics(self, features: Features, unroll: Unroll) -> dict[str, float]:
        return {}


class Frozen(Representation):
    """A network with fixed random weights: the paper's "random encoder"."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__(encoder.requires_grad_(False))


class InverseDynamics(Representation):
    """phi is trained to predict the action between two observations, so it ignores what the agent cannot control."""

    def __init__(
        self, encoder: nn.Module, action_space: gym.Space[Any], *, hidden: int = 256, coef: float = 1.0
    ) -> None:
        super().__init__(encoder)
        self.inverse = InverseHead(self.dim, action_space, hidden=hidden)
        self.coef = coef

    def loss(self, features: Features, unroll: Unroll) -> dict[str, Tensor]:
        surprise = self.inverse(features.current, features.next, unroll.action)  # [T, B]
        return {"inverse": self.coef * unroll.mean(surprise)}

    @torch.no_grad()
    def diagnostics(self, features: Features, unroll: Unroll) -> dict[str, float]:
        right = self.inverse.accuracy(features.current, features.next, unroll.action)  # [T, B]
        return {"inverse_accuracy": float(unroll.mean(right))}


class InverseForwardDynamics(InverseDynamics):
    """Inverse and forward model on the same embedding, as in ICM and RIDE."""

    def __init__(
        self,
        encoder: nn.Module,
        action_space: gym.Space[Any],
        *,
        hidden: int = 256,
        inverse_coef: float = 0.1,
        forward_coef: float = 1.0,
    ) -> None:
        super().__init__(encoder, action_space, hidden=hidden, coef=inverse_coef)
        self.forward_model = ForwardHead(self.dim, action_space, hidden=hidden)
        self.forward_coef = forward_coef

    def forward_error(self, features: Features, unroll: Unroll) -> Tensor:
        """[T, B]: half the squared distance between the predicted and the actual next embedding."""
        expected: Tensor = self.forward_model(features.current, unroll.action)  # [T, B, d]
        return 0.5 * (expected - features.next).square().sum(dim=-1)

    def loss(self, features: Features, unroll: Unroll) -> dict[str, Tensor]:
        forward = self.forward_coef * unroll.mean(self.forward_error(features, unroll))
        return {**super().loss(features, unroll), "forward": forward}


class PolicyFeatures(Representation):
    """phi is the network of the acting policy, which the bonus does not train: the paper's "policy encoder".

    `bind_policy` sets the policy: an object with `dim` and `encode(obs tree [rows, ...]) -> [rows, dim]`.
    """

    def __init__(self) -> None:
        super().__init__(nn.Identity())
        # In a list, so that nn.Module does not register the policy's weights as this module's.
        self._policy: list[Any] = []

    @property
    def policy(self) -> Any:
        if not self._policy:
            raise ValueError(
                "the policy encoder has no policy yet; call bonus.bind_policy(policy) first, as "
                "EncoderUpdateCallback and IMPALA do"
            )
        return self._policy[0]

    @property
    def dim(self) -> int:
        return int(self.policy.dim)

    def bind_policy(self, policy: Any) -> None:
        self._policy = [policy]

    @torch.no_grad()
    def embed(self, unroll: Unroll, previous: Features | None = None) -> Features:
        # The policy's weights may have changed since, so `previous` is not reused.
        return embed_unroll(self.policy.encode, unroll)


class OnRepresentation(Bonus):
    """Base class of the bonuses whose features and losses are those of a representation."""

    def __init__(self, representation: Representation) -> None:
        super().__init__()
        self.representation = representation

    def embed(self, unroll: Unroll, previous: Features | None = None) -> Features:
        return self.representation.embed(unroll, previous)

    def loss(self, features: Features, unroll: Unroll) -> dict[str, Tensor]:
        return self.representation.loss(features, unroll)

    def diagnostics(self, features: Features, unroll: Unroll) -> dict[str, float]:
        return self.representation.diagnostics(features, unroll)
