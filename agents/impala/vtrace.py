"""V-trace: off-policy corrected value targets and policy gradients (Espeholt et al. 2018, equation 1).

    delta_t = rho_t (r_t + gamma_t V(s_{t+1}) - V(s_t))           rho_t = min(rho_bar, pi(a_t|s_t) / mu(a_t|s_t))
    v_t     = V(s_t) + delta_t + gamma_t c_t (v_{t+1} - V(s_{t+1}))   c_t = trace min(c_bar, pi / mu)
    gain_t  = r_t + gamma_t v_{t+1} - V(s_t)                      IMPALA's policy gradient takes rho_t gain_t

gamma_t is 0 where a step ended its episode. On-policy (pi = mu) v_t is the n-step return.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class VTrace(NamedTuple):
    """Value targets, gains of the actions, and importance weights, all [T, B] and without gradients."""

    targets: Tensor
    gains: Tensor
    weights: Tensor


@torch.no_grad()
def vtrace(
    log_ratio: Tensor,
    discount: Tensor,
    reward: Tensor,
    value: Tensor,
    last_value: Tensor,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
    trace: float = 1.0,
) -> VTrace:
    """Targets for one unroll.

    Args:
        log_ratio: [T, B], log pi(a|s) - log mu(a|s): the learner's policy against the one that acted.
        discount: [T, B], gamma, or 0 where the step ended its episode.
        reward: [T, B].
        value: [T, B], V(s_t).
        last_value: [B], V(s_T), which bootstraps.
        rho_bar, c_bar: where the importance weights are cut. The paper has 1 for both.
        trace: below 1, corrections fade with their distance like those of GAE's lambda: less noise, more trust in V
            (Espeholt et al. 2018, remark 2).
    """
    ratio = log_ratio.exp()
    rho, c = ratio.clamp(max=rho_bar), trace * ratio.clamp(max=c_bar)
    next_value = torch.cat([value[1:], last_value[None]])
    delta = rho * (reward + discount * next_value - value)
    carry = discount * c
    excess = torch.empty_like(value)  # v_t - V(s_t)
    running = torch.zeros_like(last_value)
    for t in range(len(value) - 1, -1, -1):
        running = torch.addcmul(delta[t], carry[t], running)
        excess[t] = running
    targets = value + excess
    next_target = torch.cat([targets[1:], last_value[None]])
    return VTrace(targets, reward + discount * next_target - value, rho)
