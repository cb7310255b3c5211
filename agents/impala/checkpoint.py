"""Checkpoints: files that are there completely or not at all, the last few and the best.

    store = CheckpointStore(folder)
    store.save(training.state_dict(), frames, score)
    checkpoint = CheckpointStore(folder).load_latest()

A file is written under another name, forced to the disk and then renamed, so a kill at any moment leaves the one
before. It holds tensors and plain data only, and reading it runs no code. The folder:

    checkpoint-000007-81920.pt     the seventh, after 81,920 frames
    best.pt                        a second name of the one with the best score
    checkpoint-....pt.part         a save in progress, or what a kill left of it
"""

from __future__ import annotations

import math
import os
import re
import shutil
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

KIND = "e3b_gym IMPALA checkpoint"
FORMAT = 1
_NAME = re.compile(r"checkpoint-(\d+)-(\d+)\.pt")
_BEST = "best.pt"
_UNFINISHED = ".part"
_DICTS, _SEQUENCES = (dict, OrderedDict), (list, tuple)
_PLAIN = (str, int, float, bool, type(None), Tensor, nn.Parameter)


class CheckpointError(ValueError):
    """A file is no checkpoint that can be used here."""


class CheckpointWarning(RuntimeWarning):
    """A checkpoint was passed over for an earlier one."""


@dataclass(frozen=True)
class Checkpoint:
    """What a file holds.

    Attributes:
        state: what was given to `save`, tensors on the CPU.
        frames: environment steps at that time.
        score: higher is better; None where it was not known.
        path: of the file.
    """

    state: dict[str, Any]
    frames: int
    score: float | None
    path: Path


class CheckpointStore:
    """The checkpoints of one run. One process may write, others may read at the same time.

    Args:
        folder: where they are; made by the first save.
        keep: how many of the last ones stay, besides the best.
    """

    def __init__(self, folder: str | Path, keep: int = 3) -> None:
        if keep < 1:
            raise ValueError(f"keep must be at least 1, or there is nothing to go on from; got {keep}")
        self.folder = Path(folder)
        self.keep = keep
        self._best_score: float | None = None

    def paths(self) -> list[Path]:
        """The checkpoints, oldest first, without the best one's second name."""
        found = [path for path in self.folder.glob("checkpoint-*.pt") if _NAME.fullmatch(path.name)]
        return sorted(found, key=_number)

    def save(self, state: dict[str, Any], frames: int, score: float | None = None) -> Path:
        """Writes a checkpoint; when this returns, no kill and no power cut undoes it.

        Args:
            state: tensors and plain data (str, int, float, bool, None) in dicts, lists and tuples.
            frames: environment steps so far.
            score: higher is better; None or NaN where it is not known.
        """
        _require_plain(state, "state")
        score = None if score is None or math.isnan(score) else float(score)
        self.folder.mkdir(parents=True, exist_ok=True)
        for leftover in self.folder.glob("*" + _UNFINISHED):
            leftover.unlink(missing_ok=True)
        before = self.paths()
        number = 1 + (_number(before[-1]) if before else 0)
        path = self.folder / f"checkpoint-{number:06d}-{frames}.pt"
        content = {"kind": KIND, "format": FORMAT, "frames": int(frames), "score": score, "state": state}
        _write(path, content)
        if score is not None and score >= self._score_to_beat():
            _second_name(path, self.folder / _BEST)
            self._best_score = score
        for old in before[: max(len(before) + 1 - self.keep, 0)]:
            old.unlink(missing_ok=True)
        return path

    def load_latest(self) -> Checkpoint:
        """The last checkpoint that can be read; a warning names those that cannot."""
        return self._first_good(self.paths()[::-1])

    def load_best(self) -> Checkpoint:
        """The checkpoint with the best score; the last one where none has a score."""
        best = self.folder / _BEST
        return self._first_good([*([best] if best.exists() else []), *self.paths()[::-1]])

    def _first_good(self, paths: Sequence[Path]) -> Checkpoint:
        if not paths:
            raise FileNotFoundError(f"{self.folder} holds no checkpoint; start the run anew, or check the folder")
        problems = []
        for path in paths:
            try:
                checkpoint = read(path)
            except (CheckpointError, FileNotFoundError) as error:  # the writer may have removed it meanwhile
                problems.append(str(error))
                continue
            if problems:
                warnings.warn(
                    f"going back to {path.name} ({checkpoint.frames} frames): {'; '.join(problems)}",
                    CheckpointWarning,
                    stacklevel=3,
                )
            return checkpoint
        raise CheckpointError(f"no checkpoint in {self.folder} can be used: {'; '.join(problems)}")

    def _score_to_beat(self) -> float:
        if self._best_score is None:
            try:
                score = read(self.folder / _BEST, mapped=True).score
            except (CheckpointError, FileNotFoundError):
                score = None
            self._best_score = -math.inf if score is None else score
        return self._best_score


def read(path: str | Path, *, mapped: bool = False) -> Checkpoint:
    """One file.

    Args:
        path: of a checkpoint.
        mapped: reads tensors from the disk only when they are used; the file must stay as it is so long.

    Raises:
        CheckpointError: it is damaged, something else, or of a later version.
    """
    path = Path(path)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except FileNotFoundError:
        raise
    except Exception as error:
        raise CheckpointError(f"{path} is damaged or no checkpoint ({_first_line(error)})") from error
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise CheckpointError(f"{path} is no checkpoint of this library's IMPALA")
    if content["format"] > FORMAT:
        raise CheckpointError(
            f"{path} has format {content['format']}, and this version reads formats up to {FORMAT}; update e3b_gym"
        )
    return Checkpoint(content["state"], content["frames"], content["score"], path)


def _number(path: Path) -> int:
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise ValueError(f"{path} does not have the name of a checkpoint")
    return int(match[1])


def _write(path: Path, content: dict[str, Any]) -> None:
    unfinished = path.with_name(path.name + _UNFINISHED)
    try:
        with open(unfinished, "wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:  # a full disk, Ctrl-C
        unfinished.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _second_name(path: Path, name: Path) -> None:
    unfinished = name.with_name(name.name + _UNFINISHED)
    try:
        os.link(path, unfinished)
    except OSError:  # a file system without links
        shutil.copyfile(path, unfinished)
    unfinished.replace(name)
    _sync_folder(name.parent)


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":  # Windows cannot open folders
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _require_plain(value: Any, name: str) -> None:
    """Refuses now what `weights_only` would refuse when it is too late."""
    if type(value) in _DICTS or type(value) in _SEQUENCES:
        for key, part in _items(value):
            _require_plain(key, f"a key of {name}")
            _require_plain(part, f"{name}[{key!r}]")
    elif type(value) not in _PLAIN:
        raise ValueError(
            f"{name} is a {type(value).__module__}.{type(value).__qualname__}, and a checkpoint holds tensors, str, "
            "int, float, bool and None, in dicts, lists and tuples; convert it"
        )


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    yield from value.items() if isinstance(value, dict) else enumerate(value)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
