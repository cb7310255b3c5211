"""AGENT=impala for the commands: a training that saves itself, and a player of what it saved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from agents.impala.config import Config
from agents.impala.training import Training, Update
from experiments.settings import RunOptions


class CheckpointStore:
    def __init__(self, folder: Path, keep: int = 3) -> None:
        self.folder = folder

    def save(self, state, frames, score=None):
        self.folder.mkdir(parents=True, exist_ok=True)
        torch.save(state, self.folder / "x.part")
        (self.folder / "x.part").replace(self.folder / "latest.pt")

    def load_latest(self):
        return torch.load(self.folder / "latest.pt", weights_only=True)


class ImpalaTrainee:
    """An IMPALA run in progress.

    Args:
        config: the run.
        run: its options.
        resume: the folder of checkpoints to go on from; None for a new run.
    """

    def __init__(self, config: Config, run: RunOptions, resume: Path | None = None) -> None:
        self._keep = run.keep
        self._store: CheckpointStore | None = None
        self.extra: dict[str, Any] = {}
        state = None
        if resume is not None:
            self.save_into(resume)
            state = self._store.load_latest()
            self.extra = state["extra"]
        self.training = Training(config, state)

    def save_into(self, folder: Path) -> None:
        """Checkpoints go there."""
        self._store = CheckpointStore(folder, keep=self._keep)

    @property
    def frames(self) -> int:
        return self.training.learner.frames

    @property
    def seconds(self) -> dict[str, float]:
        return self.training.seconds

    def train(self, observe: Callable[[Update], None], stop: Callable[[], bool]) -> None:
        """Learns until all steps are done or `stop` says so."""
        for update in self.training:
            observe(update)
            if stop():
                return

    def save(self, score: float | None, extra: dict[str, Any]) -> None:
        """A checkpoint, with `extra` plain data in it."""
        if self._store is None:
            raise ValueError("nobody said where checkpoints go; call save_into first")
        self._store.save({**self.training.state_dict(), "extra": extra}, self.frames, score)

    def close(self) -> None:
        self.training.close()
