"""Files of models: what `IMPALA.save` writes, and exported agents (`agents.exported`). Reading them runs no code."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from agents.checkpoint import CheckpointError
from agents.exported import is_exported, read_exported
from agents.impala.config import Config
from e3b_gym.errors import first_line
from e3b_gym.explorer import Explorer
from e3b_gym.tensor_files import load_tensors, save_tensors

KIND = "e3b_gym IMPALA model"
FORMAT = 1


@dataclass(frozen=True)
class SavedModel:
    """A model read from disk."""

    config: Config
    """Every option of its training."""
    state: dict[str, Any]
    """State of an `IMPALA`; of an exported agent, only policy, bonus and scale."""
    exported_frames: int | None = None
    """Environment steps that an exported agent had learned from."""

    @contextmanager
    def fitting(self, path: str | Path) -> Iterator[None]:
        """Context in which the state is loaded; a state that does not fit its config raises CheckpointError."""
        try:
            yield
        except (RuntimeError, LookupError, TypeError, ValueError) as error:
            raise CheckpointError(f"{path} does not fit {self.config.env}: {first_line(error)}") from error


def write_model(path: str | Path, config: Config, state: dict[str, Any]) -> None:
    """Writes the model: tensors and plain values. A path without an ending gets ".zip", as in SB3."""
    save_tensors(_with_ending(path), {"kind": KIND, "format": FORMAT, "config": config.as_dict(), "state": state})


def read_model(path: str | Path) -> SavedModel:
    """A file of `write_model`, or the folder of an exported agent."""
    if is_exported(path):
        return _read_folder(Path(path))
    content = load_tensors(path := _with_ending(path))
    if not isinstance(content, dict) or content.get("kind") != KIND or content.get("format") != FORMAT:
        raise CheckpointError(f"{path} is not a model saved by IMPALA.save of this version")
    return SavedModel(Config.from_dict(content["config"]), content["state"])


def _read_folder(folder: Path) -> SavedModel:
    state, frames = read_exported(folder, "IMPALA")
    try:
        config = Config.from_dict(yaml.safe_load((folder / "config.yaml").read_text())["config"])
    except Exception as error:  # damaged YAML may raise anything
        raise CheckpointError(f"{folder / 'config.yaml'} cannot be used ({first_line(error)}); restore it") from error
    return SavedModel(config, state, frames)


def read_others(state: Mapping[str, Any]) -> dict[str, Any]:
    """The part of an `IMPALA`'s state that is not its learner's; see `Training.state_of_others`."""
    starts = None if state["engine"] is None else [int(count) for count in state["engine"]["starts"]]
    if starts is not None and (not starts or min(starts) < 0):
        raise ValueError(f"the actors were started {starts} times")
    memories = {"memories": list(state["memories"])} if "memories" in state else {}
    return {"engine": None if starts is None else {"starts": starts}, **memories}


def warn_of_lost_memory(state: Mapping[str, Any], config: Config, explorer: Explorer) -> None:
    """Warns if a lifelong memory is lost because the number of environments or learners changed."""
    envs, learners = state["learner"]["explorer"]["num_envs"], 1 + len(state.get("memories", ()))
    if explorer.bonus.episodic or (learners == config.learners and envs == explorer.num_envs):
        return
    there = f"{envs * learners} environments" + (f" of {learners} learners" if learners > 1 else "")
    here = f"{config.n_envs * config.actors}" + (f" of {config.learners} learners" if config.learners > 1 else "")
    warnings.warn(
        f"the saved memory is of {there}, but there are {here} here: the lifelong memory starts empty. Load with "
        "the same number to keep it",
        stacklevel=3,
    )


def _with_ending(path: str | Path) -> Path:
    return Path(path) if Path(path).suffix else Path(path).with_suffix(".zip")
