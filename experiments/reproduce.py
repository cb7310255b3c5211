"""Runs what is missing of a figure of the paper or a study of this library: several runs in parallel, resumable.

    make reproduce FIGURE=aggregate SCALE=home            then: make report FIGURE=aggregate SCALE=home

FIGURE=   a figure (below), several with commas, or all    SCALE=  paper, home (a small machine), smoke (minutes)
CORES=    runs at a time; all cores by default              RUNS=   folder of the runs; runs/reproduce by default
DRY=1     or --dry: print one command per line, run none    SEEDS=  number of seeds, where it is not the scale's
TASKS=    only these tasks, with commas                     METHODS=  only these methods, with commas: METHODS=e3b,none
CLUSTER=  ray: each run is a task of the Ray cluster at RAY_ADDRESS= (host:port or auto; none: a Ray on this machine)

Ctrl-C stops: every run saves a checkpoint, and the same command resumes it. Several machines that share the folder
divide the list among themselves when each is given the same command.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path

from agents.ray_cluster import require_ray
from e3b_gym.command import answer
from e3b_gym.envs.registry import suite_of
from e3b_gym.options import Count, closest, parse
from experiments.catalogue import STUDIES, read_choice
from experiments.command import folder
from experiments.progress import duration
from experiments.run_table import RunTable
from experiments.scheduler import Job, Scheduler, State, as_line
from experiments.settings import is_set, resolve, split_arguments
from experiments.studies import Run, Study, all_runs

OPTIONS = ("FIGURE", "SCALE", "CORES", "RUNS", "DRY", "SEEDS", "TASKS", "METHODS", "CLUSTER", "RAY_ADDRESS")
RUNS = "runs/reproduce"
UNKNOWN_SPEED = 500.0
"""Frames per second of runs in suites without `Suite.speeds`."""
EVALUATION_SECONDS = 60.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit code: 0 done, 1 where runs failed, 2 refused, 128 + signal when stopped."""
    figures = "\n".join(f"  {study.name:18} {study.title} [{study.source}]" for study in STUDIES.values())
    return answer(arguments, f"{__doc__}\n{figures}", _run)


def _run(given: list[str]) -> int:
    given = ["DRY=1" if argument == "--dry" else argument for argument in given]
    options, studies, scale = read_choice("reproduce", given, OPTIONS)
    cores = parse("CORES", options["CORES"], Count) if "CORES" in options else None
    runs, root = chosen_runs(studies, scale, options), folder(options, "RUNS", RUNS)
    with closing(make_scheduler(runs, root, cores, options)) as scheduler:
        return run_list(scheduler, studies, scale, options)


def make_scheduler(runs: Sequence[Run], root: Path, cores: int | None, options: Mapping[str, str]) -> Scheduler:
    """Returns the scheduler of CLUSTER=; raises ValueError if it is not available."""
    cluster = options.get("CLUSTER")
    if cluster not in (None, "ray"):
        raise ValueError(f"CLUSTER must be ray, or left out; got {cluster!r}")
    if cluster is None and "RAY_ADDRESS" in options:
        raise ValueError("RAY_ADDRESS= has no effect without CLUSTER=ray")
    if cluster is None or is_set(options, "DRY"):
        return Scheduler(runs, root, cores or available_cores(), frames_of)
    require_ray()
    from experiments.cluster import RayScheduler

    address = options.get("RAY_ADDRESS")
    return RayScheduler(runs, root, cores or (available_cores() if address is None else None), frames_of, address)


def run_list(scheduler: Scheduler, studies: Sequence[Study], scale: str, options: Mapping[str, str]) -> int:
    """Runs the unfinished runs, or prints their commands; returns the exit code."""
    cores, left = scheduler.cores, [job for job in scheduler.jobs if job.state is not State.FINISHED]
    if is_set(options, "DRY"):
        for job in left:
            print(as_line(job))
        return 0
    print(f"{len(scheduler.jobs) - len(left)} of {len(scheduler.jobs)} runs are finished in {scheduler.root}")
    if left:
        hours = duration(seconds_left(scheduler.jobs) / min(cores, len(left)))
        print(f"{len(left)} to run, {min(cores, len(left))} at a time: about {hours}", flush=True)
    code = run_all(scheduler)
    figure = ",".join(study.name for study in studies)
    print(f"next: make report FIGURE={figure} SCALE={scale}" + (f" RUNS={scheduler.root}" if "RUNS" in options else ""))
    return code


