"""Which suites there are, which ids each one serves, and what to say when an id or a simulator is missing.

A suite is one module with `make(id, **options)` and, where it steps its own batches, `make_vec(id, num_envs,
**options)`, plus a table `TASKS: dict[id, record]` that can be imported without the simulator. Its folder may hold its
networks and `presets.yaml`, the settings of the agents for it. This is the only module that knows a prefix, and it
imports no simulator. `register_suite` adds a suite of another package.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

import gymnasium

if TYPE_CHECKING:
    from e3b_gym.encoders import Networks


class TaskRecord(Protocol):
    """What every entry of a suite's `TASKS` tells about its id."""

    @property
    def kind(self) -> str: ...
    @property
    def actions(self) -> tuple[str, ...]: ...
    @property
    def max_steps(self) -> int | None: ...
    @property
    def source(self) -> str: ...


@dataclass(frozen=True)
class Task:
    """One id of a suite, for suites that need no more than this."""

    kind: str
    """What the task asks for, in one word: navigation, keys, ..."""
    actions: tuple[str, ...]
    """The name of each discrete action, in order."""
    max_steps: int | None
    """Steps (of the agent, not of the simulator) until the episode is truncated."""
    source: str
    """Who used it, and where the level comes from."""


@dataclass(frozen=True)
class Suite:
    """Where the code, the table and the simulator of a family of ids are found."""

    name: str
    prefix: str
    """How its ids begin."""
    module: str
    tasks: str
    """The module that holds `TASKS`."""
    simulator: str | None = None
    """The package it needs; None when it needs nothing beyond this library."""
    extra: str | None = None
    """The pip extra that installs the simulator."""
    registers: str | None = None
    """The module whose import adds the simulator's own ids to Gymnasium."""
    serves_all: bool = False
    """Whether its `make` takes every id with the prefix, not only those in `TASKS`."""
    limit_option: str = "max_steps"
    """What its `make` calls the number of steps until truncation."""
    adds_noise: bool = False
    """Whether its `make` takes the options `clock` (True or False) and `noise` itself."""
    options: tuple[str, ...] = ()
    """Where the options of its `make` are found, as module:name of dataclasses and functions, for their types."""
    other_options: bool = False
    """Whether `make` takes more options than those, which have no type."""
    networks: str | None = None
    """The module with `networks(net)`, or `networks()` where there is one kind; None for the generic ones."""
    nets: tuple[str, ...] = ()
    """The kinds of networks, where there are several."""
    learns_tasks_only: bool = False
    """Whether the networks suit the ids of `TASKS` alone."""
    count_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By the key of a count ("position", ...), the options that make the observation show it."""
    rollout_options: Mapping[str, Any] = field(default_factory=dict)
    """Options of `make_vec` for callers that copy every observation at once."""
    random_options: Mapping[str, Any] = field(default_factory=dict)
    """Options of `make` for an agent that acts at random."""
    ends_with_moves: bool = False
    """Whether the last three actions are forward, left and right, as AGENT=random-forward needs."""
    reward_free: bool = False
    """Whether a run is measured by its coverage (`make homes`), not by reward."""

    def load(self) -> ModuleType:
        """The module with `make`.

        Raises:
            SuiteNotInstalledError: The simulator is not there.
        """
        self.require_simulator()
        return importlib.import_module(self.module)

    def serves(self, id: str) -> bool:
        """Whether `make` of this suite takes the id; the simulator's other ids go to Gymnasium as they
        are."""
        return id.startswith(self.prefix) and (self.serves_all or id in self.load_tasks())

    def load_tasks(self) -> dict[str, TaskRecord]:
        """id -> record, without the simulator."""
        tasks: dict[str, TaskRecord] = importlib.import_module(self.tasks).TASKS
        return tasks

    def load_networks(self, net: str | None) -> Networks | None:
        """The suite's networks of a kind; None where the generic ones serve."""
        if self.networks is None:
            return None
        make = importlib.import_module(self.networks).networks
        networks: Networks = make(net) if self.nets else make()
        return networks

    def presets(self) -> Path:
        """The YAML file with the agents' settings for this suite; the general one where it brings none."""
        spec = importlib.util.find_spec(self.module)
        own = Path(spec.origin).with_name("presets.yaml") if spec is not None and spec.origin else GENERAL_PRESETS
        return own if own.exists() else GENERAL_PRESETS

    def option_types(self) -> dict[str, Any]:
        """name -> annotation of the options that are known; needs the simulator."""
        types: dict[str, Any] = {}
        for place in self.options:
            module, name = place.split(":")
            found = getattr(importlib.import_module(module), name)
            names = vars(importlib.import_module(found.__module__))
            for option, parameter in inspect.signature(found).parameters.items():
                if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                    written = Any if parameter.annotation is parameter.empty else parameter.annotation
                    types[option] = eval(written, names) if isinstance(written, str) else written
        return types

    def require_simulator(self) -> None:
        """Raises SuiteNotInstalledError if the simulator cannot be found."""
        if not self.is_installed():
            raise SuiteNotInstalledError(
                f"{self.name} needs the package {self.simulator!r}, which is not installed; "
                f"run: pip install 'e3b-gym[{self.extra}]'"
            )

    def is_installed(self) -> bool:
        return self.simulator is None or importlib.util.find_spec(self.simulator) is not None


