"""A stand-in for the authors' training loop, to measure the cost of a frame computed as in their code.

Written from what is known of their release, with our environments, networks, losses and V-trace, so that only the
computation differs:
    acting      one environment at a time: a policy forward and an encoder forward with B = 1 for every step
    bonus       a float32 inverse per environment, updated by Sherman-Morrison at every step
    learning    B = 8 unrolls of T = 80, plain modules, nn.LSTM called step by step because of the resets; the encoder
                is run again for the inverse model
It favours the authors in two ways: the environments are ours (several times faster than MiniHack's own), and each
process alternates between acting and learning without queues or waiting, so that two of them use two cores fully.
"""

from __future__ import annotations

import time
from dataclasses import replace

import torch
from torch import nn

from agents.impala.actor import Actor
from agents.impala.config import Config
from agents.impala.learner import Learner
from agents.impala.policy import Policy
from agents.impala.rollout import Rollout
from agents.networks import networks_for
from benchmarks.elliptical_peers import ShermanMorrison
from e3b_gym.config import BonusConfig
from e3b_gym.encoders import InverseHead, Networks
from e3b_gym.envs.minihack.network import minihack_network
from e3b_gym.unroll import tree_map

ENVS, STEPS, RIDGE = 8, 80, 0.1


class AuthorsLoop:
    """Acts and learns with E3B, or without a bonus, one iteration (8 x 80 frames) at a time.

    Args:
        config: configuration of the run; network sizes and hyper-parameters are taken from it.
        bonus: False: without encoder and ellipse.
    """

    def __init__(self, config: Config, bonus: bool = True) -> None:
        networks = _plain(config)
        alone = replace(config, engine="inline", actors=1, threads=1, bonus=BonusConfig.of("none"))
        self.config = replace(alone, n_envs=ENVS, batch_size=None, n_steps=STEPS)
        self.actors = [Actor(replace(self.config, n_envs=1), i) for i in range(ENVS)]
        spaces = self.actors[0].envs.single_observation_space, self.actors[0].envs.single_action_space
        for actor in self.actors:
            actor.policy = Policy(networks, *spaces)
            actor.policy.lstm.fused = False
        self.learner = Learner(self.config, *spaces)
        self.learner.policy = self.actors[0].policy
        shape = (networks.lstm_layers, networks.lstm)
        self.single = [Rollout.allocate(spaces[0], self.actors[0].policy.num_actions, 1, 1, shape) for _ in range(ENVS)]
        self.whole = Rollout.allocate(spaces[0], self.actors[0].policy.num_actions, STEPS, ENVS, shape)
        self.encoder = networks.phi(spaces[0]) if bonus else None
        if self.encoder is not None:
            dim = int(self.encoder.dim)  # type: ignore[arg-type]
            self.inverse = InverseHead(dim, spaces[1])
            self.ellipses = [ShermanMorrison(1, dim, RIDGE) for _ in range(ENVS)]
            self.weights = [*self.encoder.parameters(), *self.inverse.parameters()]
            self.optimizer = torch.optim.Adam(self.weights, lr=config.encoder_learning_rate)
        self.learner.policy_optimizer = torch.optim.RMSprop(
            self.learner.policy.parameters(), lr=config.learning_rate, alpha=config.rms_alpha, eps=config.rms_eps
        )

    def iterate(self, steps: int = STEPS) -> tuple[int, float, float]:
        """Runs one iteration; returns frames, seconds of acting and seconds of learning. Fewer `steps`: a warm-up."""
        start = time.perf_counter()
        for env in range(ENVS):
            for t in range(steps):
                self._act(env, t)
        middle = time.perf_counter()
        self._learn()
        return ENVS * steps, middle - start, time.perf_counter() - middle

    def _act(self, env: int, t: int) -> None:
        actor, step, whole = self.actors[env], self.single[env], self.whole
        actor.fill(step)
        if t == 0:
            whole.starts[env], whole.state[:, :, env] = step.starts[0], step.state[:, :, 0]
            tree_map(lambda to, of: to.__setitem__((0, env), of[0, 0]), whole.obs, step.obs)
        tree_map(lambda to, of: to.__setitem__((t + 1, env), of[1, 0]), whole.obs, step.obs)
        for name in ("action", "reward", "done", "logits"):
            getattr(whole, name)[t, env] = getattr(step, name)[0, 0]
        if self.encoder is not None:
            with torch.no_grad():
                phi = self.encoder(tree_map(lambda leaf: torch.from_numpy(leaf[1]), step.obs))  # [1, d]
                first = torch.from_numpy(step.starts)[None]
                bonus = self.ellipses[env](phi[None], first)
            whole.reward[t, env] += float(bonus[0, 0]) * 1e-3

    def _learn(self) -> None:
        if self.encoder is not None:
            rows = tree_map(lambda leaf: torch.from_numpy(leaf).flatten(0, 1), self.whole.obs)
            phi = self.encoder(rows).view(STEPS + 1, ENVS, -1)
            loss = self.inverse(phi[:-1], phi[1:], torch.from_numpy(self.whole.action)).mean()
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.weights, 40.0)
            self.optimizer.step()
        self.learner.learn(self.whole)
        for actor in self.actors[1:]:
            actor.policy.load_state_dict(self.learner.policy.state_dict())


def _plain(config: Config) -> Networks:
    networks = networks_for(config)
    norm = config.net == "fast"
    return replace(
        networks,
        trunk=lambda space: minihack_network(space, config.net, layer_norm=False, accelerate=False),
        phi=lambda space: minihack_network(space, config.net, layer_norm=norm, accelerate=False),
    )
