"""PPOConfig: every number of a run with Stable-Baselines3's PPO or our RecurrentPPO, with its default and its check.

Names are Stable-Baselines3's. The defaults learn on a small machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agents.run_config import RunConfig


@dataclass(frozen=True)
class PPOConfig(RunConfig):
    """One PPO run; the options that all agents share are in RunConfig."""

    bonus_preset: str = "default"
    net: Literal["paper", "fast"] = "fast"
    dim: int = 64
    steps: int = 10_000_000

    n_envs: int = 64
    """Number of environments."""
    n_steps: int = 128
    """Steps per environment and rollout."""
    batch_size: int = 1024
    """Environment steps per minibatch; divides n_steps * n_envs."""
    n_epochs: int = 3
    """Passes over a rollout."""
    threads: int = 1
    """Threads of the learner."""

    learning_rate: float = 5e-4
    """Learning rate of the policy's Adam."""
    max_grad_norm: float = 0.5
    """The policy's gradients are clipped to this norm."""
    gamma: float = 0.99
    """Discount factor."""
    gae_lambda: float = 0.95
    """Lambda of generalised advantage estimation (GAE)."""
    clip_range: float = 0.2
    """Bound of the probability ratio, 1 +- clip_range."""
    ent_coef: float = 0.01
    """Weight of the entropy in the loss."""
    vf_coef: float = 10.0
    """Weight of the value loss, the squared error.

    The network is shared, and the value of a small bonus (beta 0.01) has small errors: with 0.5 their gradients are
    negligible next to those of normalised advantages.
    """
    normalize_advantage: bool = True
    """Normalise the advantages of a minibatch to mean 0 and standard deviation 1."""
    features: Literal["encoder", "flat"] = "encoder"
    """What the layers in front of the heads read: "encoder" is the suite's network or the generic one, shared by policy
    and value; "flat" is the observation as a flat vector, with separate layers for policy and value (MlpPolicy)."""
    hidden: int = 128
    """Units of each layer between the features (or the LSTM) and the heads; 0 for no layer."""
    hidden_layers: int = 1
    """Number of these layers."""

    encoder_learning_rate: float = 1e-3
    """Learning rate of the encoder's Adam."""
    encoder_epochs: int = 1
    """Passes of the encoder over a rollout."""
    encoder_batch_size: int = 1024
    """Transitions per step of the encoder."""
    encoder_max_grad_norm: float = 40.0
    """The encoder's gradients are clipped to this norm."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_counts("n_envs", "n_steps", "batch_size", "n_epochs", "threads")
        self._require_counts("encoder_epochs", "encoder_batch_size", "hidden_layers")
        self._require("features", self.features in ("encoder", "flat"), "'encoder' or 'flat'")
        self._require_positive("learning_rate", "max_grad_norm", "clip_range")
        self._require_positive("encoder_learning_rate", "encoder_max_grad_norm")
        self._require_not_negative("ent_coef", "vf_coef", "hidden")
        self._require_shares("gamma", "gae_lambda")
        rollout = self.n_steps * self.n_envs
        if rollout % self.batch_size or self.batch_size < 2:
            raise ValueError(
                f"batch_size must be at least 2 and divide n_steps * n_envs ({rollout}); got {self.batch_size}"
            )
