"""Saver: writes the checkpoints of a run periodically, and handles failed writes."""

from __future__ import annotations

import time
import warnings

from agents.protocols import Trainee
from e3b_gym.command import one_line
from experiments.progress import Progress
from experiments.settings import RunOptions


class NotSavedError(Exception):
    """A checkpoint could not be written."""


class Saver:
    """Saves checkpoints periodically."""

    def __init__(self, trainee: Trainee, options: RunOptions) -> None:
        self._trainee, self._period = trainee, 60 * options.checkpoint_minutes
        self._saved = trainee.frames
        self._due = time.monotonic() + self._period

    def save_if_due(self, progress: Progress) -> None:
        """Saves if a checkpoint is due. A failure is a warning: training continues, and the next save tries again."""
        if time.monotonic() < self._due:
            return
        try:
            self.save(progress)
        except NotSavedError as error:
            warnings.warn(f"{error}; training continues", RuntimeWarning, stacklevel=2)

    def save(self, progress: Progress) -> None:
        self._due = time.monotonic() + self._period
        if self._trainee.frames <= self._saved:
            return
        try:
            self._trainee.save(progress.episodes.score, progress.state_dict())
        except OSError as error:
            raise NotSavedError(
                f"the checkpoint of frame {self._trainee.frames:,} is not saved: {one_line(error)}"
            ) from error
        self._saved = self._trainee.frames

    def intact(self, again: str) -> str:
        """Returns a text that names the newest checkpoint and what the command `again` does."""
        if not self._saved:
            return f"there is no checkpoint after frame 0 yet; to start over: {again}"
        return f"the checkpoint of frame {self._saved:,} is intact; to resume: {again}"
