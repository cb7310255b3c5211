"""V-trace: off-policy corrected value targets and policy gradients (Espeholt et al. 2018, equation 1).

    delta_t = rho_t (r_t + gamma_t V(s_{t+1}) - V(s_t))           rho_t = min(rho_bar, pi(a_t|s_t) / mu(a_t|s_t))
    v_t     = V(s_t) + delta_t + gamma_t c_t (v_{t+1} - V(s_{t+1}))   c_t = lambda min(c_bar, pi / mu)
    gain_t  = r_t + gamma_t v_{t+1} - V(s_t)                      IMPALA's policy gradient takes rho_t gain_t

gamma_t is 0 where step t ended its episode. On-policy (pi = mu) v_t is the n-step return.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from agents.impala.shapes import require_shape


class VTrace(NamedTuple):
    """Value targets, gains of the actions, and importance weights, all [T, B] and without gradients."""

    targets: Tensor
    gains: Tensor
    weights: Tensor


@torch.no_grad()
def vtrace(
    log_ratio_t: Tensor,
    discount_t: Tensor,
    reward_t: Tensor,
    value_t: Tensor,
    last_value: Tensor,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
    gae_lambda: float = 1.0,
) -> VTrace:
    """Targets for one unroll of steps t = 0 .. T-1.

    Args:
        log_ratio_t: [T, B], log pi(a_t|s_t) - log mu(a_t|s_t): the learner's policy against the one that acted.
        discount_t: [T, B], gamma, or 0 where step t ended its episode.
        reward_t: [T, B], for the step from s_t to s_{t+1}.
        value_t: [T, B], V(s_t).
        last_value: [B], V(s_T), which bootstraps.
        rho_bar, c_bar: upper bounds of the importance weights. The paper has 1 for both.
        gae_lambda: below 1, corrections decay with their distance, as in GAE: less variance, more bias from V
            (Espeholt et al. 2018, remark 2).
    """
    if value_t.ndim != 2:
        raise ValueError(f"value_t must be [T, B]; got {list(value_t.shape)}")
    require_shape(value_t.shape, "[T, B]", log_ratio_t=log_ratio_t, discount_t=discount_t, reward_t=reward_t)
    require_shape(value_t.shape[1:], "[B]", last_value=last_value)
    ratio_t = log_ratio_t.exp()
    rho_t, c_t = ratio_t.clamp(max=rho_bar), gae_lambda * ratio_t.clamp(max=c_bar)
    value_tp1 = torch.cat([value_t[1:], last_value[None]])
    delta_t = rho_t * (reward_t + discount_t * value_tp1 - value_t)
    carry_t = discount_t * c_t
    excess_t = torch.empty_like(value_t)  # v_t - V(s_t)
    running = torch.zeros_like(last_value)
    for t in range(len(value_t) - 1, -1, -1):
        running = torch.addcmul(delta_t[t], carry_t[t], running)
        excess_t[t] = running
    target_t = value_t + excess_t
    target_tp1 = torch.cat([target_t[1:], last_value[None]])
    return VTrace(target_t, reward_t + discount_t * target_tp1 - value_t, rho_t)
