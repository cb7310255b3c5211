"""The losses of the policy, for one batch of unrolls.

    sum_t [ -rho_t gain_t log pi(a_t|s_t) + vf_coef / 2 (v_t - V(s_t))^2 - ent_coef H(pi(.|s_t)) ]

summed over time and averaged over environments, as IMPALA and the authors do; v, gain and rho are V-trace's. With
`clip_range` the first term is PPO's, -min(r_t gain_t, clip(r_t) gain_t) with r_t = pi / mu, which bears several passes
over the same frames. AGAC adds its adversary's terms to the advantage and to the value target.

A time limit ends an episode like death, as in the authors' code. With `bootstrap_truncated` the return continues from
there with the value of the terminal observation: r_t + gamma V(terminal observation) is the reward of that step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional as F

from agents.impala.config import Config
from agents.impala.policy import Finals, Output, State
from agents.impala.vtrace import vtrace
from e3b_gym.unroll import Unroll, tree_map

# Advantages that differ less say nothing, and are not blown up.
SMALLEST_DEVIATION = 1e-6


@dataclass
class Batch:
    """Some columns of a rollout, and what the first pass over them finds out.

    Attributes:
        unroll, state, reward: the experience, the LSTM's state before it, the environment's rewards [T, B].
        truncated: [T, B] bool, a time limit ended the episode.
        streams: rewards [T, B] and discount of each value head, with the bonus.
        terms: AGAC's terms of advantage and value target, if the method has them.
    """

    unroll: Unroll
    state: State
    reward: Tensor
    truncated: Tensor
    streams: list[tuple[Tensor, float]] = field(default_factory=list)
    terms: tuple[Tensor, Tensor] | None = None

    @property
    def time_limits(self) -> Tensor:
        """[T, B] bool: the steps that a time limit ended and whose terminal observation is known."""
        return self.truncated & self.unroll.known

    def finals(self) -> Finals:
        """The terminal observations of `time_limits`."""
        chosen = self.truncated[self.unroll.known]  # of the rows of terminal_obs, which are in row-major order
        step, env = self.time_limits.nonzero(as_tuple=True)
        return Finals(tree_map(lambda leaf: leaf[chosen], self.unroll.terminal_obs), (step, env))


def policy_losses(config: Config, batch: Batch, out: Output) -> tuple[dict[str, Tensor], dict[str, float]]:
    """The losses by name, and what else is worth a curve.

    Args:
        config: the run.
        batch: unrolls whose rewards are known.
        out: what the learner's policy says to their T+1 observations and, with `bootstrap_truncated`, to those where
            a time limit ended an episode.
    """
    unroll, terms, values = batch.unroll, batch.terms, out.values  # values [T+1, B, heads]
    log_pi = F.log_softmax(out.logits[:-1], -1)  # [T, B, A]
    log_mu = F.log_softmax(cast(Tensor, unroll.policy_logits), -1)
    chosen = log_pi.gather(-1, unroll.action[..., None])[..., 0]  # [T, B]
    log_ratio = chosen - log_mu.gather(-1, unroll.action[..., None])[..., 0]
    going_on = (~unroll.done).float()
    gain, weight, value_loss = torch.zeros_like(chosen), torch.zeros_like(chosen), torch.zeros(())
    for head, (stream, gamma) in enumerate(batch.streams):
        value, last = values[:-1, :, head], values[-1, :, head]
        if out.final_values is not None:
            stream = stream.index_put((batch.time_limits,), gamma * out.final_values[:, head], accumulate=True)
        corrections = config.rho_bar, config.c_bar, config.gae_lambda
        targets, gains, weight = vtrace(log_ratio.detach(), gamma * going_on, stream, value, last, *corrections)
        if terms is not None and head == 0:
            targets = targets + config.agac_coef * terms[1]
        gain = gain + gains
        value_loss = value_loss + 0.5 * (targets - value).square().sum(0).mean()
    advantage = gain if config.clip_range is not None else weight * gain
    if terms is not None:
        advantage = advantage + config.agac_coef * terms[0]
    entropy = -(log_pi.exp() * log_pi).sum(-1)  # [T, B]
    losses = {
        "policy_gradient": -_surrogate(config, advantage, chosen, log_ratio).sum(0).mean(),
        "value": config.vf_coef * value_loss,
        "entropy": -config.ent_coef * entropy.sum(0).mean(),
    }
    return losses, {
        "policy_entropy": entropy.mean().item(),
        "value_mean": values.mean().item(),
        "importance_ratio": float(log_ratio.detach().exp().mean()),
    }


def _surrogate(config: Config, advantage: Tensor, chosen: Tensor, log_ratio: Tensor) -> Tensor:
    """What the policy gradient climbs, [T, B]: V-trace's, or PPO's where `clip_range` is set."""
    if config.normalize_advantage:
        advantage = (advantage - advantage.mean()) / advantage.std().clamp(min=SMALLEST_DEVIATION)
    if config.clip_range is None:
        return advantage * chosen
    ratio = log_ratio.exp()
    high = config.clip_range if config.clip_range_high is None else config.clip_range_high
    clipped = ratio.clamp(1 - config.clip_range, 1 + high)
    return torch.minimum(ratio * advantage, clipped * advantage)
