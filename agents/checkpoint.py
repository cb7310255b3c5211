"""Checkpoints of all agents: written atomically; the last few and the best are kept.

    store = CheckpointStore(folder, "IMPALA")
    store.save(training.state_dict(), frames, score)
    checkpoint = CheckpointStore(folder, "IMPALA").load_latest()

A file is written under another name, flushed to the disk and then renamed, so a kill at any time leaves the previous
one intact. It has tensors and plain data only, and reading it runs no code. Its checksums are verified when it is read:
torch.load accepts flipped bits. The folder:

    checkpoint-000007-81920.pt     the seventh, after 81,920 frames
    best.pt                        hard link to the one with the best score
    checkpoint-....pt.part         a save in progress, or an incomplete one after a kill
"""

from __future__ import annotations

import math
import os
import re
import shutil
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.exported import is_exported, read_exported
from e3b_gym.errors import DamagedFileError, first_line
from e3b_gym.files import UNFINISHED, atomic_write
from e3b_gym.tensor_files import load_tensors, save_tensors

KIND = "e3b_gym {agent} checkpoint"
FORMAT = 1
_NAME = re.compile(r"checkpoint-(\d+)-(\d+)\.pt")
_BEST = "best.pt"


class CheckpointError(ValueError):
    """A file is not a usable checkpoint."""


class CheckpointWarning(RuntimeWarning):
    """A damaged checkpoint was skipped, and an earlier one used."""


@dataclass(frozen=True)
class Checkpoint:
    """Content of a checkpoint file."""

    state: dict[str, Any]
    """The state passed to `save`, with tensors on the CPU."""

    frames: int
    """Environment steps at the time of saving."""

    score: float | None
    """Score, higher is better; None: not known yet."""

    path: Path
    """Path of the file."""


