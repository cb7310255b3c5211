"""Files of models: what `IMPALA.save` writes, and exported agents (`agents.exported`). Reading them runs no code."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from agents.checkpoint import CheckpointError
from agents.exported import is_exported, read_exported
from agents.impala.config import Config
from e3b_gym.errors import first_line
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
    """Of an exported agent, the environment steps that it had learned from."""


def write_model(path: str | Path, config: Config, state: dict[str, Any]) -> None:
    """Writes the model: tensors and plain values. A path without an ending gets ".zip", as in SB3."""
    save_tensors(_with_ending(path), {"kind": KIND, "format": FORMAT, "config": config.as_dict(), "state": state})


def read_model(path: str | Path) -> SavedModel:
    """A file of `write_model`, or the folder of an exported agent."""
    if is_exported(path):
        return _read_folder(Path(path))
    content = load_tensors(path := _with_ending(path))
    if not isinstance(content, dict) or content.get("kind") != KIND or content.get("format") != FORMAT:
        raise CheckpointError(f"{path} is no model that IMPALA.save of this version wrote")
    return SavedModel(Config.from_dict(content["config"]), content["state"])


def _read_folder(folder: Path) -> SavedModel:
    state, frames = read_exported(folder, "IMPALA")
    try:
        config = Config.from_dict(yaml.safe_load((folder / "config.yaml").read_text())["config"])
    except (OSError, LookupError, TypeError, yaml.YAMLError) as error:
        raise CheckpointError(f"{folder / 'config.yaml'} cannot be used ({first_line(error)}); restore it") from error
    return SavedModel(config, state, frames)


def _with_ending(path: str | Path) -> Path:
    return Path(path) if Path(path).suffix else Path(path).with_suffix(".zip")
