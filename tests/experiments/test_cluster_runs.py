"""`make reproduce CLUSTER=ray`, and machines that share a folder: runs are divided, and a killed one is resumed."""

from __future__ import annotations

import _thread
import dataclasses
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import psutil
import pytest
from claimed import claimed_elsewhere
from ray.cluster_utils import Cluster

from agents.ray_cluster import ENVIRONMENT
from experiments.catalogue import STUDIES
from experiments.cluster import RayScheduler, train_and_measure
from experiments.reproduce import frames_of, main
from experiments.results import read_rows
from experiments.scheduler import Scheduler, State
from experiments.studies import Run

DEMO = STUDIES["demo"]
FRAMES = 1_000_000
OFTEN = {"checkpoint_minutes": 0.02, "log_seconds": 0.2}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """One machine with two cores."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
        yield made
        made.shutdown()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # Ray has replaced the handler


def long_run() -> Run:
    """Long enough to be killed, with checkpoints every second."""
    run = DEMO.runs("smoke")[0]
    return dataclasses.replace(run, frames=FRAMES, options={**run.options, **OFTEN})


def until(scheduler: Scheduler, holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 300
    while not holds():
        assert scheduler.step() or holds()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def newest_checkpoint(folder: Path) -> int:
    """Its frames; 0 where there is none but the first."""
    names = [path.name for path in (folder / "checkpoints").glob("checkpoint-*.pt")]
    return max((int(re.findall(r"\d+", name)[1]) for name in names), default=0)


def trainers(folder: Path) -> list[psutil.Process]:
    """The processes that train there."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if "experiments.train" in command and f"RUN={folder}" in command:
            found.append(process)
    return found


def resumed_at(log: Path) -> list[int]:
    return [int(frames.replace(",", "")) for frames in re.findall(r"resuming at frame ([\d,]+)", log.read_text())]


def test_a_killed_run_is_resumed_and_loses_a_checkpoint_interval_at_most(tmp_path: Path) -> None:
    scheduler = Scheduler([long_run()], tmp_path, 1, lambda _: FRAMES)
    (job,) = scheduler.jobs
    until(scheduler, lambda: newest_checkpoint(job.folder) > 0 and len(read_rows(job.folder)) > 1)
    (trainer,) = trainers(job.folder)
    saved = newest_checkpoint(job.folder)
    trainer.kill()
    until(scheduler, lambda: resumed_at(job.log))
    assert resumed_at(job.log)[0] >= saved > 0
    scheduler.stop()
    scheduler.wait()


def test_a_run_that_is_killed_before_it_gets_further_has_failed(tmp_path: Path) -> None:
    scheduler = Scheduler([long_run()], tmp_path, 1, lambda _: FRAMES)
    (job,) = scheduler.jobs
    until(scheduler, lambda: bool(trainers(job.folder)))
    trainers(job.folder)[0].kill()
    until(scheduler, lambda: job.state is State.FAILED)
    assert "exit code -9" in job.note


def test_a_run_is_left_to_who_has_claimed_it_then_trained_and_measured_by_the_cluster(
    cluster: Cluster, tmp_path: Path
) -> None:
    scheduler = RayScheduler(DEMO.runs("smoke")[:1], tmp_path, 1, frames_of, cluster.address)
    try:
        (job,) = scheduler.jobs
        with claimed_elsewhere(tmp_path, job.run):
            assert not scheduler.step()  # the list ends, instead of a task that waits
            assert job.state is State.ELSEWHERE
        until(scheduler, lambda: job.state in (State.FINISHED, State.FAILED))
        assert job.state is State.FINISHED
        assert not job.needs_training
    finally:
        scheduler.close()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".shared")]


@pytest.mark.slow
def test_the_runs_of_a_figure_are_tasks_of_the_cluster(cluster: Cluster, tmp_path: Path, capsys) -> None:
    options = ["FIGURE=demo", "SCALE=smoke", f"RUNS={tmp_path}", "CLUSTER=ray", f"RAY_ADDRESS={cluster.address}"]
    assert main(options) == 0
    assert "3 to run, 2 at a time" in capsys.readouterr().out
    assert main(options) == 0
    assert "3 of 3 runs are finished" in capsys.readouterr().out
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".shared")]


@pytest.mark.slow
def test_a_task_whose_worker_is_killed_is_resumed_by_another(cluster: Cluster, tmp_path: Path) -> None:
    scheduler = RayScheduler([long_run()], tmp_path, 1, lambda _: FRAMES, cluster.address)
    try:
        (job,) = scheduler.jobs
        until(scheduler, lambda: newest_checkpoint(job.folder) > 0 and len(read_rows(job.folder)) > 1)
        (trainer,) = trainers(job.folder)
        saved = newest_checkpoint(job.folder)
        os.kill(trainer.ppid(), signal.SIGKILL)  # the worker of Ray
        until(scheduler, lambda: resumed_at(job.log))
        assert resumed_at(job.log)[0] >= saved > 0
        scheduler.stop()
        scheduler.wait()
    finally:
        scheduler.close()


@pytest.mark.slow
def test_stopping_saves_a_checkpoint_on_the_machine_of_the_run(cluster: Cluster, tmp_path: Path) -> None:
    scheduler = RayScheduler([long_run()], tmp_path, 1, lambda _: FRAMES, cluster.address)
    try:
        (job,) = scheduler.jobs
        until(scheduler, lambda: len(read_rows(job.folder)) > 1)
        scheduler.stop()
        scheduler.wait()
        assert job.state is State.STOPPED
        assert not trainers(job.folder)
        assert newest_checkpoint(job.folder) == job.progress.frames > 0
    finally:
        scheduler.close()


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """The file by which a machine finds that it shares the folder."""
    made = tmp_path / ".shared-mark"
    made.touch()
    return made


def test_a_task_that_is_cancelled_while_it_starts_a_process_ends_the_process(
    mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def spawn(command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(["sleep", "600"]))
        _thread.interrupt_main()  # as Ray cancels
        return started[0]

    monkeypatch.setattr("experiments.scheduler._spawn", spawn)
    monkeypatch.chdir(mark.parent)
    assert train_and_measure(long_run(), mark.parent, FRAMES, mark) == (State.STOPPED, "")
    assert started[0].poll() is not None


def test_a_task_that_starts_after_the_list_was_stopped_starts_nothing(
    mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark.write_text("stop")
    monkeypatch.chdir(mark.parent)
    assert train_and_measure(long_run(), mark.parent, FRAMES, mark) == (State.STOPPED, "")
    assert list(mark.parent.iterdir()) == [mark]


def test_a_machine_that_does_not_share_the_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.cluster._SHARED_SECONDS", 0.0)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="RUNS= must be a folder that all machines share"):
        train_and_measure(long_run(), tmp_path, FRAMES, tmp_path / ".shared-nowhere")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["CLUSTER=slurm"], "CLUSTER must be ray, or left out; got 'slurm'"),
        (["RAY_ADDRESS=auto"], "RAY_ADDRESS= has no effect without CLUSTER=ray"),
        (["CLUSTER=ray", "RAY_ADDRESS=127.0.0.1:1"], "no Ray cluster answers at 127.0.0.1:1"),
    ],
)
def test_mistakes_are_answered_in_one_line(options: list[str], reason: str, tmp_path: Path, capsys) -> None:
    assert main(["FIGURE=demo", "SCALE=smoke", f"RUNS={tmp_path}", *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert reason in line
