"""The suites, their ids, and the errors for unknown ids and missing simulators.

A suite is one module with `make(id, **options)`, optionally `make_vec(id, num_envs, **options)` for its own loop over
environments, and a table `TASKS: dict[id, record]` that can be imported without the simulator. Its folder may have
networks and `presets.yaml`, the settings of the agents for it. Only this module has the prefixes of ids; it imports
no simulator. `register_suite` adds a suite of another package.
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
    """Fields of every entry of `TASKS`; `Task` documents them."""

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
    """One id of a suite."""

    kind: str
    """Kind of task in one word: navigation, keys, ..."""
    actions: tuple[str, ...]
    """Names of the discrete actions, in order."""
    max_steps: int | None
    """Agent steps (not simulator steps) until the episode is truncated."""
    source: str
    """Papers that used the task, and origin of the level."""


@dataclass(frozen=True)
class Suite:
    """Code, tasks, networks and simulator of a family of ids."""

    name: str
    """Name of the suite in lists and messages."""
    prefix: str
    """Prefix of its ids."""
    module: str
    """Module with `make`."""
    tasks: str
    """Module with `TASKS`."""
    simulator: str | None = None
    """Package of the simulator; None: not needed."""
    extra: str | None = None
    """pip extra that installs the simulator."""
    registers: str | None = None
    """Module whose import registers the simulator's own ids with Gymnasium."""
    serves_all: bool = False
    """`make` takes every id with the prefix, not only those in `TASKS`."""
    limit_option: str = "max_steps"
    """Name of the option of `make` for the number of steps until truncation."""
    adds_noise: bool = False
    """`make` has the options `clock` (True or False) and `noise`."""
    options: tuple[str, ...] = ()
    """Dataclasses and functions whose parameters are the options of `make`, as module:name; read for their types."""
    other_options: bool = False
    """`make` has further options, without types."""
    networks: str | None = None
    """Module with `networks(net)`, or `networks()` if there is one kind; None: the generic networks."""
    nets: tuple[str, ...] = ()
    """Kinds of networks, if there are several."""
    learns_tasks_only: bool = False
    """The networks support the ids of `TASKS` only."""
    count_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Key of a count ("position", ...) -> options that add this part to the observation."""
    rollout_options: Mapping[str, Any] = field(default_factory=dict)
    """Options of `make_vec` for callers that copy every observation immediately."""
    random_options: Mapping[str, Any] = field(default_factory=dict)
    """Options of `make` for a random policy."""
    ends_with_moves: bool = False
    """The last three actions are forward, left and right, which AGENT=random-forward needs."""
    speeds: Mapping[str, float] = field(default_factory=dict)
    """Preset -> approximate frames per second of a training run on one core, until runs have been measured."""
    reward_free: bool = False
    """Runs are evaluated by coverage (`make homes`), not by reward."""

    def load(self) -> ModuleType:
        """Imports the module with `make`.

        Raises:
            SuiteNotInstalledError: The simulator is not installed.
        """
        self.require_simulator()
        return importlib.import_module(self.module)

    def serves(self, id: str) -> bool:
        """Whether `make` of this suite takes the id; other ids of the simulator are made by Gymnasium."""
        return id.startswith(self.prefix) and (self.serves_all or id in self.load_tasks())

    def load_tasks(self) -> dict[str, TaskRecord]:
        """Returns id -> record; does not import the simulator."""
        tasks: dict[str, TaskRecord] = importlib.import_module(self.tasks).TASKS
        return tasks

    def load_networks(self, net: str | None) -> Networks | None:
        """Returns the networks of this kind; None: the generic networks."""
        if self.networks is None:
            return None
        make = importlib.import_module(self.networks).networks
        networks: Networks = make(net) if self.nets else make()
        return networks

    def presets(self) -> Path:
        """Returns the YAML file with the settings of the agents for this suite, or the general one."""
        spec = importlib.util.find_spec(self.module)
        own = Path(spec.origin).with_name("presets.yaml") if spec is not None and spec.origin else GENERAL_PRESETS
        return own if own.exists() else GENERAL_PRESETS

    def option_types(self) -> dict[str, Any]:
        """Returns name -> annotation of the options; imports the simulator."""
        types: dict[str, Any] = {}
        for option, (parameter, names) in self._parameters().items():
            written = Any if parameter.annotation is parameter.empty else parameter.annotation
            types[option] = eval(written, names) if isinstance(written, str) else written
        return types

    def option_defaults(self) -> dict[str, Any]:
        """Returns name -> default of the options that have one; imports the simulator."""
        parameters = {option: parameter for option, (parameter, _) in self._parameters().items()}
        return {option: found.default for option, found in parameters.items() if found.default is not found.empty}

    def _parameters(self) -> dict[str, tuple[inspect.Parameter, dict[str, Any]]]:
        """Option -> its parameter, and the names that its annotation may use."""
        parameters = {}
        for place in self.options:
            module, name = place.split(":")
            found = getattr(importlib.import_module(module), name)
            names = vars(importlib.import_module(found.__module__))
            for option, parameter in inspect.signature(found).parameters.items():
                if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                    parameters[option] = parameter, names
        return parameters

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
"""Settings of the agents for suites without presets."""

SUITES: list[Suite] = [
    Suite(
        "Rooms",
        "Rooms",
        "e3b_gym.envs.rooms",
        "e3b_gym.envs.rooms",
        adds_noise=True,
        options=("e3b_gym.envs.rooms:RoomsConfig", "e3b_gym.envs.rooms:RoomsEnv"),
        speeds={"home": 7000.0},
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
        nets=("paper", "fast", "moves"),
        learns_tasks_only=True,
        count_options={"image": {"observation_keys": ["glyphs", "blstats", "message"]}},
        rollout_options={"copy": False},
        speeds={"home": 1400.0, "paper": 120.0},
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
        speeds={"home": 700.0, "paper": 300.0},
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
        speeds={"home": 2500.0},
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
        speeds={"home": 900.0, "paper": 4.0},
        reward_free=True,
    ),
]


def register_suite(suite: Suite) -> None:
    """Registers a suite of another package with `make`, `make_vec` and `make train`.

    Raises:
        ValueError: Another suite has the same name or an overlapping prefix.
    """
    for other in SUITES:
        if suite.name == other.name or suite.prefix.startswith(other.prefix) or other.prefix.startswith(suite.prefix):
            raise ValueError(
                f"suite {suite.name} ({suite.prefix}...) conflicts with {other.name} ({other.prefix}...); choose "
                "another name and prefix"
            )
    SUITES.append(suite)


class UnknownEnvironmentError(ValueError):
    """The id is in no suite and not registered with Gymnasium."""


class SuiteNotInstalledError(ImportError):
    """The simulator of the id is not installed; the message has the pip command."""


def suite_of(id: str) -> Suite | None:
    """Returns the suite whose prefix `id` has; None for ids of other packages."""
    return next((suite for suite in SUITES if id.startswith(suite.prefix)), None)


def all_tasks() -> dict[str, tuple[Suite, TaskRecord]]:
    """Returns all ids of the suites, in the order of `SUITES`."""
    return {id: (suite, task) for suite in SUITES for id, task in suite.load_tasks().items()}


def unknown(id: str) -> UnknownEnvironmentError:
    """Returns the error for an unknown id, with the closest ids by spelling, ignoring case."""
    known = {name.lower(): name for name in [*gymnasium.registry, *all_tasks()]}
    close = [known[name] for name in difflib.get_close_matches(id.lower(), known, n=3, cutoff=0.5)]
    hint = f"did you mean {' or '.join(map(repr, close))}?" if close else "no id is similar;"
    return UnknownEnvironmentError(
        f"unknown environment id {id!r}; {hint} `python -m e3b_gym.envs` lists the ids of this library"
    )