class CheckpointStore:
    """The checkpoints of one run. One process may write, others may read at the same time.

    Args:
        folder: folder of the checkpoints; created by the first save.
        agent: kind of agent, such as "IMPALA"; files of another kind raise CheckpointError.
        keep: number of latest checkpoints to keep, in addition to the best.
    """

    def __init__(self, folder: str | Path, agent: str = "IMPALA", keep: int = 3) -> None:
        if keep < 1:
            raise ValueError(f"keep must be at least 1, or there is nothing to resume from; got {keep}")
        self.folder = Path(folder)
        self.agent = agent
        self.keep = keep
        self._best_score: float | None = None

    def paths(self) -> list[Path]:
        """The checkpoints, oldest first, without the best one's second name."""
        found = [path for path in self.folder.glob("checkpoint-*.pt") if _NAME.fullmatch(path.name)]
        return sorted(found, key=_number)

    def save(self, state: dict[str, Any], frames: int, score: float | None = None) -> Path:
        """Writes a checkpoint; once this returns, it survives a kill or a power cut.

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
        kind = KIND.format(agent=self.agent)
        save_tensors(path, {"kind": kind, "format": FORMAT, "frames": int(frames), "score": score, "state": state})
        if score is not None and score >= self._score_to_beat():
            _second_name(path, self.folder / _BEST)
            self._best_score = score
        for old in before[: max(len(before) + 1 - self.keep, 0)]:
            old.unlink(missing_ok=True)
        return path

    def load_latest(self) -> Checkpoint:
        """Returns the last checkpoint that can be read; a warning names damaged ones."""
        return self._first_good(self.paths()[::-1])

    def load_best(self) -> Checkpoint:
        """Returns the checkpoint with the best score.

        Raises:
            FileNotFoundError: no checkpoint has a score yet.
            CheckpointError: the file cannot be used.
        """
        best = self.folder / _BEST
        if not best.exists():
            raise FileNotFoundError(
                f"{self.folder} has no best checkpoint: none was saved with a score yet; use the latest"
            )
        return read(best, self.agent)

    def _first_good(self, paths: Sequence[Path]) -> Checkpoint:
        if not paths:
            raise FileNotFoundError(f"{self.folder} has no checkpoint; check the folder, or start a new run")
        problems = []
        for path in paths:
            try:
                checkpoint = read(path, self.agent)
            except (CheckpointError, FileNotFoundError) as error:  # the writer may have removed it in the meantime
                problems.append(str(error))
                continue
            if problems:
                warnings.warn(
                    f"using the earlier {path.name} ({checkpoint.frames} frames): {'; '.join(problems)}",
                    CheckpointWarning,
                    stacklevel=3,
                )
            return checkpoint
        raise CheckpointError(f"no checkpoint in {self.folder} can be used: {'; '.join(problems)}")

    def _score_to_beat(self) -> float:
        if self._best_score is None:
            try:
                score = read(self.folder / _BEST, self.agent, mapped=True).score
            except (CheckpointError, FileNotFoundError):
                score = None
            self._best_score = -math.inf if score is None else score
        return self._best_score


class SavingTrainee:
    """The part of a trainee that saves and loads checkpoints; see `agents.protocols.Trainee`.

    Args:
        agent: name of the agent in the files.
        keep: how many checkpoints stay.
    """

    def __init__(self, agent: str, keep: int) -> None:
        self._agent, self._keep = agent, keep
        self._store: CheckpointStore | None = None
        self.extra: dict[str, Any] = {}

    def save_into(self, folder: Path) -> None:
        """Sets the folder of the checkpoints."""
        self._store = CheckpointStore(folder, self._agent, self._keep)

    def load_from(self, folder: Path | None) -> Checkpoint | None:
        """Saves into `folder` from now on, and returns its latest checkpoint; None if there is none."""
        if folder is None:
            return None
        self.save_into(folder)
        return self._store.load_latest() if self._store is not None and self._store.paths() else None

    def save_state(self, state: dict[str, Any], frames: int, score: float | None) -> None:
        """Writes a checkpoint."""
        if self._store is None:
            raise ValueError("there is no folder for checkpoints; call save_into first")
        self._store.save(state, frames, score)


def load_checkpoint(folder: Path, agent: str, which: str) -> Checkpoint:
    """Returns the "latest" or the "best" checkpoint of a run; of an exported agent, what was exported."""
    if is_exported(folder):
        try:
            return Checkpoint(*read_exported(folder, agent), score=None, path=folder)
        except ValueError as error:
            raise CheckpointError(str(error)) from error
    store = CheckpointStore(folder, agent)
    return store.load_best() if which == "best" else store.load_latest()


def read(path: str | Path, agent: str = "IMPALA", *, mapped: bool = False) -> Checkpoint:
    """Reads a checkpoint file.

    Args:
        path: path of the file.
        agent: expected kind of agent.
        mapped: read tensors from the disk when they are used, without verifying checksums; the file must not change
            meanwhile.

    Raises:
        CheckpointError: the file is damaged, not a checkpoint, of another agent or of a later version.
    """
    path = Path(path)
    try:
        content = load_tensors(path, mapped=mapped)
    except DamagedFileError as error:
        raise CheckpointError(str(error)) from error
    if not isinstance(content, dict) or content.get("kind") != KIND.format(agent=agent):
        raise CheckpointError(f"{path} is not a checkpoint of this library's {agent}")
    version, state, frames = content.get("format"), content.get("state"), content.get("frames")
    if isinstance(version, int) and version > FORMAT:
        raise CheckpointError(
            f"{path} has format {version}, and this version reads formats up to {FORMAT}; update e3b_gym"
        )
    score = content.get("score", "missing")
    kinds = ((version, int), (state, dict), (frames, int), (score, (float, type(None))))
    if not all(isinstance(value, kind) for value, kind in kinds):
        raise CheckpointError(f"{path} lacks parts of a checkpoint; it has {', '.join(map(str, content))}")
    return Checkpoint(content["state"], content["frames"], content["score"], path)


@contextmanager
def loading(checkpoint: Checkpoint) -> Iterator[None]:
    """Context for loading the content of a checkpoint: errors of content that does not fit become CheckpointError."""
    try:
        yield
    except CheckpointError:
        raise
    except (RuntimeError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise CheckpointError(
            f"{checkpoint.path} does not fit the run's config.yaml ({first_line(error)}); restore the one it was "
            "trained with"
        ) from error


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
