"""Config: every number of a training run, with its default and its check.

The defaults are the paper's (Henaff et al. 2022, Tables 2 and 3, and the authors' code where the paper is silent);
`experiments/presets` holds what differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agents.run_config import RunConfig


@dataclass(frozen=True)
class Config(RunConfig):
    """One IMPALA run; what is common to all agents is RunConfig's.

    Attributes:
        engine: "process" (actors in processes of their own) or "inline" (all in one, deterministic).
        actors: how many processes act.
        num_envs: environments per actor.
        unroll: steps per unroll, T.
        batch: environments (columns) per update; None for all of an actor's.
        threads: of the learner; from 2 on, half are the encoder's and half the policy's, which learn side by side.

        optimizer: of the policy: "rmsprop" (the paper) or "adam", whose first steps are no larger than later ones.
        learning_rate: of the policy.
        rms_alpha, rms_eps: of RMSprop.
        max_grad_norm: gradients of the policy are clipped to this norm.
        discount: gamma.
        entropy: weight of the entropy bonus.
        baseline: weight of the value loss, half the squared error.
        rho_bar, c_bar: where V-trace cuts its importance weights.
        trace: V-trace's lambda; 1 trusts returns as far as the unroll goes, less trusts the value function sooner.
        normalise_advantages: give the advantages of an update mean 0 and deviation 1, so that `entropy` means the same
            whatever the size of the rewards, and an error that the value function makes everywhere pushes no action.
            PPO does so; the paper's IMPALA does not.
        passes: how often an update's frames are learned from; V-trace corrects for the policy's changes between passes.
            The bonus is scored and the encoder trained in the first pass only.
        policy_clip: PPO's clipped surrogate in place of V-trace's policy gradient, so that several passes cannot carry
            the policy further than this from the one that acted; None for IMPALA's own.
        policy_clip_high: the bound above, 1 + policy_clip_high, where it differs from the one below; None for
            `policy_clip`. A wide one lets rare successes raise an improbable action quickly.
        value_heads: 1 puts the bonus into the reward; 2 gives it a value function and V-trace targets of its own.
        intrinsic_discount: gamma of the second head; None for `discount`.

        encoder_learning_rate: of the encoder's Adam.
        encoder_max_grad_norm: its gradients are clipped to this norm.
        agac_coef: weight of AGAC's terms in advantage and value target.
    """

    engine: Literal["inline", "process"] = "process"
    actors: int = 1
    num_envs: int = 32
    unroll: int = 80
    batch: int | None = 8
    threads: int = 1

    optimizer: Literal["rmsprop", "adam"] = "rmsprop"
    learning_rate: float = 1e-4
    rms_alpha: float = 0.99
    rms_eps: float = 1e-5
    max_grad_norm: float = 40.0
    discount: float = 0.99
    entropy: float = 0.005
    baseline: float = 0.5
    rho_bar: float = 1.0
    c_bar: float = 1.0
    trace: float = 1.0
    normalise_advantages: bool = False
    passes: int = 1
    policy_clip: float | None = None
    policy_clip_high: float | None = None
    value_heads: Literal[1, 2] = 1
    intrinsic_discount: float | None = None

    encoder_learning_rate: float = 1e-4
    encoder_max_grad_norm: float = 40.0
    agac_coef: float = 4e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_positive("learning_rate", "rms_eps", "max_grad_norm", "rho_bar", "c_bar")
        self._require_positive("encoder_learning_rate", "encoder_max_grad_norm")
        self._require_not_negative("entropy", "baseline", "agac_coef")
        self._require_counts("actors", "num_envs", "unroll", "threads", "passes")
        self._require_shares("trace", "discount")
        self._require("rms_alpha", 0 <= self.rms_alpha < 1, "in [0, 1)")
        self._require("optimizer", self.optimizer in ("rmsprop", "adam"), "'rmsprop' or 'adam'")
        self._require("engine", self.engine in ("inline", "process"), "'inline' or 'process'")
        self._require("value_heads", self.value_heads in (1, 2), "1 or 2")
        if self.intrinsic_discount is not None:
            self._require("intrinsic_discount", 0 <= self.intrinsic_discount <= 1, "in [0, 1], or None")
        if self.policy_clip is not None:
            self._require("policy_clip", self.policy_clip > 0, "a positive number, or None")
        if self.policy_clip_high is not None:
            self._require("policy_clip_high", self.policy_clip_high > 0, "a positive number, or None")
            self._require("policy_clip_high", self.policy_clip is not None, "set together with policy_clip")
        if taken := sorted({"dim", "encoder", "seed"} & set(self.bonus)):
            raise ValueError(f"bonus cannot hold {', '.join(taken)}; set the run's own dim, net and seed")
        if self.batch is not None and (self.batch < 1 or self.num_envs % self.batch):
            raise ValueError(
                f"batch must divide num_envs ({self.num_envs}), so that every unroll is used once; got {self.batch}"
            )
        if self.engine == "inline" and self.actors != 1:
            raise ValueError(f"the inline engine has one actor; got actors={self.actors}. Raise num_envs instead")

    @property
    def columns(self) -> int:
        """Environments per update."""
        return self.batch or self.num_envs
