"""Executes a list of training runs, several at a time, each by the commands that a user would type.

A run is trained by `python -m experiments.train` and measured by `python -m experiments.evaluate` (`coverage` in
Habitat), one process on one core. Finished runs are skipped, interrupted ones resumed. Several schedulers, on one
machine or on several that share the folder, divide a list: each claims a run before starting it.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import IO, Any

from experiments.results import CONFIG, Progress, is_finished, progress_of, read_rows
from experiments.runs import RunFolder
from experiments.studies import Run

CLAIMS, LOGS = ".claims", ".logs"


class State(StrEnum):
    """State of a run in the list."""

    WAITING = "waiting"
    TRAINING = "training"
    MEASURING = "measuring"
    FINISHED = "finished"
    FAILED = "failed"
    ELSEWHERE = "elsewhere"
    """Claimed by another scheduler."""
    STOPPED = "stopped"


@dataclass
class Job:
    """A run of the list."""

    run: Run
    folder: Path
    frames: int
    """Environment steps that it is to have in the end."""
    log: Path
    """Output of its commands."""
    state: State = State.WAITING
    note: str = ""
    """Last line of the log of a run that failed."""
    progress: Progress = field(default_factory=Progress)
    curve: list[tuple[float, float]] = field(default_factory=list)
    """(frames, success) of each row so far."""
    process: subprocess.Popen[bytes] | None = None
    reached: int = -1
    """Frames when its process was started."""
    claim: RunFolder | None = None

    def update(self) -> None:
        """Reads how far the run has got."""
        rows = read_rows(self.folder)
        self.progress = progress_of(rows)
        self.curve = [(float(row["frames"]), float(row["success"])) for row in rows if row.get("success")]

    def train_command(self) -> list[str]:
        """Starts the run, or resumes it from the last checkpoint."""
        if not (self.folder / CONFIG).exists():
            return module("train", f"RUN={self.folder}", *self.run.train_options())
        return module("train", f"RUN={self.folder}", "RESUME=1", f"STEPS={self.frames}")

    def measure_command(self) -> list[str]:
        """Plays new environments with what was trained."""
        if self.run.measure == "coverage":
            options = (f"OUT={self.folder}", f"EPISODES={self.run.episodes}", "RANDOM=0")
            return module("coverage", f"RUNS={self.folder}", *options)
        return module("evaluate", f"RUN={self.folder}", f"EPISODES={self.run.episodes}")

    @property
    def needs_training(self) -> bool:
        if not self.run.learns:
            return not (self.folder / CONFIG).exists()
        return progress_of(read_rows(self.folder)).frames < self.frames

    @property
    def needs_measuring(self) -> bool:
        return self.run.measure != "frames per second"

    def commands(self) -> list[list[str]]:
        """The remaining commands, in order."""
        train = [self.train_command()] if self.needs_training else []
        return train + ([self.measure_command()] if self.needs_measuring else [])


def module(name: str, *options: str) -> list[str]:
    """`python -m experiments.<name> ...`."""
    return ["python", "-m", f"experiments.{name}", *options]


def as_line(job: Job) -> str:
    """The commands of a job as one line for a shell."""
    return "OMP_NUM_THREADS=1 sh -c " + shlex.quote(" && ".join(shlex.join(command) for command in job.commands()))


class Scheduler:
    """Runs jobs within a number of cores.

    Args:
        runs: the list, in the order of their start.
        root: folder of all runs.
        cores: how many run at a time.
        frames_of: environment steps of a run.
    """

    def __init__(self, runs: Sequence[Run], root: Path, cores: int, frames_of: Callable[[Run], int]) -> None:
        self.root, self.cores = root, cores
        self._warned = False
        self.jobs = [
            Job(
                run, root / run.folder, frames_of(run), root / LOGS / run.folder.with_suffix(run.folder.suffix + ".log")
            )
            for run in runs
        ]
        for job in self.jobs:
            job.update()
            if is_finished(job.run, job.folder, job.frames):
                job.state = State.FINISHED

    def of_state(self, *states: State) -> list[Job]:
        return [job for job in self.jobs if job.state in states]

    @property
    def active(self) -> list[Job]:
        return self.of_state(State.TRAINING, State.MEASURING)

    def step(self) -> bool:
        """Handles ended runs and starts new ones on free cores; False when nothing is left to do here."""
        for job in self.active:
            self._check(job)
        for job in self.of_state(State.WAITING, State.ELSEWHERE):
            if len(self.active) >= self.cores:
                break
            self._claim(job)
        return bool(self.active)

    def _claim(self, job: Job) -> None:
        """Starts the job, unless another scheduler has claimed it or has finished it in the meantime."""
        job.claim = self._hold(job)
        if job.claim is None:
            job.state = State.ELSEWHERE
            return
        job.update()
        if is_finished(job.run, job.folder, job.frames):
            self._end(job, State.FINISHED)
            return
        _remove_empty(job.folder)
        if job.needs_training:
            self._start(job, State.TRAINING, job.train_command())
        else:
            self._start(job, State.MEASURING, job.measure_command())

    def _hold(self, job: Job) -> RunFolder | None:
        """Claims a job for this process; None if another one has claimed it or trains there."""
        claim = RunFolder(self.root / CLAIMS / job.run.folder)
        try:
            claim.hold()
            if job.folder.is_dir():  # a job of a killed scheduler may still be saving its checkpoint
                _require_free(job.folder)
        except ValueError:
            claim.release()
            return None
        if not claim.locks and not self._warned:
            self._warned = True
            warnings.warn(
                f"the file system of {self.root} has no locks, so runs cannot be claimed; only one machine may run "
                "this list",
                RuntimeWarning,
                stacklevel=2,
            )
        return claim

    def _start(self, job: Job, state: State, command: list[str]) -> None:
        job.log.parent.mkdir(parents=True, exist_ok=True)
        with job.log.open("ab") as log:
            log.write(f"$ {shlex.join(command)}\n".encode())
            log.flush()
            job.process = _spawn([sys.executable, "-W", "ignore", *command[1:]], log)
        job.state, job.reached = state, job.progress.frames

    def _check(self, job: Job) -> None:
        job.update()
        code = None if job.process is None else job.process.poll()
        if code is None:
            return
        if code < 0 and job.progress.frames > job.reached:  # killed, such as when memory runs out, after some progress
            self._start(job, job.state, job.train_command() if job.needs_training else job.measure_command())
        elif code != 0:
            self._end(job, State.FAILED, f"exit code {code}: {_last_line(job.log)}")
        elif job.state is State.TRAINING and job.needs_measuring:
            self._start(job, State.MEASURING, job.measure_command())
        else:
            self._end(job, State.FINISHED)

    def _end(self, job: Job, state: State, note: str = "") -> None:
        job.state, job.note, job.process = state, note, None
        if job.claim is not None:
            job.claim.release()
            job.claim = None

    def stop(self) -> None:
        """Asks the running jobs to end; training saves a checkpoint first."""
        for job in self.active:
            if job.process is not None:
                job.process.terminate()

    def wait(self) -> None:
        """Waits until all jobs that were asked to stop have ended."""
        for job in self.active:
            if job.process is not None:
                job.process.wait()
            try:
                job.update()
            finally:
                self._end(job, State.STOPPED)

    def kill(self) -> None:
        """Kills the running jobs; each loses the progress since its last checkpoint."""
        for job in self.active:
            if job.process is not None:
                job.process.kill()

    def close(self) -> None:
        """Stops jobs that still run, for example after an error, and waits for them."""
        self.stop()
        self.wait()


def _spawn(command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    """Starts a process with one thread that is asked to stop when this one dies, and that Ctrl-C does not reach."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,
        preexec_fn=_stop_with_parent if sys.platform == "linux" else None,
    )


_LIBC: Any = ctypes.CDLL(None) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1


def _stop_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _remove_empty(folder: Path) -> None:
    """Removes the folder of a run that ended before it started: it holds only a lock."""
    if folder.is_dir() and {path.name for path in folder.iterdir()} <= {".lock"}:
        (folder / ".lock").unlink(missing_ok=True)
        folder.rmdir()


def _require_free(folder: Path) -> None:
    """Raises ValueError while a process trains there."""
    run = RunFolder(folder)
    run.hold()
    run.release()


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    return next((line for line in reversed(lines) if line.strip()), "no output")
