"""A study as data: tasks x methods x seeds. Each run is one that `make train` would make.

    study = STUDIES["rooms"]                     of experiments.catalogue: the paper's figures, and our own studies
    study.runs("home")                           the list of its runs at a scale
    run.train_options(), run.folder              the options of `make train`, and where its folder is

`experiments.reproduce` runs the list; `experiments.report` draws from the folders. Runs with the same settings have the
same folder, whichever study has them, so that they are trained once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from agents.registry import AGENTS
from e3b_gym.envs.registry import suite_of

SCALES = ("paper", "home", "smoke")
OURS = "made for this library"
"""Source of a study that is not in the paper."""
Measure = Literal["success", "training success", "coverage", "frames per second"]


@dataclass(frozen=True)
class Task:
    """An environment of a study."""

    env: str
    """Id of the environment."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the environment: `env.<name>=` of `make train`."""
    name: str = ""
    """Name in plots and folders; the id by default."""

    def __str__(self) -> str:
        return self.name or self.env

    @property
    def short(self) -> str:
        """Without the suite's prefix and the version, for the titles of plots."""
        suite = suite_of(self.env)
        prefix = suite.prefix if suite is not None and suite.prefix.endswith("-") else ""
        return str(self).removeprefix(prefix).removesuffix("-v0").removesuffix("-v1")


@dataclass(frozen=True)
class Method:
    """A line of a plot."""

    label: str
    """Name in plots and tables."""
    method: str
    """METHOD of `make train`; AGENT for an agent that does not learn."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further options of `make train`, such as `ridge`."""
    prior: bool = False
    """The method uses knowledge of the task, which the paper marks with an asterisk."""

    @property
    def name(self) -> str:
        """Name in folders, and in claims."""
        return ",".join([self.method, *(f"{name}={value}" for name, value in self.options.items())])

    @property
    def learns(self) -> bool:
        """False for the random agents, which only play."""
        agent = AGENTS.get(self.method)
        return agent is None or agent.trainer is not None


@dataclass(frozen=True)
class Scale:
    """The size of a study's runs."""

    preset: str = "home"
    """PRESET of `make train`."""
    seeds: int = 2
    """Number of seeds."""
    frames: int | Mapping[str, int] | None = None
    """Environment steps per run, or by the name of the task; None for those of the preset."""
    tasks: tuple[str, ...] | None = None
    """Names of the tasks that are run; None for all."""
    episodes: int = 200
    """Episodes of the evaluation."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further options of `make train`."""
    agent: str | None = None
    """AGENT of `make train` where it is not the study's."""
    first_seed: int = 0
    """Where the seeds start; 1 where seed 0 was used to find the settings."""


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, in a form that runs can agree or disagree with.

    Kinds: `above` (each of `methods` scores higher than each of `others`), `solves` (each of `methods` scores at least
    0.5), `fails` (each of `methods` scores at most 0.1), `same` (no significant difference to `others`).
    """

    text: str
    """The claim in plain English."""
    kind: Literal["above", "solves", "fails", "same"]
    methods: tuple[str, ...]
    """Names of methods."""
    others: tuple[str, ...] = ()
    """Names of the methods that they are compared with."""
    group: str | None = None
    """Name of a group of tasks, or of one task; None for all tasks of the study."""


@dataclass(frozen=True)
class Run:
    """One training run."""

    scale: str
    task: Task
    method: Method
    seed: int
    agent: str
    preset: str
    frames: int | None
    episodes: int
    measure: Measure
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.task}/{self.method.name}-seed{self.seed}"

    @property
    def folder(self) -> Path:
        """Relative to the folder of all runs."""
        return Path(self.scale) / str(self.task) / f"{self.method.name}-seed{self.seed}"

    @property
    def learns(self) -> bool:
        """False for the random agents, which only play."""
        return self.method.learns

    def train_options(self) -> list[str]:
        """NAME=value of `make train`, without RUN."""
        options: dict[str, Any] = {"ENV": self.task.env, "METHOD": self.method.method, "SEED": self.seed}
        if not self.learns:
            options["AGENT"] = options.pop("METHOD")
        else:
            options |= {"AGENT": self.agent, "PRESET": self.preset}
            if self.frames is not None:
                options["STEPS"] = self.frames
            if self.agent == "impala":
                options["engine"] = "inline"  # one process per run; runs are spread over the cores
            options |= self.options
        options |= {f"env.{name}": value for name, value in self.task.options.items()} | dict(self.method.options)
        return [f"{name}={_text(value)}" for name, value in options.items()]


@dataclass(frozen=True)
class Study:
    """The methods that are compared, the tasks, and the paper's claims."""

    name: str
    """FIGURE of `make reproduce` and `make report`."""
    title: str
    source: str
    """Where it is in the paper, as number and label; OURS if it is not."""
    shows: str
    """The paper's result, or the question of the study."""
    tasks: tuple[Task, ...]
    methods: tuple[Method, ...]
    scales: Mapping[str, Scale]
    agent: str = "impala"
    """AGENT of `make train`."""
    measure: Measure = "success"
    """Score of a run: success in new environments, success of the last training episodes, coverage, or speed."""
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of tasks by the name of a group, for the aggregates; all tasks are one group anyway."""
    claims: tuple[Claim, ...] = ()
    note: str = ""
    """How our version differs."""

    @property
    def of_paper(self) -> bool:
        """Whether it is a figure or table of the paper."""
        return self.source != OURS

    def runs(self, scale: str) -> list[Run]:
        """The runs at a scale: the first seed of everything, then the second."""
        if scale not in self.scales:
            raise ValueError(f"{self.name} has no SCALE={scale}; choose from {', '.join(self.scales)}")
        size = self.scales[scale]
        return [
            self._run(scale, size, task, method, seed if method.learns else 0)
            for seed in range(size.first_seed, size.first_seed + size.seeds)
            for task in self.tasks_at(scale)
            for method in self.methods
            if seed == size.first_seed or method.learns
        ]

    def _run(self, scale: str, size: Scale, task: Task, method: Method, seed: int) -> Run:
        frames = size.frames.get(str(task)) if isinstance(size.frames, Mapping) else size.frames
        agent = size.agent or self.agent
        # The random agents need no training, and their success rate may be a few per thousand.
        episodes = size.episodes * (5 if not method.learns and self.measure != "coverage" else 1)
        return Run(scale, task, method, seed, agent, size.preset, frames, episodes, self.measure, size.options)

    def tasks_at(self, scale: str) -> list[Task]:
        """The tasks that are run at a scale."""
        chosen = self.scales[scale].tasks
        return [task for task in self.tasks if chosen is None or str(task) in chosen]

    def group(self, name: str | None) -> tuple[str, ...]:
        """Names of the tasks of a group, of one task, or of all."""
        everything = tuple(str(task) for task in self.tasks)
        if name is None:
            return everything
        return self.groups.get(name, (name,))

    @cached_property
    def labels(self) -> dict[str, str]:
        """Labels by the names of the methods."""
        return {method.name: method.label + ("*" if method.prior else "") for method in self.methods}


def all_runs(studies: Sequence[Study], scale: str) -> list[Run]:
    """The runs of several studies at a scale, each once."""
    runs = [run for study in studies if scale in study.scales for run in study.runs(scale)]
    return list({run.folder: run for run in reversed(runs)}.values())[::-1]


def _text(value: Any) -> str:
    """The value in the form of the command line."""
    if isinstance(value, bool):
        return str(value).lower()
    return "null" if value is None else str(value)
