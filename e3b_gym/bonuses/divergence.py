"""AGAC's bonus (Flet-Berliac et al. 2021, as in Table 1 of the E3B paper): divergence of policy and adversary.

    b = KL( pi(.|s) || pi_adv(.|s) )        pi_adv is trained to make this small

The logits of the acting policy are part of the unroll (`unroll.policy_logits`), so recurrent policies need no special
case. AGAC adds log pi - log pi_adv to the advantage and the divergence to the value target. A learner that does this
(`policy_terms`) removes the divergence from the reward; a wrapper, which can change the reward only, keeps it there.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from e3b_gym.bonuses.base import Bonus
from e3b_gym.bonuses.representations import Features, embed_unroll
from e3b_gym.unroll import Unroll


class PolicyDivergence(Bonus):
    """KL divergence between the acting policy and an adversary that is trained to imitate it.

    Args:
        encoder: the adversary's network, tree of [rows, ...] -> [rows, encoder.dim]; shared with nothing else.
        action_space: must be Discrete: the divergence is between categorical distributions.

    Examples:
        >>> import gymnasium as gym
        >>> from e3b_gym import check_bonus
        >>> from e3b_gym.bonuses import PolicyDivergence
        >>> from e3b_gym.encoders import make_encoder
        >>> space, actions = gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(3)
        >>> bonus = PolicyDivergence(make_encoder(space, 16), actions)
        >>> check_bonus(bonus, space, actions)
    """

    in_reward = True
    """Whether `score` returns the divergence; a learner that uses `policy_terms` sets it to False."""

    def __init__(self, encoder: nn.Module, action_space: gym.Space[Any]) -> None:
        super().__init__()
        if not isinstance(action_space, gym.spaces.Discrete):
            raise ValueError(f"AGAC needs a Discrete action space; got {action_space}. Choose another method.")
        self.adversary = nn.Sequential(encoder, nn.ReLU(), nn.Linear(int(encoder.dim), int(action_space.n)))  # type: ignore[arg-type]

    def embed(self, unroll: Unroll, previous: Features | None = None) -> Features:
        return embed_unroll(self.adversary, unroll, previous)

    @torch.no_grad()
    def score(self, features: Features, unroll: Unroll, memory: object) -> Tensor:
        if not self.in_reward:
            return torch.zeros(unroll.done.shape, device=unroll.done.device)
        return unroll.masked(self._divergence(features, unroll))  # [T, B]

    @torch.no_grad()
    def policy_terms(self, features: Features, unroll: Unroll) -> tuple[Tensor, Tensor]:
        policy, adversary = self._log_probabilities(features, unroll)
        ratio = policy - adversary  # [T, B, A]
        return ratio.gather(-1, unroll.action[..., None])[..., 0], (policy.exp() * ratio).sum(-1)

    def loss(self, features: Features, unroll: Unroll) -> dict[str, Tensor]:
        return {"adversary": self._divergence(features, unroll).mean()}

    def _divergence(self, features: Features, unroll: Unroll) -> Tensor:
        policy, adversary = self._log_probabilities(features, unroll)
        return F.kl_div(adversary, policy, log_target=True, reduction="none").sum(dim=-1)  # [T, B]

    def _log_probabilities(self, features: Features, unroll: Unroll) -> tuple[Tensor, Tensor]:
        """Returns the log probabilities of the acting policy and of the adversary, each [T, B, A]."""
        if unroll.policy_logits is None:
            raise ValueError(
                "AGAC compares the acting policy with its adversary, but the unroll has no policy_logits; record them "
                "while acting, as IMPALA and EncoderUpdateCallback do"
            )
        return F.log_softmax(unroll.policy_logits.detach(), dim=-1), F.log_softmax(features.current, dim=-1)
