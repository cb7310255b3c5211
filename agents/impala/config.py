"""Config: every number of an IMPALA run, with its default and its check.

Names are Stable-Baselines3's where it has one. The defaults are the paper's (Henaff et al. 2022, Tables 2 and 3, and
the authors' code where the paper is silent); `experiments/presets` holds what differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agents.run_config import RunConfig


@dataclass(frozen=True)
class Config(RunConfig):
    """One IMPALA run; the options that all agents share are in RunConfig."""

    engine: Literal["inline", "process"] = "process"
    """ "process" runs each actor in its own process; "inline" runs one actor in this process and is deterministic."""
    actors: int = 1
    """Number of actor processes."""
    n_envs: int = 32
    """Environments per actor."""
    n_steps: int = 80
    """Steps per unroll, T."""
    batch_size: int | None = 640
    """Environment steps per update: a multiple of n_steps that divides n_steps * n_envs. None for a whole rollout."""
    threads: int = 1
    """Threads of the learner. From 2 on, half train the encoder and half the policy, at the same time."""

    optimizer: Literal["rmsprop", "adam"] = "rmsprop"
    """Of the policy: "rmsprop" as in the paper, or "adam", whose first steps are no larger than later ones."""
    learning_rate: float = 1e-4
    """Learning rate of the policy."""
    learning_rate_final: float | None = None
    """The policy's learning rate changes linearly to this one over the run's `steps`; None keeps it constant."""
    rms_alpha: float = 0.99
    """Smoothing constant of RMSprop."""
    rms_eps: float = 1e-5
    """Epsilon of RMSprop."""
    max_grad_norm: float = 40.0
    """The policy's gradients are clipped to this norm."""
    gamma: float = 0.99
    """Discount factor."""
    ent_coef: float = 0.005
    """Weight of the entropy in the loss."""
    ent_coef_final: float | None = None
    """`ent_coef` changes linearly to this value over the run's `steps`; None keeps it constant."""
    vf_coef: float = 0.5
    """Weight of the value loss, which is half the squared error, as in IMPALA."""
    rho_bar: float = 1.0
    """Upper bound of V-trace's importance weights in the policy gradient and the temporal differences."""
    c_bar: float = 1.0
    """Upper bound of V-trace's importance weights in the trace."""
    gae_lambda: float = 1.0
    """V-trace's lambda. Less than 1 relies on the value function sooner: less variance, more bias.

    Value targets are those of GAE(lambda) on-policy; the advantage is delta_t + gamma GAE(lambda)_{t+1}, as in IMPALA,
    and not GAE(lambda) itself, which is delta_t + gamma lambda GAE(lambda)_{t+1}.
    """
    normalize_advantage: bool = False
    """Normalise the advantages of an update to mean 0 and standard deviation 1.

    PPO does so; the paper's IMPALA does not. Then `ent_coef` means the same for rewards of any size, and an error that
    the value function makes everywhere does not change the policy.
    """
    bootstrap_truncated: bool = False
    """At a time limit the return continues with the value of the terminal observation, as in Stable-Baselines3's PPO.

    Off, as in the authors' code, a time limit ends the return like death.
    """
    n_epochs: int = 1
    """Passes over each rollout. V-trace corrects for the policy's changes between passes.

    The bonus is scored and the encoder trained in the first pass only.
    """
    clip_range: float | None = None
    """PPO's clipped surrogate in place of V-trace's policy gradient, for several epochs; None for IMPALA's own."""
    clip_range_high: float | None = None
    """The upper bound, 1 + clip_range_high, where it differs from the lower one; None for `clip_range`.

    A wide one lets rare successes raise an improbable action quickly.
    """
    value_heads: Literal[1, 2] = 1
    """1 adds the bonus to the reward; 2 gives it its own value function and V-trace targets."""
    intrinsic_gamma: float | None = None
    """Discount factor of the second value head; None for `gamma`."""

    encoder_learning_rate: float = 1e-4
    """Learning rate of the encoder's Adam."""
    encoder_max_grad_norm: float = 40.0
    """The encoder's gradients are clipped to this norm."""
    agac_coef: float = 4e-4
    """Weight of AGAC's terms in the advantage and the value target."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_positive("learning_rate", "rms_eps", "max_grad_norm", "rho_bar", "c_bar")
        self._require_positive("encoder_learning_rate", "encoder_max_grad_norm")
        self._require_not_negative("ent_coef", "vf_coef", "agac_coef")
        self._require_counts("actors", "n_envs", "n_steps", "threads", "n_epochs")
        self._require_shares("gae_lambda", "gamma")
        self._require("rms_alpha", 0 <= self.rms_alpha < 1, "in [0, 1)")
        self._require("optimizer", self.optimizer in ("rmsprop", "adam"), "'rmsprop' or 'adam'")
        self._require("engine", self.engine in ("inline", "process"), "'inline' or 'process'")
        self._require("value_heads", self.value_heads in (1, 2), "1 or 2")
        if self.intrinsic_gamma is not None:
            self._require("intrinsic_gamma", 0 <= self.intrinsic_gamma <= 1, "in [0, 1], or None")
        for name in ("learning_rate_final", "ent_coef_final"):
            if getattr(self, name) is not None:
                self._require(name, getattr(self, name) >= 0, "0 or more, or None")
        if self.clip_range is not None:
            self._require("clip_range", self.clip_range > 0, "a positive number, or None")
        if self.clip_range_high is not None:
            self._require("clip_range_high", self.clip_range_high > 0, "a positive number, or None")
            self._require("clip_range_high", self.clip_range is not None, "set together with clip_range")
        if taken := sorted({"dim", "encoder", "seed"} & set(self.bonus)):
            raise ValueError(f"bonus cannot hold {', '.join(taken)}; set the run's own dim, net and seed")
        self._check_batch_size()
        if self.engine == "inline" and self.actors != 1:
            raise ValueError(f"the inline engine has one actor; got actors={self.actors}. Raise n_envs instead")

    def _check_batch_size(self) -> None:
        steps, rollout, size = self.n_steps, self.n_steps * self.n_envs, self.batch_size
        if size is not None:
            whole = isinstance(size, int) and size >= 1
            if not whole or size % steps or rollout % size:
                raise ValueError(
                    f"batch_size must be a multiple of n_steps ({steps}) that divides n_steps * n_envs ({rollout}), so "
                    f"that every unroll is used once; got {size!r}. For example {self._nearest_batch_size(size)}"
                )
        if self.normalize_advantage and (size or rollout) < 2:
            raise ValueError("normalize_advantage needs at least 2 steps per update; raise n_steps or n_envs")

    def _nearest_batch_size(self, size: float) -> int:
        fitting = [columns for columns in range(1, self.n_envs + 1) if self.n_envs % columns == 0]
        return self.n_steps * min(fitting, key=lambda columns: abs(columns * self.n_steps - size))

    @property
    def columns(self) -> int:
        """Environments per update."""
        return self.n_envs if self.batch_size is None else self.batch_size // self.n_steps
