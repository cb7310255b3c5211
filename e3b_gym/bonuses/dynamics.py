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
    """Prediction error of the forward model (ICM)."""

    representation: InverseForwardDynamics

    @torch.no_grad()
    def score(self, features: Features, unroll: Unroll, memory: object) -> Tensor:
        return unroll.masked(self.representation.forward_error(features, unroll))  # [T, B]


class Impact(OnRepresentation):
    """Distance between the embeddings before and after the step (RIDE)."""

    @torch.no_grad()
    def score(self, features: Features, unroll: Unroll, memory: object) -> Tensor:
        return unroll.masked((features.next - features.current).norm(dim=-1))  # [T, B]
