"""Elliptical episodic bonus (Henaff et al. 2022, Algorithm 1).

    b(s') = phi(s')' C^-1 phi(s');  then C <- C + phi phi';  C = ridge * I where an episode starts.

Algorithm 1 is the default. The authors' code differs: it pays b(s_t) for the step that leaves s_t
(`bonus_of="current"`) and nothing for an episode's first step (`zero_first=True`).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from e3b_gym.bonuses.features import Features
from e3b_gym.bonuses.representations import OnRepresentation, Representation
from e3b_gym.memory import EllipticalMemory
from e3b_gym.options import Positive, check
from e3b_gym.unroll import Unroll


class Elliptical(OnRepresentation):
    """How far the arriving state lies outside the ellipse of the states seen before in this episode.

    Args:
        representation: phi and its loss.
        ridge: lambda, the prior of the ellipse. A direction never seen pays |phi|^2 / ridge.
        episodic: forget at every episode's start; False keeps one lifelong ellipse per environment.
        unit_length: scale phi to length 1 first. Raw embeddings pay most of their bonus in an episode's first
            steps; at unit length it is spread over the episode.
        include_first: enter the episode's first observation into the ellipse, unscored: to stay there is not new.
        bonus_of: "next" pays a step for the state it arrives in; "current" for the one it leaves.
        zero_first: pay nothing for the first step of an episode.
    """

    def __init__(
        self,
        representation: Representation,
        *,
        ridge: Positive = 0.1,
        episodic: bool = True,
        unit_length: bool = False,
        include_first: bool = False,
        bonus_of: Literal["next", "current"] = "next",
        zero_first: bool = False,
    ) -> None:
        super().__init__(representation)
        self.ridge: float = check("ridge", ridge, Positive)
        self.episodic = check("episodic", episodic, bool)
        self.unit_length: bool = check("unit_length", unit_length, bool)
        self.include_first: bool = check("include_first", include_first, bool)
        self.bonus_of: str = check("bonus_of", bonus_of, Literal["next", "current"])
        self.zero_first: bool = check("zero_first", zero_first, bool)
        if bonus_of == "current" and include_first:
            raise ValueError("include_first has no effect with bonus_of='current', which scores the first observation")

    def new_memory(self, num_envs: int) -> EllipticalMemory:
        device = next((weights.device for weights in self.parameters()), torch.device("cpu"))
        return EllipticalMemory(
            num_envs, self.representation.dim, ridge=self.ridge, device=device, episodic=self.episodic
        )

    @torch.no_grad()
    def score(self, features: Features, unroll: Unroll, memory: EllipticalMemory) -> Tensor:
        first = unroll.first  # [T, B]
        phi = self._scaled(features.next if self.bonus_of == "next" else features.current)  # [T, B, d]
        if bool(unroll.done.any()):
            # A zero row pays nothing and leaves the ellipse as it is.
            phi = phi * unroll.valid[..., None]
        opens = self.include_first and bool(first.any())
        opening = self._scaled(features.current[first]) if opens else None  # [K, d]
        bonus = memory.unroll(phi, first, slots=unroll.slots, opening=opening)  # [T, B]
        return bonus.masked_fill(first, 0.0) if self.zero_first else bonus

    @torch.no_grad()
    def diagnostics(self, features: Features, unroll: Unroll) -> dict[str, float]:
        phi = features.current.flatten(0, 1)  # [T B, d]
        return {
            **super().diagnostics(features, unroll),
            "phi_norm": float(phi.norm(dim=-1).mean()),
            "phi_rank": effective_rank(phi),
        }

    def _scaled(self, phi: Tensor) -> Tensor:
        phi = phi.detach().float()
        return F.normalize(phi, dim=-1) if self.unit_length else phi


def effective_rank(phi: Tensor) -> float:
    """How many directions `phi` [rows, d] uses: exp(entropy) of the eigenvalues of its second moment, normalised."""
    share = torch.linalg.eigvalsh(phi.T.double() @ phi.double()).clamp(min=0)
    share = share / share.sum().clamp(min=torch.finfo(torch.float64).tiny)
    return float(torch.exp(-torch.special.xlogy(share, share).sum()))
