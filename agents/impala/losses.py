"""The losses of the policy, for one batch of unrolls.

    sum_t [ -rho_t gain_t log pi(a_t|s_t) + vf_coef / 2 (v_t - V(s_t))^2 - ent_coef H(pi(.|s_t))
            + uniform_coef KL(uniform, pi(.|s_t)) ]

summed over time and averaged over environments, as in IMPALA and the authors' code; v, gain and rho are V-trace's. With
`clip_range` the first term is PPO's, -min(r_t gain_t, clip(r_t) gain_t) with r_t = pi / mu, which tolerates several
passes over the same data. AGAC adds the terms of its adversary to the advantage and to the value target.

A time limit ends an episode like death, as in the authors' code. With `bootstrap_truncated` the return continues with
the value of the terminal observation: the reward of that step is r_t + gamma V(terminal observation).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from agents.impala.config import Config
from agents.impala.policy import Finals, Output, State
from agents.impala.shapes import require_shape
from agents.impala.vtrace import VTrace, vtrace
from e3b_gym.explorer import ALONE, Explorer, Peers
from e3b_gym.unroll import Unroll, tree_map

# Smaller deviations of the advantages carry no information and are not scaled up.
SMALLEST_DEVIATION = 1e-6


@dataclass(frozen=True)
class Batch:
    """Some columns of a rollout.

    Attributes:
        unroll, state, reward: the experience, the LSTM's state before it, the environment's rewards [T, B].
        truncated: [T, B] bool, a time limit ended the episode.
    """

    unroll: Unroll
    state: State
    reward: Tensor
    truncated: Tensor

    @property
    def time_limits(self) -> Tensor:
        """[T, B] bool: the steps that a time limit ended and whose terminal observation is known."""
        return self.truncated & self.unroll.known

    def finals(self) -> Finals:
        """The terminal observations of `time_limits`."""
        chosen = self.truncated[self.unroll.known]  # of the rows of terminal_obs, which are in row-major order
        step, env = self.time_limits.nonzero(as_tuple=True)
        return Finals(tree_map(lambda leaf: leaf[chosen], self.unroll.terminal_obs), (step, env))


class Rewards(NamedTuple):
    """The rewards of a batch with the bonus, computed by the first pass over it.

    Attributes:
        streams: rewards [T, B] and discount of each value head.
        terms: AGAC's terms of advantage and value target, each [T, B]; None for other methods.
    """

    streams: list[tuple[Tensor, float]]
    terms: tuple[Tensor, Tensor] | None


def reward_streams(config: Config, explorer: Explorer, reward: Tensor, bonus: Tensor) -> list[tuple[Tensor, float]]:
    """The rewards of each value head, in the shape of `reward`, with their discounts.

    With two heads a clip applies to each.
    """
    if config.value_heads == 1:
        return [(explorer.mix(reward, bonus)[0], config.gamma)]
    gamma = config.gamma if config.intrinsic_gamma is None else config.intrinsic_gamma
    outer, inner = (reward, torch.zeros_like(bonus)), (torch.zeros_like(reward), bonus)
    return [(explorer.mix(*outer)[0], config.gamma), (explorer.mix(*inner)[0], gamma)]


def policy_losses(
    config: Config, batch: Batch, rewards: Rewards, out: Output, peers: Peers = ALONE
) -> tuple[dict[str, Tensor], dict[str, float]]:
    """The losses by name, and statistics.

    Args:
        config: the run, with `ent_coef` and `clip_range_high` of this update.
        batch: the experience.
        rewards: rewards of its steps.
        out: output of the learner's policy for the T+1 observations and, with `bootstrap_truncated`, for those where
            a time limit ended an episode.
        peers: learners that have other columns of the same batch.
    """
    unroll, values = batch.unroll, out.values  # values [T+1, B, heads]
    if unroll.policy_logits is None:
        raise ValueError("the unroll has no policy_logits, so V-trace cannot compare the policies; record them")
    steps, envs = unroll.done.shape
    require_shape((steps + 1, envs, len(rewards.streams)), "[T+1, B, heads]", values=values)
    require_shape((steps + 1, *unroll.policy_logits.shape[1:]), "[T+1, B, A]", logits=out.logits)
    log_pi = F.log_softmax(out.logits[:-1], -1)  # [T, B, A]
    log_mu = F.log_softmax(unroll.policy_logits, -1)
    chosen = log_pi.gather(-1, unroll.action[..., None])[..., 0]  # [T, B]
    log_ratio = chosen - log_mu.gather(-1, unroll.action[..., None])[..., 0]
    heads = enumerate(rewards.streams)
    traces = [_trace(config, batch, stream, out, head, log_ratio.detach()) for head, stream in heads]
    gain = torch.stack([trace.gains for trace in traces]).sum(0)
    weight = traces[0].weights  # the same for all heads, which share the actions
    targets = [trace.targets for trace in traces]
    advantage = gain if config.clip_range is not None else weight * gain
    if rewards.terms is not None:
        advantage = advantage + config.agac_coef * rewards.terms[0]
        targets[0] = targets[0] + config.agac_coef * rewards.terms[1]
    errors = [target - values[:-1, :, head] for head, target in enumerate(targets)]
    value_loss = torch.stack([0.5 * error.square().sum(0).mean() for error in errors]).sum()
    entropy = -(log_pi.exp() * log_pi).sum(-1)  # [T, B]
    losses = {
        "policy_gradient": -_surrogate(config, advantage, chosen, log_ratio, peers).sum(0).mean(),
        "value": config.vf_coef * value_loss,
        "entropy": -config.ent_coef * entropy.sum(0).mean(),
    }
    if config.uniform_coef:
        losses["uniform"] = config.uniform_coef * _from_uniform(log_pi).sum(0).mean()
    return losses, {
        "policy_entropy": entropy.mean().item(),
        "value_mean": values.mean().item(),
        "importance_ratio": float(log_ratio.detach().exp().mean()),
    }


def _from_uniform(log_pi: Tensor) -> Tensor:
    """KL(uniform, pi) [T, B] of log_pi [T, B, A]: it grows without bound as any action becomes improbable."""
    return -log_pi.mean(-1) - math.log(log_pi.shape[-1])


def _trace(
    config: Config, batch: Batch, stream: tuple[Tensor, float], out: Output, head: int, log_ratio: Tensor
) -> VTrace:
    """V-trace of one value head."""
    reward, gamma = stream
    if out.final_values is not None:
        reward = reward.index_put((batch.time_limits,), gamma * out.final_values[:, head], accumulate=True)
    value, last = out.values[:-1, :, head], out.values[-1, :, head]
    bounds = config.rho_bar, config.c_bar, config.gae_lambda
    return vtrace(log_ratio, gamma * (~batch.unroll.done).float(), reward, value, last, *bounds)


def _surrogate(config: Config, advantage: Tensor, chosen: Tensor, log_ratio: Tensor, peers: Peers) -> Tensor:
    """The objective of the policy gradient, [T, B]: V-trace's, or PPO's where `clip_range` is set."""
    if config.normalize_advantage:
        everyone = peers.pool(advantage)
        advantage = (advantage - everyone.mean()) / everyone.std().clamp(min=SMALLEST_DEVIATION)
    if config.clip_range is None:
        return advantage * chosen
    ratio = log_ratio.exp()
    high = config.clip_range if config.clip_range_high is None else config.clip_range_high
    clipped = ratio.clamp(1 - config.clip_range, 1 + high)
    return torch.minimum(ratio * advantage, clipped * advantage)
