"""The live table of `make reproduce`: state, frames, speed, success and time left of every run."""

from __future__ import annotations

import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table

from experiments.progress import duration, short
from experiments.scheduler import Job, State

COLOURS = {State.TRAINING: "green", State.MEASURING: "cyan", State.FAILED: "red", State.FINISHED: "dim"}
ORDER = (State.FAILED, State.TRAINING, State.MEASURING, State.STOPPED, State.ELSEWHERE, State.FINISHED, State.WAITING)
LOG_FILE_SECONDS = 60.0
"""Between two lines in a file."""


class RunTable:
    """Redrawn in place in a terminal; in a file, one line per change of a run's state and one per minute.

    Args:
        jobs: jobs of the scheduler.
        seconds_left: of all of them, one after the other.
        cores: how many run at a time.
    """

    def __init__(self, jobs: Sequence[Job], seconds_left: Callable[[Sequence[Job]], float], cores: int) -> None:
        self._jobs, self._seconds_left, self._cores = jobs, seconds_left, cores
        self._console = Console(file=sys.stdout)
        self._live = Live(console=self._console, auto_refresh=False) if self._console.is_terminal else None
        self._states = {job.run.folder: job.state for job in jobs}
        self._next = 0.0

    def __enter__(self) -> RunTable:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.update(last=True)
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        self._console.print(text)

    def update(self, last: bool = False) -> None:
        if self._live is not None:
            self._live.update(self.table(), refresh=True)
            return
        for job in self._jobs:
            if job.state is not self._states[job.run.folder]:
                self._states[job.run.folder] = job.state
                print(f"{job.run.name}: {job.state}{success_text(job)}", flush=True)
        if time.monotonic() >= self._next or last:
            self._next = time.monotonic() + LOG_FILE_SECONDS
            print(self.summary(), flush=True)

    def summary(self) -> str:
        """Counts of the states, and the time left."""
        counts = Counter(job.state for job in self._jobs)
        left = self._seconds_left(self._jobs)
        parts = [f"{counts[state]} {state}" for state in ORDER if counts[state]]
        return ", ".join(parts) + (f"; about {duration(left / self._cores)} left" if left else "")

    def table(self) -> Table:
        """The most interesting runs that fit on the screen, in the order of the list."""
        table = Table(box=None, caption=self.summary(), caption_justify="left", pad_edge=False)
        for name in ("task", "method", "seed", "state", "frames", "per s", "success", "curve", "left"):
            table.add_column(
                name, justify="right" if name in ("seed", "frames", "per s", "success", "left") else "left"
            )
        room = max(self._console.height - 5, 5)
        shown = sorted(self._jobs, key=lambda job: ORDER.index(job.state))[:room]
        for job in (job for job in self._jobs if job in shown):
            table.add_row(*cells(job), style=COLOURS.get(job.state))
        return table


def cells(job: Job) -> list[str]:
    """A row of the table."""
    now = job.progress
    speed = now.fps if job.state is State.TRAINING and not math.isnan(now.fps) else math.nan
    left = duration((job.frames - now.frames) / speed) if speed > 0 else ""
    return [
        job.run.task.short,
        job.run.method.label,
        str(job.run.seed),
        str(job.state),
        f"{short(now.frames)}/{short(job.frames)}",
        "" if math.isnan(speed) else f"{speed:,.0f}",
        "" if math.isnan(now.success) else f"{now.success:.2f}",
        sparkline(job.curve, job.frames),
        left,
    ]


def success_text(job: Job) -> str:
    if job.state is State.FAILED:
        return f" ({job.note})"
    return "" if math.isnan(job.progress.success) else f", training success {job.progress.success:.2f}"


def sparkline(curve: Sequence[tuple[float, float]], frames: int, width: int = 24) -> str:
    """Success, a number in [0, 1], over all frames of the run in `width` characters."""
    marks = [" "] * width
    for done, success in curve:
        marks[min(int(done) * width // max(frames, 1), width - 1)] = "▁▂▃▄▅▆▇█"[min(int(success * 8), 7)]
    return "".join(marks)
