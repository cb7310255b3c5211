"""The data of a run that an engine needs before its actors exist: spaces, sizes of a rollout, weights."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from agents.impala.actor import Actor, EnvMaker
from agents.impala.config import Config
from agents.impala.policy import Policy
from agents.impala.rollout import Rollout, Zeros

Spaces = tuple[gym.Space[Any], gym.Space[Any]]


@dataclass(frozen=True)
class RolloutLayout:
    """The arguments of `Rollout.allocate`."""

    observation_space: gym.Space[Any]
    num_actions: int
    steps: int
    num_envs: int
    state_shape: tuple[int, int]

    @classmethod
    def of(cls, config: Config, policy: Policy, observation_space: gym.Space[Any]) -> RolloutLayout:
        state_shape = policy.lstm.num_layers, policy.lstm.hidden_size
        return cls(observation_space, policy.num_actions, config.n_steps, config.n_envs, state_shape)

    def __call__(self, zeros: Zeros = np.zeros) -> Rollout:
        shape = self.observation_space, self.num_actions, self.steps, self.num_envs, self.state_shape
        return Rollout.allocate(*shape, zeros)


def describe(config: Config, make: EnvMaker) -> tuple[RolloutLayout, Spaces, dict[str, Tensor]]:
    """Asks a small actor for shapes, spaces and weights."""
    with torch.random.fork_rng(devices=[]):
        actor = Actor(dataclasses.replace(config, n_envs=1, batch_size=None, normalize_advantage=False), make=make)
    actor.close()
    policy, spaces = actor.policy, (actor.envs.single_observation_space, actor.envs.single_action_space)
    return RolloutLayout.of(config, policy, spaces[0]), spaces, policy.state_dict()