GENERAL_PRESETS = Path(__file__).with_name("presets.yaml")
"""The agents' settings for ids without presets of their own."""

SUITES: list[Suite] = [
    Suite(
        "Rooms",
        "Rooms",
        "e3b_gym.envs.rooms",
        "e3b_gym.envs.rooms",
        adds_noise=True,
        options=("e3b_gym.envs.rooms:RoomsConfig", "e3b_gym.envs.rooms:RoomsEnv"),
    ),
    Suite(
        "MiniHack",
        "MiniHack-",
        "e3b_gym.envs.minihack",
        "e3b_gym.envs.minihack.tasks",
        simulator="minihack",
        extra="minihack",
        registers="minihack",
        limit_option="max_episode_steps",
        options=("e3b_gym.envs.minihack.env:Options",),
        networks="e3b_gym.envs.minihack.network",
        nets=("paper", "fast"),
        learns_tasks_only=True,
        count_options={"image": {"observation_keys": ["glyphs", "blstats", "message"]}},
        rollout_options={"copy": False},
    ),
    Suite(
        "VizDoom",
        "Vizdoom",
        "e3b_gym.envs.vizdoom",
        "e3b_gym.envs.vizdoom",
        simulator="vizdoom",
        extra="vizdoom",
        registers="vizdoom.gymnasium_wrapper",
        options=("e3b_gym.envs.vizdoom:MyWayHome",),
        networks="e3b_gym.envs.vizdoom.network",
    ),
    Suite(
        "MiniGrid",
        "MiniGrid-",
        "e3b_gym.envs.minigrid",
        "e3b_gym.envs.minigrid",
        simulator="minigrid",
        extra="minigrid",
        serves_all=True,
        options=("e3b_gym.envs.minigrid:make",),
        other_options=True,
        count_options={"position": {"position": True}},
    ),
    Suite(
        "Habitat",
        "Habitat-",
        "e3b_gym.envs.habitat",
        "e3b_gym.envs.habitat",
        simulator="habitat",
        extra="habitat",
        options=("e3b_gym.envs.habitat:make", "e3b_gym.envs.habitat.environment:HabitatExploration"),
        networks="e3b_gym.envs.habitat.network",
        nets=("paper", "fast"),
        random_options={"allow_stop": False},  # one action in four would end the episode
        ends_with_moves=True,
        reward_free=True,
    ),
]


def register_suite(suite: Suite) -> None:
    """Adds a suite from outside this package; `make`, `make_vec` and `make train` know its ids from now on.

    Raises:
        ValueError: Another suite has that name, or its prefix claims the same ids.
    """
    for other in SUITES:
        if suite.name == other.name or suite.prefix.startswith(other.prefix) or other.prefix.startswith(suite.prefix):
            raise ValueError(f"{suite.name} ({suite.prefix}...) clashes with {other.name} ({other.prefix}...)")
    SUITES.append(suite)


class UnknownEnvironmentError(ValueError):
    """No suite and no Gymnasium registration knows the id."""


class SuiteNotInstalledError(ImportError):
    """The id is known but its simulator is not installed; the message holds the pip command."""


def suite_of(id: str) -> Suite | None:
    """The suite whose prefix `id` carries; None for ids of other packages."""
    return next((suite for suite in SUITES if id.startswith(suite.prefix)), None)


def all_tasks() -> dict[str, tuple[Suite, TaskRecord]]:
    """Every id this library serves, in the order of `SUITES`."""
    return {id: (suite, task) for suite in SUITES for id, task in suite.load_tasks().items()}


def unknown(id: str) -> UnknownEnvironmentError:
    """The error for an id nobody knows, with the closest ids by spelling, whatever their case."""
    known = {name.lower(): name for name in [*gymnasium.registry, *all_tasks()]}
    close = [known[name] for name in difflib.get_close_matches(id.lower(), known, n=3, cutoff=0.5)]
    hint = f"did you mean {' or '.join(map(repr, close))}?" if close else "nothing is spelled like it;"
    return UnknownEnvironmentError(
        f"unknown environment id {id!r}; {hint} `python -m e3b_gym.envs` lists the ids of this library"
    )
