"""PPOConfig: every number of a run with Stable-Baselines3's PPO or our RecurrentPPO, with its default and its check.

Names are Stable-Baselines3's. The defaults learn on a small machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from agents.networks import networks_for
from agents.run_config import Envs, RunConfig, check_rollout
from e3b_gym.config import BonusConfig
from e3b_gym.options import Bound, Count, NotNegative, Positive, Share, Size


@dataclass(frozen=True)
class PPOConfig(RunConfig):
    """One PPO run; the options that all agents share are in RunConfig."""

    bonus: BonusConfig = field(default_factory=lambda: BonusConfig.of("e3b"))
    """As in RunConfig, but with the preset "default", which is for small machines; RunConfig has the paper's."""
    net: str | None = "fast"
    """As in RunConfig, but by default the smaller network, for small machines."""
    dim: Size | None = 64
    """As in RunConfig, but 64, the size in the bonus's preset "default"."""
    steps: Count = 10_000_000
    """As in RunConfig, but a fifth of the paper's, for small machines."""

    n_envs: Envs = 64
    """Number of environments."""
    n_steps: Count = 128
    """Steps per environment and rollout."""
    batch_size: Count = 1024
    """Environment steps per minibatch; divides n_steps * n_envs."""
    n_epochs: Count = 3
    """Passes over a rollout."""

    learning_rate: Positive = 5e-4
    """Learning rate of the policy's Adam."""
    max_grad_norm: Positive = 0.5
    """The policy's gradients are clipped to this norm."""
    gamma: Share = 0.99
    """Discount factor."""
    gae_lambda: Share = 0.95
    """Lambda of generalised advantage estimation (GAE)."""
    clip_range: Positive = 0.2
    """Bound of the probability ratio, 1 +- clip_range."""
    ent_coef: NotNegative = 0.01
    """Weight of the entropy in the loss."""
    vf_coef: NotNegative = 10.0
    """Weight of the value loss, the squared error.

    The network is shared, and the value of a small bonus (beta 0.01) has small errors: with 0.5 their gradients are
    negligible next to those of normalised advantages.
    """
    normalize_advantage: bool = True
    """Normalise the advantages of a minibatch to mean 0 and standard deviation 1."""
    features: Literal["encoder", "flat"] = "encoder"
    """What the layers in front of the heads read: "encoder" is the suite's network or the generic one, shared by policy
    and value; "flat" is the observation as a flat vector, with separate layers for policy and value (MlpPolicy)."""
    hidden: Annotated[int, Bound(lambda value: 0 <= value <= 2**24, "a whole number from 0 to 2**24")] = 128
    """Units of each layer between the features (or the LSTM) and the heads; 0 for no layer."""
    hidden_layers: Annotated[int, Bound(lambda value: 1 <= value <= 100, "a whole number from 1 to 100")] = 1
    """Number of these layers."""

    encoder_learning_rate: Positive = 1e-3
    """Learning rate of the encoder's Adam."""
    encoder_epochs: Count = 1
    """Passes of the encoder over a rollout."""
    encoder_batch_size: Count = 1024
    """Transitions per step of the encoder."""
    encoder_max_grad_norm: Positive = 40.0
    """The encoder's gradients are clipped to this norm."""

    bonus_preset: ClassVar[str] = "default"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.has_networks and networks_for(self).action_scores is not None:
            raise ValueError(f"net={self.net} adds to the logits of IMPALA's policy; use net=fast with this agent")
        check_rollout(self.n_steps, self.n_envs)
        rollout = self.n_steps * self.n_envs
        if rollout % self.batch_size or self.batch_size < 2:
            raise ValueError(
                f"batch_size must be at least 2 and divide n_steps * n_envs ({rollout}); got {self.batch_size}"
            )

    @property
    def env_groups(self) -> tuple[int, int]:
        return 1, self.n_envs

    def without_effect(self) -> dict[str, str]:
        reasons = super().without_effect()
        if not self.hidden:
            reasons["hidden_layers"] = "hidden=0 leaves out these layers"
        return reasons


@dataclass(frozen=True)
class RecurrentPPOConfig(PPOConfig):
    """One RecurrentPPO run: PPO with the LSTM of IMPALA's policy."""

    recurrent: ClassVar[bool] = True
