"""Which suites there are, which ids each one serves, and what to say when an id or a simulator is missing.

A suite is one module with `make(id, **options)` and, where it steps its own batches, `make_vec(id, num_envs,
**options)`, plus a table `TASKS: dict[id, record]` that can be imported without the simulator. To add a
suite, write that module and add one line to `SUITES`. Nothing here imports a simulator.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from dataclasses import dataclass
from types import ModuleType
from typing import Protocol

import gymnasium


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

    def require_simulator(self) -> None:
        """Raises SuiteNotInstalledError if the simulator cannot be found."""
        if not self.is_installed():
            raise SuiteNotInstalledError(
                f"{self.name} needs the package {self.simulator!r}, which is not installed; "
                f"run: pip install 'e3b-gym[{self.extra}]'"
            )

    def is_installed(self) -> bool:
        return self.simulator is None or importlib.util.find_spec(self.simulator) is not None


SUITES: tuple[Suite, ...] = (
    Suite("Rooms", "Rooms", "e3b_gym.envs.rooms", "e3b_gym.envs.rooms", adds_noise=True),
    Suite(
        "MiniHack",
        "MiniHack-",
        "e3b_gym.envs.minihack",
        "e3b_gym.envs.minihack.tasks",
        simulator="minihack",
        extra="minihack",
        registers="minihack",
        limit_option="max_episode_steps",
    ),
    Suite(
        "VizDoom",
        "Vizdoom",
        "e3b_gym.envs.vizdoom",
        "e3b_gym.envs.vizdoom",
        simulator="vizdoom",
        extra="vizdoom",
        registers="vizdoom.gymnasium_wrapper",
    ),
    Suite(
        "MiniGrid",
        "MiniGrid-",
        "e3b_gym.envs.minigrid",
        "e3b_gym.envs.minigrid",
        simulator="minigrid",
        extra="minigrid",
        serves_all=True,
    ),
    Suite(
        "Habitat",
        "Habitat-",
        "e3b_gym.envs.habitat",
        "e3b_gym.envs.habitat",
        simulator="habitat",
        extra="habitat",
    ),
)


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