def chosen_runs(studies: Sequence[Study], scale: str, options: Mapping[str, str]) -> list[Run]:
    """The runs of the studies, each once; raises ValueError where none of them has the scale."""
    if "SEEDS" in options:
        seeds = parse("SEEDS", options["SEEDS"], Count)
        studies = [with_seeds(study, seeds) for study in studies]
    runs = all_runs(studies, scale)
    if not runs:
        studies[0].runs(scale)  # raises an error that names the scales
    runs = _named(runs, "TASKS", options, lambda run: str(run.task))
    return _named(runs, "METHODS", options, lambda run: run.method.method)


def _named(runs: list[Run], option: str, options: Mapping[str, str], name_of: Callable[[Run], str]) -> list[Run]:
    """The runs whose name is listed in the option, or all without it; raises ValueError for a name that none has."""
    if option not in options:
        return runs
    chosen = [name for part in options[option].split(",") if (name := part.strip())]
    names = {name_of(run) for run in runs}
    for name in chosen:
        if name not in names:
            raise ValueError(f"{option}: these runs have no {name!r}; {closest(name, names)}")
    return [run for run in runs if name_of(run) in chosen]


def with_seeds(study: Study, seeds: int) -> Study:
    """The study with another number of seeds at every scale."""
    scales = {name: dataclasses.replace(scale, seeds=seeds) for name, scale in study.scales.items()}
    return dataclasses.replace(study, scales=scales)


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def frames_of(run: Run) -> int:
    """Environment steps of a run: the study's, or those of the preset. Raises ValueError where options do not fit."""
    if not run.learns:
        return 0
    return _steps(tuple(option for option in run.train_options() if not option.startswith("SEED=")))


@cache
def _steps(options: tuple[str, ...]) -> int:
    chosen, fields = split_arguments(options, ("AGENT", "PRESET"))
    return int(resolve(chosen["AGENT"], chosen["PRESET"], fields).config.steps)


def seconds_left(jobs: Sequence[Job]) -> float:
    """Seconds of all runs that are not finished, one after the other; see `rate`."""
    left = [job for job in jobs if job.state is not State.FINISHED]
    return sum(
        max(job.frames - job.progress.frames, 0) / rate(job.run, jobs) + EVALUATION_SECONDS * (job.run.scale != "smoke")
        for job in left
    )


def rate(run: Run, jobs: Sequence[Job]) -> float:
    """Frames per second of the begun runs in the same environment, of those in the suite, or else an estimate."""
    begun = [job for job in jobs if job.progress.frames and job.progress.seconds]
    suite = suite_of(run.task.env)
    for alike in (
        [job for job in begun if job.run.task.env == run.task.env],
        [job for job in begun if suite_of(job.run.task.env) is suite],
    ):
        if alike:
            return sum(job.progress.frames for job in alike) / sum(job.progress.seconds for job in alike)
    speeds: Mapping[str, float] = {} if suite is None else suite.speeds
    return speeds.get(run.preset, speeds.get("home", UNKNOWN_SPEED))


def run_all(scheduler: Scheduler, pause: float = 1.0) -> int:
    """Runs everything with a live table; returns the exit code."""
    table = RunTable(scheduler.jobs, seconds_left, scheduler.cores)
    with stop_signals() as stopped, table:
        while not stopped() and scheduler.step():
            table.update()
            time.sleep(pause)
        if scheduler.active:
            table.say("stopping: every run saves a checkpoint first (Ctrl-C again: at once, without)")
            number = stopped()
            scheduler.stop()
            try:
                scheduler.wait()
            except KeyboardInterrupt:
                scheduler.kill()
                scheduler.wait()
            table.update()
            print("stopped; the same command resumes the runs")
            return 128 + number
    return conclude(scheduler)


def conclude(scheduler: Scheduler) -> int:
    """Prints the runs that failed."""
    for job in scheduler.of_state(State.FAILED):
        print(f"failed: {job.run.name}: {job.note}\n        log: {job.log}", file=sys.stderr)
    if elsewhere := scheduler.of_state(State.ELSEWHERE):
        names = ", ".join(job.run.name for job in elsewhere[:3]) + ", ..." * (len(elsewhere) > 3)
        print(f"left to another process or machine, which has claimed them: {len(elsewhere)} runs ({names})")
    return 1 if scheduler.of_state(State.FAILED) else 0


@contextmanager
def stop_signals() -> Iterator[Callable[[], int]]:
    """Gives the block a function that returns the signal that asked to stop, or 0. A second Ctrl-C interrupts."""
    got: list[int] = []

    def note(number: int, frame: object) -> None:
        if got and number == signal.SIGINT:
            raise KeyboardInterrupt
        got.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: got[0] if got else 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main())
