"""Bonuses on an embedding with dynamics models.

ICM    b = 1/2 |f(phi(s), a) - phi(s')|^2     surprise of the forward model (Pathak et al. 2017)
RIDE   b = |phi(s') - phi(s)|                 how much the step changed (Raileanu & Rocktaeschel 2020), before its count
"""

from __future__ import annotations

import torch
from torch import Tensor

from e3b_gym.bonuses.features import Features
from e3b_gym.bonuses.representations import InverseForwardDynamics, OnRepresentation
from e3b_gym.unroll import Unroll


class Curiosity(OnRepresentation):
    """The forward model's surprise."""

    representation: InverseForwardDynamics

    @torch.no_grad()
    def score(self, features: Features, unroll: Unroll, memory: object) -> Tensor:
        return unroll.masked(self.representation.forward_error(features, unroll))  # [T, B]


class Impact(OnRepresentation):
    """The distance that the step went in the embedding."""

    @torch.no_grad()
    def score(self, features: Features, unroll: Unroll, memory: object) -> Tensor:
        return unroll.masked((features.next - features.current).norm(dim=-1))  # [T, B]
