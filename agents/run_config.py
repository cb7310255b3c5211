"""RunConfig: the options that the runs of all agents have, with their checks; the config of an agent adds its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from e3b_gym.bonuses.methods import trains_weights
from e3b_gym.config import BonusConfig
from e3b_gym.devices import parse_device
from e3b_gym.envs import check_options
from e3b_gym.envs.registry import SUITES, suite_of
from e3b_gym.options import Bound, Count, Seed, Size, check_fields, closest, field_types

Envs = Annotated[int, Bound(lambda value: 1 <= value <= 2**16, "a whole number from 1 to 65536")]
Workers = Annotated[int, Bound(lambda value: 1 <= value <= 4096, "a whole number from 1 to 4096")]
"""A number of threads or processes."""
MOST_STEPS = 2**26
"""Largest number of environment steps in a rollout; a larger one is a typing error, and would exhaust the memory."""


def check_rollout(n_steps: int, n_envs: int) -> None:
    """Raises ValueError where a rollout is too long."""
    if n_steps * n_envs > MOST_STEPS:
        raise ValueError(f"n_steps * n_envs must be at most {MOST_STEPS:,}; got {n_steps:,} * {n_envs:,}")


@dataclass(frozen=True)
class RunConfig:
    """Options of a run of any agent."""

    env: str
    """An id of `e3b_gym.envs`, or any other id registered with Gymnasium."""
    env_options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the environment (docs/environments.md)."""
    bonus: BonusConfig = field(default_factory=lambda: BonusConfig.of("e3b", "paper"))
    """The bonus and its weight in the reward. It has no `dim` and no `seed`: those of the run are used."""
    net: str | None = "paper"
    """Kind of networks, if the suite has several: "paper", "fast" (smaller), in MiniHack also "moves" (`moves.py`)."""
    lstm: Size | None = None
    """Units of the policy's LSTM, if it has one; None: the size of the network."""
    dim: Size | None = 256
    """Size of the embedding of the generic encoder, for suites that have no networks."""
    seed: Seed = 0
    """Seed of weights, actions and environments."""
    steps: Count = 50_000_000
    """Total environment steps."""
    threads: Workers = 1
    """Threads of the learner."""
    device: str = "auto"
    """Where networks, memory and optimisers are: "cpu", "cuda", "cuda:1"; "auto": a GPU where there is one.

    Environments and the policies that act in them stay on the CPU.
    """

    bonus_preset: ClassVar[str] = "paper"
    """Default preset of `bonus`."""
    recurrent: ClassVar[bool] = False
    """Whether the policy has an LSTM."""
    has_networks: ClassVar[bool] = True
    """Whether the agent has networks, which must support the observations."""

    def __post_init__(self) -> None:
        check_fields(self)
        parse_device(self.device)
        check_options(self.env_options)
        self._check_net()
        if self.bonus.method is None:
            raise ValueError("bonus must name a method, so that the run can be read back; got a config without one")
        options = {name: value for name, value in self.bonus.options.items() if name not in ("dim", "encoder")}
        object.__setattr__(self, "bonus", replace(self.bonus, options=options, seed=None))
        object.__setattr__(self, "env_options", dict(self.env_options))

    def _check_net(self) -> None:
        suite = suite_of(self.env)
        nets = () if suite is None else suite.nets
        known: tuple[str | None, ...] = nets or (None, *dict.fromkeys(net for other in SUITES for net in other.nets))
        if self.has_networks and self.net not in known:
            where = f"{suite.name} has no net" if suite is not None and nets else "unknown net"
            raise ValueError(f"{where} {self.net!r}; {closest(str(self.net), [net for net in known if net])}")

    @property
    def method(self) -> str:
        """The name of the bonus."""
        return str(self.bonus.method)

    @property
    def env_groups(self) -> tuple[int, int]:
        """Number of groups of environments with separate seeds in training, and number of environments per group."""
        return 0, 0

    def env_seed(self, group: int, starts: int) -> int:
        """Returns the seed of the first environment of a group that was started `starts` times before.

        A group that starts again gets other environments, and no two groups share any.
        """
        return int(np.random.SeedSequence([self.seed, group, starts]).generate_state(1)[0])

    def env_defaults(self) -> dict[str, Any]:
        """Returns options of the environment that the run needs by default, such as the part that its bonus counts."""
        suite, key = suite_of(self.env), self.bonus.options.get("key")
        return {} if suite is None or not isinstance(key, str) else dict(suite.count_options.get(key, {}))

    def without_effect(self) -> dict[str, str]:
        """Returns the options that have no effect in this run, with the reasons; those of the bonus as bonus.<name>."""
        suite, reasons = suite_of(self.env), dict[str, str]()
        if suite is not None and suite.networks is not None:
            reasons["dim"] = f"the networks of {suite.name} have a fixed size"
        if suite is None or not suite.nets:
            reasons["net"] = f"there is one network for {self.env}"
        if not self.recurrent:
            reasons["lstm"] = "the policy of this agent has no LSTM"
        if not trains_weights(str(self.bonus.method), self.bonus.options):
            why = f"the bonus {self.bonus.method} has no weights to train"
            reasons |= {name: why for name in field_types(type(self)) if name.startswith("encoder_")}
        reasons |= {f"bonus.{name}": reason for name, reason in self.bonus.without_effect().items()}
        return reasons

    def as_dict(self) -> dict[str, Any]:
        """Returns plain data for YAML and checkpoints."""
        values = {name: getattr(self, name) for name in field_types(type(self))}
        return {**values, "env_options": dict(self.env_options), "bonus": self.bonus.as_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of `as_dict`."""
        return cls(**{**values, "bonus": BonusConfig.from_dict(values["bonus"])})
