"""Runs small enough for a test, and the equations written out in loops."""

import math

import torch

from agents.impala.actor import Actor
from agents.impala.config import Config
from agents.impala.engines.inline import InlineEngine
from agents.impala.learner import Learner
from agents.impala.rollout import Rollout
from e3b_gym.config import BonusConfig

ROOMS = {"env": "Rooms-K4-v0", "env_options": {"flat": True, "max_steps": 7}}
LAVA = {"env": "MiniHack-MultiRoom-N6-Lava-v0", "net": "fast", "lstm": 8}


def small(method: str = "e3b", **options) -> Config:
    """Rooms with episodes of 7 steps, 4 environments, unrolls of 6."""
    sizes = {"engine": "inline", "n_envs": 4, "n_steps": 6, "batch_size": None, "lstm": 8, "dim": 8}
    return Config(**{**ROOMS, **sizes, "bonus": BonusConfig.of(method, "paper"), **options})


def started(config: Config) -> tuple[InlineEngine, Learner]:
    """An inline run whose actor has the learner's weights."""
    engine = InlineEngine(config)
    learner = Learner(config, *engine.spaces)
    engine.publish(learner.policy, learner.version)
    return engine, learner


def actor_with_weights(config: Config, number: int = 0) -> tuple[Actor, Learner]:
    actor = Actor(config, number)
    learner = Learner(config, actor.envs.single_observation_space, actor.envs.single_action_space)
    actor.load(learner.policy.state_dict(), 0)
    return actor, learner


def room_for(actor: Actor, config: Config) -> Rollout:
    """An empty rollout of the sizes that the actor fills."""
    lstm = actor.policy.lstm
    sizes = actor.policy.num_actions, config.n_steps, config.n_envs, (lstm.num_layers, lstm.hidden_size)
    return Rollout.allocate(actor.envs.single_observation_space, *sizes)


def filled(actor: Actor, config: Config) -> Rollout:
    """A new rollout with the actor's next unroll."""
    rollout = room_for(actor, config)
    actor.fill(rollout)
    return rollout


def train(config: Config, rollouts: int) -> Learner:
    """The learner after so many rollouts."""
    engine, learner = started(config)
    try:
        for _ in range(rollouts):
            with engine.rollout() as rollout:
                learner.learn(rollout)
            engine.publish(learner.policy, learner.version)
    finally:
        engine.close()
    return learner


def written_out(log_ratio, discount, reward, value, last_value, rho_bar, c_bar, trace=1.0):
    """V-trace's equation 1: v_s = V(s) + sum_t (prod_{i<t} gamma_i c_i) delta_t, in loops over numbers."""
    steps, envs = reward.shape
    targets = torch.empty_like(reward)
    following = torch.cat([value, last_value[None]])
    for b in range(envs):
        for s in range(steps):
            total = float(value[s, b])
            for t in range(s, steps):
                weight = math.prod(
                    float(discount[i, b]) * trace * min(c_bar, math.exp(float(log_ratio[i, b]))) for i in range(s, t)
                )
                rho = min(rho_bar, math.exp(float(log_ratio[t, b])))
                delta = rho * float(reward[t, b] + discount[t, b] * following[t + 1, b] - value[t, b])
                total += weight * delta
            targets[s, b] = total
    rho = log_ratio.exp().clamp(max=rho_bar)
    arrived = torch.cat([targets[1:], last_value[None]])
    return targets, reward + discount * arrived - value, rho
