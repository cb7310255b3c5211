"""Random network distillation (Burda et al. 2018) and NovelD's novelty gain (Zhang et al. 2021).

    RND     b(s') = |f(s') - f_random(s')|^2
    NovelD  [ n(s') - alpha n(s) ]_+   with n(s) = |f(s) - f_random(s)|

f is trained to match the random network, so its error is large on observations that are rare in all of training.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from e3b_gym.bonuses.base import Bonus
from e3b_gym.bonuses.representations import Features, embed_unroll
from e3b_gym.unroll import Tree, Unroll


class RND(Bonus):
    """Prediction error of a trained network against a random network.

    Args:
        predictor: the trained network, tree of [rows, ...] -> [rows, d].
        target: the random network, with the same shapes; its weights are frozen here.

    Examples:
        >>> import gymnasium as gym
        >>> from e3b_gym import check_bonus
        >>> from e3b_gym.bonuses import RND
        >>> from e3b_gym.encoders import make_encoder
        >>> space, actions = gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(3)
        >>> bonus = RND(make_encoder(space, 16), make_encoder(space, 16))
        >>> check_bonus(bonus, space, actions)
    """

    def __init__(self, predictor: nn.Module, target: nn.Module) -> None:
        super().__init__()
        self.predictor = predictor
        self.target = target.requires_grad_(False)

    def embed(self, unroll: Unroll, previous: Features | None = None) -> Features:
        return embed_unroll(self._error, unroll, previous)

    def _error(self, rows: Tree) -> Tensor:
        """Returns the squared error as a one-dimensional feature, [rows, 1]."""
        gap: Tensor = self.predictor(rows) - self.target(rows)
        return gap.square().sum(dim=-1, keepdim=True)

    @torch.no_grad()
    def score(self, features: Features, unroll: Unroll, memory: object) -> Tensor:
        return unroll.masked(features.next[..., 0].detach())  # [T, B]

    def loss(self, features: Features, unroll: Unroll) -> dict[str, Tensor]:
        return {"rnd": unroll.mean(features.next[..., 0])}


class NoveltyGain(Bonus):
    """Increase of the RND novelty over a step, clipped at 0: the global term of NovelD.

    Examples:
        >>> import gymnasium as gym
        >>> from e3b_gym import check_bonus
        >>> from e3b_gym.bonuses import RND, FirstVisit, NoveltyGain, make_key
        >>> from e3b_gym.encoders import make_encoder
        >>> space, actions = gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(3)
        >>> rnd = RND(make_encoder(space, 16), make_encoder(space, 16))
        >>> bonus = NoveltyGain(rnd, alpha=0.1) * FirstVisit(make_key("full", space))  # NovelD
        >>> check_bonus(bonus, space, actions)
    """

    def __init__(self, rnd: RND, alpha: float = 0.1) -> None:
        super().__init__()
        self.rnd = rnd
        self.alpha = alpha

    def embed(self, unroll: Unroll, previous: Features | None = None) -> Features:
        return self.rnd.embed(unroll, previous)

    @torch.no_grad()
    def score(self, features: Features, unroll: Unroll, memory: object) -> Tensor:
        arrived, left = features.next[..., 0].sqrt(), features.current[..., 0].sqrt()  # [T, B]
        return unroll.masked((arrived - self.alpha * left).clamp(min=0))

    def loss(self, features: Features, unroll: Unroll) -> dict[str, Tensor]:
        return self.rnd.loss(features, unroll)
