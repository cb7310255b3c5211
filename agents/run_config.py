"""RunConfig: what every agent's run has to know, with its checks; each agent's own config adds its numbers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from e3b_gym.envs import check_options


@dataclass(frozen=True)
class RunConfig:
    """What is trained, where, and for how long.

    Attributes:
        env: an id of `e3b_gym.envs`, or any other id that Gymnasium knows.
        env_options: options of the environment (docs/environments.md).
        method: a name of `e3b_gym.METHODS`.
        bonus: options of the method and of RewardMixer (beta, ridge, clip, ...), over those of `bonus_preset`.
        bonus_preset: "default", "paper" or "authors" (`e3b_gym.presets`).
        net: "paper" or "fast" networks where a suite has both; others have one generic network.
        lstm: units of the policy's LSTM, if it has one; None for the network's own.
        dim: size of the generic encoder's embedding.
        seed: of weights, actions and worlds.
        steps: environment steps in all.
    """

    env: str
    env_options: Mapping[str, Any] = field(default_factory=dict)
    method: str = "e3b"
    bonus: Mapping[str, Any] = field(default_factory=dict)
    bonus_preset: str = "paper"
    net: Literal["paper", "fast"] = "paper"
    lstm: int | None = None
    dim: int = 256
    seed: int = 0
    steps: int = 50_000_000

    def __post_init__(self) -> None:
        check_options(self.env_options)
        self._require_counts("steps", "dim")
        seed = self.seed
        self._require("seed", isinstance(seed, int) and 0 <= seed < 2**32, "a whole number in [0, 2**32)")
        self._require("net", self.net in ("paper", "fast"), "'paper' or 'fast'")
        if self.lstm is not None:
            self._require("lstm", self.lstm >= 1, "at least 1, or None for the network's own")

    def _require(self, name: str, holds: bool, what: str) -> None:
        value = getattr(self, name)
        if not holds or (isinstance(value, float) and not math.isfinite(value)):
            raise ValueError(f"{name} must be {what}; got {value!r}")

    def _require_counts(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            self._require(name, isinstance(value, int) and value >= 1, "a whole number of at least 1")

    def _require_positive(self, *names: str) -> None:
        for name in names:
            self._require(name, getattr(self, name) > 0, "a positive number")

    def _require_not_negative(self, *names: str) -> None:
        for name in names:
            self._require(name, getattr(self, name) >= 0, "0 or more")

    def _require_shares(self, *names: str) -> None:
        for name in names:
            self._require(name, 0 <= getattr(self, name) <= 1, "in [0, 1]")

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for YAML and checkpoints."""
        return {name: dict(v) if isinstance(v, Mapping) else v for name, v in dataclasses.asdict(self).items()}
