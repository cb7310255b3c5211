"""PPOConfig: every number of a run with Stable-Baselines3's PPO or our RecurrentPPO, with its default and its check.

Names mean what they mean in IMPALA's Config. The defaults are those of the studies (`experiments.study`), which learn
on a small machine.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class PPOConfig:
    """One PPO run.

    Attributes:
        env: an id of `e3b_gym.envs`, or any other id that Gymnasium knows.
        env_options: options of the environment (docs/environments.md).
        method: a name of `e3b_gym.METHODS`.
        bonus: options of the method and of RewardMixer (beta, ridge, clip, ...), over those of `bonus_preset`.
        bonus_preset: "default", "paper" or "authors" (`e3b_gym.presets`).
        net: "paper" or "fast" networks for MiniHack; other suites have one generic network for both.
        dim: size of the generic encoder's embedding.
        seed: of weights, actions and worlds.
        steps: environment steps in all.

        num_envs: environments.
        unroll: steps per environment and rollout.
        minibatches: pieces of a rollout, one gradient step each.
        epochs: passes over a rollout.
        threads: of the learner.

        learning_rate: of the policy's Adam.
        max_grad_norm: gradients of the policy are clipped to this norm.
        discount: gamma.
        gae_lambda: of the advantages.
        clip_range: of the probability ratio.
        entropy: weight of the entropy bonus.
        baseline: weight of the value loss.
        hidden: units of the layer between the network (or its LSTM) and the heads.
        lstm: units of the LSTM of recurrent_ppo; None for the network's own.

        encoder_learning_rate: of the encoder's Adam.
        encoder_epochs: passes of the encoder over a rollout.
        encoder_batch: transitions per step of the encoder.
        encoder_max_grad_norm: its gradients are clipped to this norm.
    """

    env: str
    env_options: Mapping[str, Any] = field(default_factory=dict)
    method: str = "e3b"
    bonus: Mapping[str, Any] = field(default_factory=dict)
    bonus_preset: str = "default"
    net: Literal["paper", "fast"] = "fast"
    dim: int = 64
    seed: int = 0
    steps: int = 10_000_000

    num_envs: int = 64
    unroll: int = 128
    minibatches: int = 8
    epochs: int = 3
    threads: int = 1

    learning_rate: float = 5e-4
    max_grad_norm: float = 0.5
    discount: float = 0.99
    gae_lambda: float = 0.95
    clip_range: float = 0.2
    entropy: float = 0.01
    baseline: float = 0.5
    hidden: int = 128
    lstm: int | None = None

    encoder_learning_rate: float = 1e-3
    encoder_epochs: int = 1
    encoder_batch: int = 1024
    encoder_max_grad_norm: float = 40.0

    def __post_init__(self) -> None:
        for name in ("steps", "num_envs", "unroll", "minibatches", "epochs", "threads", "hidden", "dim"):
            self._require(name, getattr(self, name) >= 1, "at least 1")
        for name in ("encoder_epochs", "encoder_batch"):
            self._require(name, getattr(self, name) >= 1, "at least 1")
        for name in ("learning_rate", "max_grad_norm", "clip_range", "encoder_learning_rate", "encoder_max_grad_norm"):
            self._require(name, getattr(self, name) > 0, "a positive number")
        for name in ("entropy", "baseline"):
            self._require(name, getattr(self, name) >= 0, "0 or more")
        for name in ("discount", "gae_lambda"):
            self._require(name, 0 <= getattr(self, name) <= 1, "in [0, 1]")
        self._require("net", self.net in ("paper", "fast"), "'paper' or 'fast'")
        if self.lstm is not None:
            self._require("lstm", self.lstm >= 1, "at least 1, or None for the network's own")
        rows = self.num_envs * self.unroll
        if rows % self.minibatches or rows == self.minibatches:
            raise ValueError(
                f"minibatches must divide num_envs x unroll = {rows} into pieces of at least 2 steps; got "
                f"{self.minibatches}"
            )

    def _require(self, name: str, holds: bool, what: str) -> None:
        value = getattr(self, name)
        if not holds or (isinstance(value, float) and not math.isfinite(value)):
            raise ValueError(f"{name} must be {what}; got {value!r}")

    @property
    def batch_size(self) -> int:
        """Steps per minibatch."""
        return self.num_envs * self.unroll // self.minibatches

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for YAML."""
        return {name: dict(v) if isinstance(v, Mapping) else v for name, v in dataclasses.asdict(self).items()}
