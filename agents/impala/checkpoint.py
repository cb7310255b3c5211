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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e3b_gym.errors import DamagedFileError
from e3b_gym.files import UNFINISHED, atomic_write
from e3b_gym.tensor_files import load_tensors, save_tensors

KIND = "e3b_gym IMPALA checkpoint"
FORMAT = 1
_NAME = re.compile(r"checkpoint-(\d+)-(\d+)\.pt")
_BEST = "best.pt"


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
        score = None if score is None or math.isnan(score) else float(score)
        self.folder.mkdir(parents=True, exist_ok=True)
        for leftover in self.folder.glob("*" + UNFINISHED):
            leftover.unlink(missing_ok=True)
        before = self.paths()
        number = 1 + (_number(before[-1]) if before else 0)
        path = self.folder / f"checkpoint-{number:06d}-{frames}.pt"
        content = {"kind": KIND, "format": FORMAT, "frames": int(frames), "score": score, "state": state}
        save_tensors(path, content)
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
        content = load_tensors(path, mapped=mapped)
    except DamagedFileError as error:
        raise CheckpointError(str(error)) from error
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


def _second_name(path: Path, name: Path) -> None:
    with atomic_write(name) as temporary:
        try:
            os.link(path, temporary)
        except OSError:  # a file system without links
            shutil.copyfile(path, temporary)
