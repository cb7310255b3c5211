"""PPOConfig: every number of a run with Stable-Baselines3's PPO or our RecurrentPPO, with its default and its check.

Names mean what they mean in IMPALA's Config. The defaults are those of the studies (`experiments.study`), which learn
on a small machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agents.run_config import RunConfig


@dataclass(frozen=True)
class PPOConfig(RunConfig):
    """One PPO run; what is common to all agents is RunConfig's.

    Attributes:
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
        baseline: weight of the value loss. The network is shared, and the value of a small bonus (beta 0.01) has small
            errors: with 0.5 their gradients drown beside normalised advantages.
        normalise_advantages: give the advantages of a minibatch mean 0 and deviation 1.
        hidden: units of the layer between the network (or its LSTM) and the heads; 0 for none.

        encoder_learning_rate: of the encoder's Adam.
        encoder_epochs: passes of the encoder over a rollout.
        encoder_batch: transitions per step of the encoder.
        encoder_max_grad_norm: its gradients are clipped to this norm.
    """

    bonus_preset: str = "default"
    net: Literal["paper", "fast"] = "fast"
    dim: int = 64
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
    baseline: float = 10.0
    normalise_advantages: bool = True
    hidden: int = 128

    encoder_learning_rate: float = 1e-3
    encoder_epochs: int = 1
    encoder_batch: int = 1024
    encoder_max_grad_norm: float = 40.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_counts("num_envs", "unroll", "minibatches", "epochs", "threads")
        self._require_counts("encoder_epochs", "encoder_batch")
        self._require_positive("learning_rate", "max_grad_norm", "clip_range")
        self._require_positive("encoder_learning_rate", "encoder_max_grad_norm")
        self._require_not_negative("entropy", "baseline", "hidden")
        self._require_shares("discount", "gae_lambda")
        rows = self.num_envs * self.unroll
        if rows % self.minibatches or rows == self.minibatches:
            raise ValueError(
                f"minibatches must divide num_envs x unroll = {rows} into pieces of at least 2 steps; got "
                f"{self.minibatches}"
            )

    @property
    def batch_size(self) -> int:
        """Steps per minibatch."""
        return self.num_envs * self.unroll // self.minibatches
