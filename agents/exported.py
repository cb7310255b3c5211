"""Exported agents: what a run has learned, small enough to come with the repository, and safe to read.

    agents/trained/<id>/
      config.yaml          settings of the run, commit and command that trained it
      policy.npz           weights of the policy, float16
      bonus.npz            weights of the bonus's encoder, float16
      agent.json           format, kind of agent, frames, checkpoint, and the scale of the bonus
      evaluation-*.json    what `make export` measured with exactly these files (Habitat: coverage.json)

The files hold arrays and plain values: reading them runs no code, and zip's checksums are verified. Optimisers are left
out, so an exported agent plays, or starts another training, but does not resume its own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from e3b_gym.errors import DamagedFileError, first_line
from e3b_gym.files import atomic_write

FORMAT = 1
TRAINED = Path(__file__).parent / "trained"
"""The agents that come with the repository, in folders named after their environments."""
_ABOUT = "agent.json"
# Where a checkpoint's state has the policy's weights, and the state of its explorer.
_PLACES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "IMPALA": (("learner", "policy"), ("learner", "explorer")),
    "PPO": (("model", "policy"), ("bonus",)),
    "RecurrentPPO": (("model", "policy"), ("bonus",)),
}


def is_exported(folder: str | Path) -> bool:
    """Whether the folder holds an exported agent."""
    return (Path(folder) / _ABOUT).is_file()


def write_exported(
    folder: Path, kind: str, state: Mapping[str, Any], frames: int, tables: Mapping[str, Mapping[str, Tensor]]
) -> None:
    """Writes policy, bonus and scale of a checkpoint's state.

    Args:
        folder: where to; it exists.
        kind: "IMPALA", "PPO" or "RecurrentPPO".
        state: content of the checkpoint.
        frames: environment steps that it had learned from.
        tables: by name of the file, the embedding tables before training; rows that are still the same, of symbols
            that never occurred, are written as zeros, which compress.
    """
    policy, explorer = (_at(state, place) for place in _PLACES[kind])
    for name, weights in (("policy", policy), ("bonus", explorer["bonus"])):
        before = tables.get(name, {})
        arrays = {key: _small(value, before.get(key)) for key, value in weights.items()}
        with atomic_write(folder / f"{name}.npz") as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, **arrays)
    about = {"format": FORMAT, "kind": kind, "frames": int(frames), "scale": dict(explorer["mixer"])}
    with atomic_write(folder / _ABOUT) as temporary:
        temporary.write_text(json.dumps(about, indent=1) + "\n")


def read_exported(folder: str | Path, kind: str) -> tuple[dict[str, Any], int]:
    """Returns the state, with the places of a checkpoint's, and the frames.

    Raises:
        DamagedFileError: the files cannot be read.
        ValueError: they are of another kind of agent or of another version.
    """
    folder = Path(folder)
    about = read_about(folder)
    if about["kind"] != kind:
        raise ValueError(f"{folder} holds a {about['kind']} agent, not {kind}; `make watch RUN={folder}` plays it")
    explorer = {"bonus": _read(folder / "bonus.npz"), "mixer": about["scale"]}
    contents = (_read(folder / "policy.npz"), explorer)
    state: dict[str, Any] = {}
    for place, content in zip(_PLACES[kind], contents, strict=True):
        _put(state, place, content)
    return state, about["frames"]


def read_about(folder: str | Path) -> dict[str, Any]:
    """Returns agent.json: `format`, `kind`, `frames` and `scale`, as `write_exported` wrote them.

    Raises:
        DamagedFileError: the file cannot be read.
        ValueError: it is of another version.
    """
    path = Path(folder) / _ABOUT
    try:
        about = json.loads(path.read_text())
        version, frames, scale = about["format"], about["frames"], about["scale"]
        whole = isinstance(about["kind"], str) and type(frames) is int and 0 <= frames < 2**63
        plain = all(isinstance(value, (str, int)) or math.isfinite(value) for value in scale.values())
    except Exception as error:  # JSON of another shape may raise anything
        raise _damaged(path, error) from error
    if version != FORMAT:
        raise ValueError(f"{folder} has format {version}, and this version reads {FORMAT}; update e3b_gym")
    if not (whole and plain):
        raise DamagedFileError(f"{path} was not written by `make export`, or was edited; export the agent again")
    return dict(about)


def _small(weights: Tensor, before: Tensor | None) -> np.ndarray[Any, Any]:
    """Returns them as float16 where its range suffices, with zeros in the rows that have not changed."""
    weights = weights.detach().clone()
    if before is not None:
        weights[(weights == before).all(1)] = 0.0
    if weights.dtype == torch.float32 and bool((weights.abs() <= torch.finfo(torch.float16).max).all()):
        weights = weights.half()
    return weights.numpy()


def _read(path: Path) -> dict[str, Tensor]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            tensors = {name: torch.from_numpy(arrays[name]) for name in arrays}
    except Exception as error:  # a damaged archive may raise anything
        raise _damaged(path, error) from error
    return {name: tensor.float() if tensor.dtype == torch.float16 else tensor for name, tensor in tensors.items()}


def _damaged(path: Path, error: Exception) -> DamagedFileError:
    return DamagedFileError(f"{path} is damaged, or was not written by `make export` ({first_line(error)})")


def _at(state: Mapping[str, Any], place: tuple[str, ...]) -> Any:
    for name in place:
        state = state[name]
    return state


def _put(state: dict[str, Any], place: tuple[str, ...], content: Any) -> None:
    for name in place[:-1]:
        state = state.setdefault(name, {})
    state[place[-1]] = content
