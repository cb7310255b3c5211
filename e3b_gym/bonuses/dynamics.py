"""Bonuses that use an embedding trained with dynamics models.

ICM    b = 1/2 |f(phi(s), a) - phi(s')|^2     error of the forward model (Pathak et al. 2017)
RIDE   b = |phi(s') - phi(s)|                 change of the embedding (Raileanu & Rocktaeschel 2020), without the count
"""

from __future__ import annotations

import torch
from torch import Tensor

from e3b_gym.bonuses.representations import Features, InverseForwardDynamics, OnRepresentation
from e3b_gym.unroll import Unroll


class Curiosity(OnRepresentation):
    """Prediction error of the forward model (ICM).

    Examples:
        >>> import gymnasium as gym
        >>> from e3b_gym import check_bonus
        >>> from e3b_gym.bonuses import Curiosity, InverseForwardDynamics
        >>> from e3b_gym.encoders import make_encoder
        >>> space, actions = gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(3)
        >>> bonus = Curiosity(InverseForwardDynamics(make_encoder(space, 16), actions))
        >>> check_bonus(bonus, space, actions)
    """

    representation: InverseForwardDynamics

    @torch.no_grad()
    def score(self, features: Features, unroll: Unroll, memory: object) -> Tensor:
        return unroll.masked(self.representation.forward_error(features, unroll))  # [T, B]


class Impact(OnRepresentation):
    """Distance between the embeddings before and after the step (RIDE).

    Examples:
        >>> import gymnasium as gym
        >>> from e3b_gym import check_bonus
        >>> from e3b_gym.bonuses import Impact, InverseForwardDynamics, InverseSqrtCount, make_key
        >>> from e3b_gym.encoders import make_encoder
        >>> space, actions = gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(3)
        >>> phi = InverseForwardDynamics(make_encoder(space, 16), actions)
        >>> bonus = Impact(phi) * InverseSqrtCount(make_key("full", space))  # RIDE
        >>> check_bonus(bonus, space, actions)
    """

    @torch.no_grad()
    def score(self, features: Features, unroll: Unroll, memory: object) -> Tensor:
        return unroll.masked((features.next - features.current).norm(dim=-1))  # [T, B]
