"""The folder of a run: `runs/<env>/<method>-<agent>-seed<k>-<time>/`.

config.yaml        the resolved settings, and where they come from: commit, versions, command
progress.csv       the curve (`experiments.curve`); TensorBoard's events are next to it
checkpoints/       the last few and the best
evaluation-*.json  what `make evaluate` found
"""

from __future__ import annotations

import dataclasses
import errno
import os
import re
import shlex
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

from agents.exported import is_exported
from agents.registry import AGENTS
from agents.run_config import RunConfig
from e3b_gym.config import BonusConfig, option_types
from e3b_gym.files import UNFINISHED, atomic_write
from e3b_gym.options import field_types, parse
from experiments.provenance import provenance
from experiments.run_files import check_parts, read_config
from experiments.settings import (
    RunOptions,
    Settings,
    by_name,
    make_run_options,
    parse_env_options,
    place_options,
)

# What may change when a run is resumed, because it does not change what is learned from a frame.
_FREE = ("steps", "threads", "learners", "device", "ray_address")
MAY_CHANGE = (*_FREE, *(field.name for field in dataclasses.fields(RunOptions)))


class RunExistsError(ValueError):
    """A new run would overwrite an older one."""


class RunFolder:
    """A run on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.locks = True
        """Whether the file system has locks; without them, nothing keeps other processes away."""
        self._lock: int | None = None

    def hold(self) -> None:
        """Keeps other processes from training in this folder, until `release` or the end of this one."""
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self.path / ".lock", os.O_CREAT | os.O_RDWR, 0o644)
        try:
            if fcntl is not None:
                fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.locks = error.errno in (errno.EACCES, errno.EAGAIN)
            if self.locks:
                holder = os.read(self._lock, 20).decode(errors="replace")
                self.release()
                raise ValueError(
                    f"process {holder} is training in {self.path}; wait until it has ended (Ctrl-C there saves first)"
                ) from error
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        """Lets others train here."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @classmethod
    def for_new(cls, settings: Settings, path: str | None = None) -> RunFolder:
        """The folder for a new run, not made yet; `path` or one named after its settings."""
        config = settings.config
        if path is None:
            name = f"{settings.title.replace(' with ', '-')}-seed{config.seed}-{datetime.now():%Y%m%d-%H%M%S}"
            path = os.path.join("runs", re.sub(r"[^\w.-]", "-", config.env), name)
        if not path:
            raise ValueError("RUN= is empty; give the new run's folder a name, or leave RUN= out")
        folder = cls(Path(path))
        if folder.config_file.exists():
            raise RunExistsError(
                f"{path} holds a run already; choose another RUN=, or resume it: {folder.command('train', 'RESUME=1')}"
            )
        leftover = folder.config_file.name + UNFINISHED  # of a start that was killed, or whose disk failed
        there = [entry.name for entry in folder.path.iterdir()] if folder.path.exists() else []
        if any(not name.startswith(".") and name != leftover for name in there):
            raise RunExistsError(f"{path} is not empty; choose another RUN=, a run has a folder for itself")
        return folder

    @classmethod
    def existing(cls, path: str | None) -> RunFolder:
        if not path:
            raise ValueError("RUN= is missing, e.g. RUN=runs/Rooms-K4-v0/e3b-impala-seed0-20250131-120000")
        folder = cls(Path(path))
        if not folder.config_file.exists():
            near = folder.path if folder.path.is_dir() else folder.path.parent
            depths = ("*", "*/*", "*/*/*")  # no deeper: the folder may be anybody's
            found = sorted(str(file.parent) for depth in depths for file in near.glob(f"{depth}/config.yaml"))[-3:]
            hint = f"; there is {', '.join(found)}" if found else ""
            raise ValueError(f"{path} is not the folder of a run (it has no config.yaml){hint}")
        return folder

    @property
    def config_file(self) -> Path:
        return self.path / "config.yaml"

    @property
    def checkpoints(self) -> Path:
        return self.path if self.exported else self.path / "checkpoints"

    @property
    def exported(self) -> bool:
        """Whether this is an exported agent: it plays like a run, but has neither optimisers nor a curve."""
        return is_exported(self.path)

    @property
    def curve(self) -> Path:
        return self.path / "progress.csv"

    def command(self, target: str, *options: str) -> str:
        """A command line for this run."""
        return " ".join(["make", target, f"RUN={shlex.quote(str(self.path))}", *options])

    def save(self, settings: Settings, parts: list[Any] | None = None) -> None:
        """Writes config.yaml; `parts` holds the origin of each part of the run; this one is added."""
        self.path.mkdir(parents=True, exist_ok=True)
        content = {
            "agent": settings.agent,
            "preset": settings.preset,
            "config": settings.config.as_dict(),
            "run": dataclasses.asdict(settings.run),
            "provenance": [*(parts or []), provenance()],
        }
        with atomic_write(self.config_file) as temporary:
            temporary.write_text(yaml.safe_dump(_plain(content), sort_keys=False))

    def load(self) -> tuple[Settings, list[Any]]:
        """The settings, and where each part of the run comes from."""
        content = read_config(self.config_file)
        try:
            config = AGENTS[content["agent"]].config.from_dict(content["config"])
            parse_env_options(config.env, config.env_options)
            run, preset = RunOptions(**content["run"]), content["preset"]
            if not (isinstance(preset, str) and preset.isidentifier()):
                raise ValueError(f"{self.config_file}: preset must be the name of a preset; got {preset!r}; restore it")
            return Settings(content["agent"], preset, config, run), check_parts(self.config_file, content["provenance"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{self.config_file} was not written by this version of train, or was edited: {error!r}; restore it"
            ) from error


def changed(settings: Settings, given: Mapping[str, Any]) -> tuple[Settings, dict[str, Any]]:
    """The settings of a resumed run, and what is new; anything that would make it another run is refused."""
    config = settings.config
    if AGENTS[settings.agent].trainer is None:
        raise ValueError(f"AGENT={settings.agent} learns nothing, so there is nothing to resume")
    chosen, run = place_options(settings.agent, config.method, given)
    current = by_name(config.as_dict()) | dataclasses.asdict(settings.run)
    wanted: dict[str, Any] = {name: str(given[name]) for name in ("env", "method") if name in given}
    wanted |= parse_named(config, chosen) | dataclasses.asdict(make_run_options(run, settings.run))
    changes = {name: value for name, value in wanted.items() if current.get(name) != value}
    for name in (name for name in changes if name not in MAY_CHANGE):
        raise ValueError(
            f"RESUME=1 keeps the run's own settings, and {name} is {current.get(name)!r} there, not {changes[name]!r}; "
            f"start a new run for that. What may change: {', '.join(MAY_CHANGE)}"
        )
    fields: dict[str, Any] = {name: value for name, value in changes.items() if hasattr(config, name)}
    config = dataclasses.replace(config, **fields)
    return dataclasses.replace(settings, config=config, run=make_run_options(run, settings.run)), changes


def parse_named(config: RunConfig, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a layer by name, converted to their types; `bonus.preset` becomes all that it sets."""
    bonus = dict(chosen.get("bonus", {}))
    if "preset" in bonus:
        made = BonusConfig.parsed(config.method, **bonus).as_dict()
        bonus = {name: value for name, value in made.items() if name not in ("method", "dim")}
    env_options = parse_env_options(config.env, chosen.get("env_options", {}))
    types = {**field_types(type(config)), **{f"bonus.{n}": kind for n, kind in option_types(config.method).items()}}
    named = by_name({**chosen, "bonus": bonus, "env_options": {}})
    return {n: parse(n, v, types[n]) for n, v in named.items()} | {f"env.{n}": v for n, v in env_options.items()}


def _plain(value: Any) -> Any:
    """Tuples as lists, so that any YAML reader can read them."""
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
