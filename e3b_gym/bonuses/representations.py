"""Representations phi(s): an encoder, the embeddings of an unroll, and the self-supervised loss that trains it.

    inverse dynamics   -log p(a_t | g(phi(s_t), phi(s_{t+1})))       E3B (paper, section 4.2), ICM, RIDE
    forward dynamics   1/2 |f(phi(s_t), a_t) - phi(s_{t+1})|^2       ICM, RIDE

Departs from the authors' code: a pair never spans two episodes. The last pair of an episode uses the terminal
observation, or is left out if that is not known.

An unroll has (T+1) B observations and K terminal observations. `embed_unroll` passes all of them through the network in
one batch and returns the embedding before and after every step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from e3b_gym.bonuses.base import Bonus
from e3b_gym.encoders import ForwardHead, InverseHead
from e3b_gym.unroll import Tree, Unroll, tree_map


@dataclass(frozen=True)
class Features:
    """Embeddings of an unroll.

    Examples:
        >>> import torch
        >>> from e3b_gym import Unroll, embed_unroll
        >>> done, starts = torch.zeros(2, 1, dtype=torch.bool), torch.ones(1, dtype=torch.bool)
        >>> unroll = Unroll(torch.arange(3.0).reshape(3, 1, 1), torch.zeros(2, 1), done, starts)
        >>> features = embed_unroll(lambda rows: 10 * rows, unroll)
        >>> features.current.flatten().tolist(), features.next.flatten().tolist()
        ([0.0, 10.0], [10.0, 20.0])
    """

    trajectory: Tensor
    """[T+1, B, d]: embeddings of `unroll.obs`."""

    next: Tensor
    """[T, B, d]: embeddings of `unroll.next_obs`, terminal observations included."""

    @property
    def current(self) -> Tensor:
        """[T, B, d]: embeddings of the observation that each step starts from."""
        return self.trajectory[:-1]


def embed_unroll(encode: Callable[[Tree], Tensor], unroll: Unroll, previous: Features | None = None) -> Features:
    """Embeds every observation of an unroll in one call of `encode` (tree of [rows, ...] -> [rows, d]).

    Args:
        encode: the network.
        unroll: the experience.
        previous: features of the preceding unroll, computed with the same weights; obs[0] is then not embedded again.
            For a wrapper that scores single steps, this halves the work.
    """
    skip = 0 if previous is None else 1
    rows = tree_map(lambda leaf: leaf[skip:].flatten(0, 1), unroll.obs)  # [(T+1-skip) B, ...]
    if unroll.terminal_obs is not None:
        rows = tree_map(lambda leaf, last: torch.cat([leaf, last.to(leaf.dtype)]), rows, unroll.terminal_obs)
    phi = encode(rows)  # [(T+1-skip) B + K, d]
    steps, envs = unroll.num_steps, unroll.num_envs
    trajectory = phi[: (steps + 1 - skip) * envs].reshape(steps + 1 - skip, envs, -1)
    if previous is not None:
        trajectory = torch.cat([previous.trajectory[-1:], trajectory])  # [T+1, B, d]
    terminals = None if unroll.terminal_obs is None else phi[(steps + 1 - skip) * envs :]
    return Features(trajectory, unroll.put_terminals(trajectory[1:], terminals))


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
    """A network with fixed random weights: the paper's "random encoder".

    Examples:
        >>> import gymnasium as gym
        >>> from e3b_gym import check_bonus
        >>> from e3b_gym.bonuses import Elliptical, Frozen
        >>> from e3b_gym.encoders import make_encoder
        >>> space, actions = gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(3)
        >>> bonus = Elliptical(Frozen(make_encoder(space, 16)))
        >>> check_bonus(bonus, space, actions)
    """

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__(encoder.requires_grad_(False))


class InverseDynamics(Representation):
    """phi is trained to predict the action between two observations, so it ignores what the agent cannot control.

    Examples:
        >>> import gymnasium as gym
        >>> from e3b_gym import check_bonus
        >>> from e3b_gym.bonuses import Elliptical, InverseDynamics
        >>> from e3b_gym.encoders import make_encoder
        >>> space, actions = gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(3)
        >>> bonus = Elliptical(InverseDynamics(make_encoder(space, 16), actions))
        >>> check_bonus(bonus, space, actions)
    """

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
    """Inverse and forward model on the same embedding, as in ICM and RIDE.

    Examples:
        >>> import gymnasium as gym
        >>> from e3b_gym import check_bonus
        >>> from e3b_gym.bonuses import Curiosity, InverseForwardDynamics
        >>> from e3b_gym.encoders import make_encoder
        >>> space, actions = gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(3)
        >>> phi = InverseForwardDynamics(make_encoder(space, 16), actions, inverse_coef=0.1)
        >>> bonus = Curiosity(phi)
        >>> check_bonus(bonus, space, actions)
    """

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
