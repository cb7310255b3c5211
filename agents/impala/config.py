"""Config: every number of an IMPALA run, with its default and its check.

Names are Stable-Baselines3's where it has one. The defaults are the paper's (Henaff et al. 2022, Tables 2 and 3, and
the authors' code where the paper is silent); the suites' presets.yaml hold what differs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import torch

from agents.run_config import Envs, RunConfig, Workers, check_rollout
from e3b_gym.config import family_of
from e3b_gym.devices import find_device, parse_device
from e3b_gym.options import Count, NotNegative, Positive, Share, WholeNumber, closest

ENGINES: dict[str, Callable[..., Any] | str] = {
    "inline": "agents.impala.engines.inline:InlineEngine",
    "process": "agents.impala.engines.process:ProcessEngine",
    "ray": "agents.impala.engines.ray:RayEngine",
}
"""The engines by name, each as a class or where it is; `agents.impala.engines.register_engine` adds another."""


@dataclass(frozen=True)
class Config(RunConfig):
    """One IMPALA run; the options that all agents share are in RunConfig."""

    engine: str = "process"
    """ "process" runs each actor in its own process; "inline" runs one actor in this process and is deterministic;
    "ray" runs each on a core of a Ray cluster (docs/scaling.md). docs/extending.md shows how to add another."""
    actors: Workers = 1
    """Number of actor processes."""
    ray_address: str | None = None
    """host:port of the Ray cluster for engine "ray" and for `learners`, or "auto" for the one that this machine is in.

    None starts a Ray on this machine for this run if the engine is "ray", and keeps learners on this machine.
    """
    n_envs: Envs = 32
    """Environments per actor."""
    n_steps: Count = 80
    """Steps per unroll, T."""
    batch_size: Count | None = 640
    """Environment steps per update: a multiple of n_steps that divides n_steps * n_envs. None for a whole rollout."""
    threads: Workers = 1
    """Threads of the learner. From 2 on, half train the encoder and half the policy, at the same time."""
    learners: Workers = 1
    """Number of learner processes that divide every update, on this machine or on a Ray cluster (docs/scaling.md).

    Each has its own actors, as many as `actors`, with n_envs / learners environments each, and learns from batch_size /
    learners steps of an update. Gradients are averaged, so the same is learned from a frame, up to rounding.
    """

    optimizer: Literal["rmsprop", "adam"] = "rmsprop"
    """Optimiser of the policy: "rmsprop" as in the paper, or "adam", whose first steps are no larger than the later."""
    learning_rate: Positive = 1e-4
    """Learning rate of the policy."""
    learning_rate_final: NotNegative | None = None
    """The policy's learning rate changes linearly to this one over the run's `steps`; None keeps it constant."""
    rms_alpha: Share = 0.99
    """Smoothing constant of RMSprop."""
    rms_eps: Positive = 1e-5
    """Epsilon of RMSprop."""
    max_grad_norm: Positive = 40.0
    """The policy's gradients are clipped to this norm."""
    gamma: Share = 0.99
    """Discount factor."""
    ent_coef: NotNegative = 0.005
    """Weight of the entropy in the loss."""
    ent_coef_final: NotNegative | None = None
    """`ent_coef` changes linearly to this value over the run's `steps`; None keeps it constant."""
    uniform_coef: NotNegative = 0.0
    """Weight of KL(uniform, pi) in the loss, which keeps the probability of every action away from 0.

    The pull of the entropy on an action vanishes with its probability, this one does not: an action with advantage -A
    settles near uniform_coef / (A * number of actions).
    """
    uniform_coef_final: Positive | None = None
    """`uniform_coef` changes geometrically to this value over the run's `steps`; None keeps it constant."""
    vf_coef: NotNegative = 0.5
    """Weight of the value loss, which is half the squared error, as in IMPALA."""
    rho_bar: Positive = 1.0
    """Upper bound of V-trace's importance weights in the policy gradient and the temporal differences."""
    c_bar: Positive = 1.0
    """Upper bound of V-trace's importance weights in the trace."""
    gae_lambda: Share = 1.0
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
    n_epochs: Count = 1
    """Passes over each rollout. V-trace corrects for the policy's changes between passes.

    The bonus is scored and the encoder trained in the first pass only.
    """
    clip_range: Positive | None = None
    """PPO's clipped surrogate in place of V-trace's policy gradient, for several epochs; None for IMPALA's own."""
    clip_range_high: Positive | None = None
    """The upper bound, 1 + clip_range_high, where it differs from the lower one; None for `clip_range`.

    A wide one lets rare successes raise an improbable action quickly.
    """
    beta_final: NotNegative | None = None
    """The bonus's `beta` changes linearly to this value over the run's `steps`; None keeps it constant."""
    clip_range_high_final: Positive | None = None
    """`clip_range_high` changes linearly to this value over the run's `steps`; None keeps it constant."""
    value_heads: Literal[1, 2] = 1
    """1 adds the bonus to the reward; 2 gives it its own value function and V-trace targets."""
    intrinsic_gamma: Share | None = None
    """Discount factor of the second value head; None for `gamma`."""

    encoder_learning_rate: Positive = 1e-4
    """Learning rate of the encoder's Adam."""
    encoder_max_grad_norm: Positive = 40.0
    """The encoder's gradients are clipped to this norm."""
    agac_coef: NotNegative = 4e-4
    """Weight of AGAC's terms in the advantage and the value target."""

    recurrent: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_rollout(self.n_steps, self.n_envs)
        if self.engine not in ENGINES:
            raise ValueError(f"unknown engine {self.engine!r}; {closest(self.engine, ENGINES)}")
        if self.rms_alpha == 1:
            raise ValueError("rms_alpha must be less than 1, or RMSprop never adapts; got 1.0")
        if self.intrinsic_gamma is not None and self.value_heads == 1:
            raise ValueError("intrinsic_gamma is the discount of the second value head; set value_heads=2 as well")
        if self.clip_range_high is not None and self.clip_range is None:
            raise ValueError("clip_range_high is the upper bound of clip_range; set both, or clip_range_high=none")
        if self.clip_range_high_final is not None and self.clip_range_high is None:
            raise ValueError("clip_range_high_final ends clip_range_high; set both, or clip_range_high_final=none")
        if self.uniform_coef_final is not None and self.uniform_coef == 0:
            raise ValueError("uniform_coef_final ends uniform_coef, which is 0; set both, or uniform_coef_final=none")
        self._check_batch_size()
        if self.engine == "inline" and self.actors != 1:
            raise ValueError(f"the inline engine has one actor; got actors={self.actors}. Raise n_envs instead")
        if self.columns % self.learners:
            raise ValueError(
                f"the environments of an update ({self.columns}: batch_size / n_steps) must be a multiple of learners, "
                f"so that each takes the same number; got learners={self.learners}"
            )

    @property
    def env_groups(self) -> tuple[int, int]:
        return self.learners * self.actors, self.n_envs

    @property
    def learners_on_ray(self) -> bool:
        """Whether learners other than learner 0 are on a Ray cluster."""
        return self.learners > 1 and (self.engine == "ray" or self.ray_address is not None)

    def part(self, rank: int) -> Config:
        """Returns what learner `rank` takes of the run: the run itself if it is the only one."""
        if self.learners == 1:
            return self
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        shared = {"learners": 1, "n_envs": self.n_envs // self.learners, "rank": rank}
        size = None if self.batch_size is None else self.batch_size // self.learners
        return PartConfig(**{**values, **shared, "batch_size": size, "device": self._device_of(rank)})

    def _device_of(self, rank: int) -> str:
        """The device of a learner: the CPU, or a GPU that no other learner uses."""
        device, chosen = find_device(self.device), parse_device(self.device)
        if device.type == "cpu":
            return "cpu"
        if self.learners_on_ray:
            own = chosen is not None and chosen.index is not None and rank == 0
            return str(device) if own else f"{device.type}:0"  # of the GPUs that Ray lets a learner see
        count = torch.cuda.device_count()
        if (chosen is not None and chosen.index is not None) or count < self.learners:
            raise ValueError(
                f"each of the {self.learners} learners needs its own GPU, and there are {count}; use "
                "device='cpu', or device='cuda' with as many learners as GPUs"
            )
        return f"{device.type}:{rank}"

    def without_effect(self) -> dict[str, str]:
        reasons = super().without_effect()
        if family_of(self.method) != "agac":
            reasons["agac_coef"] = f"it weighs AGAC's terms, and the bonus is {self.method}"
        if self.method == "none":
            reasons["beta_final"] = "there is no bonus"
        if self.engine != "ray" and self.learners == 1:
            reasons["ray_address"] = f"the engine is {self.engine}, with one learner"
        if self.optimizer == "adam":
            reasons |= dict.fromkeys(("rms_alpha", "rms_eps"), "the optimizer is adam")
        return reasons

    def _check_batch_size(self) -> None:
        steps, rollout, size = self.n_steps, self.n_steps * self.n_envs, self.batch_size
        if size is not None and (size % steps or rollout % size):
            raise ValueError(
                f"batch_size must be a multiple of n_steps ({steps}) that divides n_steps * n_envs ({rollout}), so "
                f"that every unroll is used once; got {size!r}. For example {self._nearest_batch_size(size)}"
            )
        if self.normalize_advantage and (size or rollout) < 2:
            raise ValueError(
                "normalize_advantage needs at least 2 steps per update; raise batch_size, n_steps or n_envs"
            )

    def _nearest_batch_size(self, size: float) -> int:
        fitting = [columns for columns in range(1, self.n_envs + 1) if self.n_envs % columns == 0]
        return self.n_steps * min(fitting, key=lambda columns: abs(columns * self.n_steps - size))

    @property
    def columns(self) -> int:
        """Environments per update."""
        return self.n_envs if self.batch_size is None else self.batch_size // self.n_steps


@dataclass(frozen=True)
class PartConfig(Config):
    """The share of one of several learners in a run; made by `Config.part`."""

    rank: WholeNumber = 0
    """Number of the learner."""

    def env_seed(self, group: int, starts: int) -> int:
        return super().env_seed(self.rank * self.actors + group, starts)  # the actors of all learners are numbered
