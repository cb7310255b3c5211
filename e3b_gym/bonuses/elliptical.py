"""Elliptical episodic bonus (Henaff et al. 2022, Algorithm 1).

    b(s') = phi(s')' C^-1 phi(s');  then C <- C + phi phi';  C = ridge * I where an episode starts.

Algorithm 1 is the default. The authors' code differs: the reward of the step from s_t to s_{t+1} is b(s_t)
(`bonus_of="current"`), and the first step of an episode gets none (`zero_first=True`).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from e3b_gym.bonuses.representations import Features, OnRepresentation, Representation
from e3b_gym.memory import EllipticalMemory, RankOneMemory, SolveMemory
from e3b_gym.options import Positive, check
from e3b_gym.unroll import Unroll

Memory = EllipticalMemory | RankOneMemory | SolveMemory
MEMORIES: dict[str, type[Memory]] = {"exact": EllipticalMemory, "rank1": RankOneMemory, "solve": SolveMemory}


class Elliptical(OnRepresentation):
    """Distance of the next state from the ellipse of all earlier states of the episode.

    Args:
        representation: phi and its loss.
        ridge: lambda, the regularisation of C. A direction not yet seen has the bonus |phi|^2 / ridge.
        episodic: clear the ellipse when an episode starts; False: one lifelong ellipse per environment.
        unit_length: scale phi to length 1. Without scaling, most of the bonus falls on the first steps of an episode;
            with unit length it is spread over the episode.
        include_first: add the first observation of the episode to the ellipse without scoring it, so that staying
            there is not novel.
        bonus_of: "next": the bonus of a step is that of its next state; "current": that of the state it starts from.
        zero_first: set the bonus of the first step of an episode to 0.
        ellipse: how C^-1 phi is computed: "exact" (`EllipticalMemory`), "rank1" (the authors' update in float32) or
            "solve" (a factorisation of C per step). The last two are slower, for comparison.

    Examples:
        >>> import gymnasium as gym
        >>> from e3b_gym import check_bonus
        >>> from e3b_gym.bonuses import Elliptical, InverseDynamics
        >>> from e3b_gym.encoders import make_encoder
        >>> space, actions = gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(3)
        >>> bonus = Elliptical(InverseDynamics(make_encoder(space, 16), actions), ridge=0.1)
        >>> check_bonus(bonus, space, actions)
    """

    _place: Tensor

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
        ellipse: Literal["exact", "rank1", "solve"] = "exact",
    ) -> None:
        super().__init__(representation)
        self.register_buffer("_place", torch.empty(0), persistent=False)  # where it is, if phi has no weights here
        self.ridge: float = check("ridge", ridge, Positive)
        self.episodic = check("episodic", episodic, bool)
        self.unit_length: bool = check("unit_length", unit_length, bool)
        self.include_first: bool = check("include_first", include_first, bool)
        self.bonus_of: str = check("bonus_of", bonus_of, Literal["next", "current"])
        self.zero_first: bool = check("zero_first", zero_first, bool)
        self.ellipse: str = check("ellipse", ellipse, Literal["exact", "rank1", "solve"])
        if bonus_of == "current" and include_first:
            raise ValueError("include_first has no effect with bonus_of='current', which scores the first observation")

    def new_memory(self, num_envs: int) -> Memory:
        device = next((weights.device for weights in self.parameters()), self._place.device)
        make = MEMORIES[self.ellipse]
        return make(num_envs, self.representation.dim, ridge=self.ridge, device=device, episodic=self.episodic)

    @torch.no_grad()
    def score(self, features: Features, unroll: Unroll, memory: Memory) -> Tensor:
        first = unroll.first  # [T, B]
        phi = self._scaled(features.next if self.bonus_of == "next" else features.current)  # [T, B, d]
        if bool(unroll.done.any()):
            # A zero row has bonus 0 and does not change the ellipse.
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
    """Effective number of directions in `phi` [rows, d]: exp(entropy) of the normalised eigenvalues of phi' phi."""
    share = torch.linalg.eigvalsh(phi.T.double() @ phi.double()).clamp(min=0)
    share = share / share.sum().clamp(min=torch.finfo(torch.float64).tiny)
    return float(torch.exp(-torch.special.xlogy(share, share).sum()))
