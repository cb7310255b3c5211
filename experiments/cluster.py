"""`make reproduce CLUSTER=ray`: each run of the list is a task of a Ray cluster.

A task does on its machine what `experiments.scheduler` does for one run: it claims the run, trains or resumes it,
measures it. Ray starts a task again elsewhere when its worker or its machine is lost; it resumes from the last
checkpoint. The folder of the runs must be shared by all machines.
"""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from agents.ray_cluster import connect, count_cores
from experiments.results import is_finished
from experiments.scheduler import Job, Scheduler, State
from experiments.studies import Run

_PAUSE = 0.5  # seconds between two checks of a run
_SHARED_SECONDS = 30.0  # for a new file to appear on another machine
_CLAIM_SECONDS = 120.0  # for the claim of a machine that was lost to end
_STOP = "stop"  # in the mark: all tasks end
_ROOT = Path(__file__).parents[1]


class RayScheduler(Scheduler):
    """Runs jobs on a Ray cluster.

    Args:
        runs, root, frames_of: as for `Scheduler`; a relative `root` is one of the checkout.
        cores: how many run at a time; None for as many as the cluster has cores.
        address: address of the cluster; None for a Ray on this machine.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        root: Path,
        cores: int | None,
        frames_of: Callable[[Run], int],
        address: str | None = None,
    ) -> None:
        self._session = connect(address, cores or 1, f"{cores or 1} runs at a time")
        super().__init__(runs, root, cores or count_cores(), frames_of)
        self._all_cores = cores is None
        self._tasks: dict[Path, Any] = {}
        self._mark = root / f".shared-{uuid.uuid4().hex}"
        self._mark.parent.mkdir(parents=True, exist_ok=True)
        self._mark.touch()
        remote: Any = ray.remote
        self._remote = remote(num_cpus=1, max_retries=-1)(train_and_measure)

    def step(self) -> bool:
        if self._all_cores:  # machines may have joined
            self.cores = max(1, count_cores())
        return super().step()

    def _claim(self, job: Job) -> None:
        """Submits the job to Ray unless another process has claimed it."""
        claim = self._hold(job)
        if claim is None:  # a task would wait on a core of the cluster
            job.state = State.ELSEWHERE
            return
        claim.release()
        job.update()
        if is_finished(job.run, job.folder, job.frames):
            self._end(job, State.FINISHED)
            return
        job.state = State.TRAINING if job.needs_training else State.MEASURING
        self._tasks[job.folder] = self._remote.remote(job.run, self.root, job.frames, self._mark)

    def _check(self, job: Job) -> None:
        job.update()
        if not job.needs_training:
            job.state = State.MEASURING
        task = self._tasks[job.folder]
        if not ray.wait([task], timeout=0)[0]:
            return
        try:
            state, note = ray.get(task)
        except RayError as error:
            cause = error.cause if isinstance(error, RayTaskError) else error
            state, note = State.FAILED, " ".join(str(cause).split())
        job.update()
        self._end(job, state, note)

    def stop(self) -> None:
        """Asks the tasks to end. Running tasks read it from the mark; Ray drops those that wait for a core."""
        self._mark.write_text(_STOP)
        for job in self.active:
            ray.cancel(self._tasks[job.folder])

    def wait(self) -> None:
        tasks = [self._tasks[job.folder] for job in self.active]
        if tasks:
            ray.wait(tasks, num_returns=len(tasks))
        for job in self.active:
            job.update()
            self._end(job, State.STOPPED)

    def kill(self) -> None:
        for job in self.active:
            ray.cancel(self._tasks[job.folder], force=True)

    def close(self) -> None:
        self._mark.unlink(missing_ok=True)  # which also stops the tasks that still run
        self._session.close()


def train_and_measure(run: Run, root: Path, frames: int, mark: Path) -> tuple[State, str]:
    """Trains and measures a run on a machine of the cluster; returns its final state, and a note if it failed.

    Asked to stop, by the mark or by Ray, it asks the run to save a checkpoint and waits for it.
    """
    with _interrupts_noted() as interrupted:
        os.chdir(_ROOT)
        _require_shared(mark)
        deadline = time.monotonic() + _CLAIM_SECONDS
        with closing(Scheduler([run], root, 1, lambda _: frames)) as scheduler:
            (job,) = scheduler.jobs
            while not (interrupted() or _is_stopped(mark)):
                if not (scheduler.step() or (job.state is State.ELSEWHERE and time.monotonic() < deadline)):
                    return job.state, job.note
                time.sleep(_PAUSE)
        return State.STOPPED, ""


@contextmanager
def _interrupts_noted() -> Iterator[Callable[[], bool]]:
    """Gives the block a function that returns whether Ray has cancelled the task.

    Ray cancels by a KeyboardInterrupt, which may be raised anywhere. Between the start of a training process and the
    line that stores its id, the process would be lost and continue to train.
    """
    got: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: got.append(number))
    try:
        yield lambda: bool(got)
    finally:
        signal.signal(signal.SIGINT, before)


def _is_stopped(mark: Path) -> bool:
    """Whether the scheduler has asked all tasks to stop or has ended."""
    try:
        return mark.read_text() == _STOP
    except FileNotFoundError:
        return True
    except OSError:  # a network file system that does not answer for a moment
        return False


def _require_shared(mark: Path) -> None:
    deadline = time.monotonic() + _SHARED_SECONDS
    while not mark.exists():
        if time.monotonic() > deadline:
            where = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
            raise ValueError(f"{where} cannot read {mark.parent}; RUNS= must be a folder that all machines share")
        time.sleep(_PAUSE)
