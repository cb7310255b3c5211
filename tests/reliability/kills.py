"""kill -9 at random moments of real training, each followed by RESUME=1; actors killed and stopped under a learner.

Every row of the curve (log_seconds=0) and every checkpoint is checked after every kill.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from agents.checkpoint import CheckpointError, read
from experiments.curve import read_curve

ROOT = Path(__file__).parents[2]
INTERVAL = 2.0
"""Seconds between checkpoints."""
SLACK = 0.5
"""Seconds that the rounding of the curve and a busy machine may add to an interval."""
LONGEST_ROW = 8192
"""Bytes."""
PATIENCE = 600.0
"""Seconds until a run must have started to train."""
SETTINGS = {
    "IMPALA, inline": "ENV=Rooms-K3-v0 engine=inline n_envs=8 n_steps=16 batch_size=64 lstm=16 dim=16",
    "IMPALA, processes": "ENV=MiniHack-MultiRoom-N6-v0 engine=process actors=2 n_envs=4 n_steps=16 batch_size=32",
    "PPO": "ENV=Rooms-K3-v0 AGENT=ppo n_envs=8 n_steps=16 batch_size=64 n_epochs=1 hidden=16 dim=16",
}
ROLLOUT = {"IMPALA, inline": 128, "IMPALA, processes": 64, "PPO": 128}
KIND = {"PPO": "PPO"}
"""The name of the agent in its checkpoints; IMPALA where there is none."""


@dataclass
class Result:
    """tried, survived and what was lost."""

    tried: int = 0
    survived: int = 0
    lost: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    """Seconds of training lost by each kill."""

    def add(self, problem: str) -> None:
        self.tried += 1
        self.survived += not problem
        if problem:
            self.lost.append(problem)

    def as_dict(self) -> dict[str, Any]:
        worst = {"seconds lost at most": round(max(self.seconds), 1)} if self.seconds else {}
        return {"tried": self.tried, "survived": self.survived, "lost": self.lost, **worst}


Keep = Callable[[dict[str, Any]], None]
"""Stores what was found so far, after each trial: a campaign takes hours, and may be stopped."""


def forget(found: dict[str, Any]) -> None:
    """Keeps nothing."""


class Run:
    """A run in a separate process."""

    def __init__(self, name: str, folder: Path, steps: int = 10**9) -> None:
        self.name, self.folder, self.steps = name, folder, steps
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        """Starts the run, or resumes it where it has begun."""
        given = [f"RUN={self.folder}", *more]
        if (self.folder / "config.yaml").exists():
            given += ["RESUME=1"]
        else:
            often = [f"checkpoint_minutes={INTERVAL / 60}", "log_seconds=0", f"STEPS={self.steps}"]
            given += [*SETTINGS[self.name].split(), *often]
        # Actors that hang are replaced after seconds, not minutes.
        command = [sys.executable, "-W", "ignore", "-m", "tests.reliability.impatient", *given]
        with open(self.folder.with_suffix(".log"), "ab") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)

    def frames(self) -> int:
        """Frames of the newest row; 0 where there is none."""
        with suppress(OSError, ValueError, IndexError), open(self.folder / "progress.csv", "rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - LONGEST_ROW, 0))
            return int(file.read().split(b"\n")[-2].split(b",")[0])
        return 0

    def wait_for(self, arrived: Callable[[], bool]) -> bool:
        """Whether it came true before the process ended or patience did."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and self.process is not None and self.process.poll() is None:
            if arrived():
                return True
            time.sleep(0.02)
        return False

    def ended(self) -> int | None:
        """Its exit code; None where it has not ended when patience has."""
        with suppress(subprocess.TimeoutExpired):
            return None if self.process is None else self.process.wait(PATIENCE)
        return None

    def actors(self) -> list[psutil.Process]:
        """The processes of the actors."""
        with suppress(psutil.Error):
            children = psutil.Process(self.process.pid).children() if self.process is not None else []
            return [one for one in children if not any("resource_tracker" in part for part in one.cmdline())]
        return []

    def kill(self) -> list[psutil.Process]:
        """kill -9; returns its children, which must end by themselves."""
        children = self.actors()
        if self.process is not None and self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()
        return children


def check(run: Run, reached: int, orphans: Sequence[psutil.Process], result: Result) -> str:
    """What a kill broke; nothing in the good case."""
    _, alive = psutil.wait_procs(list(orphans), timeout=20)
    if alive:
        return f"{run.name}: {len(alive)} processes outlived the run"
    if not (run.folder / "config.yaml").exists():
        return ""  # killed before it wrote anything
    files = sorted((run.folder / "checkpoints").glob("checkpoint-*.pt"))
    try:
        saved = [read(file, KIND.get(run.name, "IMPALA")) for file in files]
    except CheckpointError as error:
        return f"{run.name}: {error}"
    if not saved:
        return "" if not (run.folder / "progress.csv").exists() else f"{run.name}: a curve without a checkpoint"
    newest = saved[-1].frames
    if newest < reached:
        return f"{run.name}: the newest checkpoint fell from frame {reached} to {newest}"
    if not (run.folder / "progress.csv").exists():
        return ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the row that was being written
        curve = read_curve(run.folder / "progress.csv")[1]
    rows = [int(row["frames"]) for row in curve]
    expected = list(range(ROLLOUT[run.name], newest + 1, ROLLOUT[run.name]))
    if rows[: len(expected)] != expected:
        return f"{run.name}: rows {rows[-5:]} at the checkpoint of frame {newest}"
    lost = [float(row["seconds"]) for row in curve[max(len(expected) - 1, 0) :]]
    if not lost:
        return ""
    result.seconds.append(lost[-1] - lost[0])
    if len(lost) > 1 and lost[-2] - lost[0] > INTERVAL + SLACK:  # the last row's own checkpoint may be in progress
        return f"{run.name}: lost {lost[-2] - lost[0]:.1f} s of training, and a checkpoint was due after {INTERVAL}"
    return ""


def saved_frames(run: Run) -> int:
    """Frames of the newest checkpoint, by its name."""
    names = sorted((run.folder / "checkpoints").glob("checkpoint-*.pt"))
    return int(names[-1].stem.split("-")[-1]) if names else 0


def kills(
    folder: Path, count: int, seed: int = 0, names: Sequence[str] = tuple(SETTINGS), keep: Keep = forget
) -> dict[str, Any]:
    """Kills runs `count` times in all, resumes each time, and lets every run end in peace."""
    draw, result = random.Random(seed), Result()

    def found() -> dict[str, Any]:
        lost = {"checkpoint interval": INTERVAL, "median seconds lost": _median(result.seconds)}
        return {**result.as_dict(), **lost, "planned": count + len(names)}

    runs = [Run(name, folder / f"kills-{number}") for number, name in enumerate(names)]
    try:
        for number in range(count):
            run = runs[number % len(runs)]
            result.add(kill_once(run, draw, result))
            print(f"kill {number + 1}: {run.name}, {saved_frames(run):,} frames saved {result.lost[-1:]}", flush=True)
            keep(found())
        for run in runs:
            result.add(finish(run))
    finally:
        for run in runs:
            stop(run)
    return found()


def kill_once(run: Run, draw: random.Random, result: Result) -> str:
    """One kill: mostly while it trains, now and then while it starts."""
    reached = saved_frames(run)
    run.start()
    if draw.random() < 0.2:
        time.sleep(draw.uniform(0.0, 8.0))
    else:
        before = run.frames()
        if not run.wait_for(lambda: run.frames() > 0 and (run.frames() != before or saved_frames(run) > reached)):
            run.kill()
            return f"{run.name}: did not train: {tail(run)}"
        time.sleep(draw.uniform(0.0, 2 * INTERVAL))
    orphans = run.kill()
    return check(run, reached, orphans, result)


def finish(run: Run) -> str:
    """The run trains to an end not far away; every row must be there."""
    steps = saved_frames(run) + 4 * ROLLOUT[run.name]
    run.start(f"STEPS={steps}")
    if (code := run.ended()) != 0:
        return f"{run.name}: did not end after the kills (code {code}): {tail(run)}"
    rows = [int(row["frames"]) for row in read_curve(run.folder / "progress.csv")[1]]
    if rows != list(range(ROLLOUT[run.name], steps + 1, ROLLOUT[run.name])):
        return f"{run.name}: the curve has gaps or doubled rows at the end"
    return ""


def tail(run: Run) -> str:
    """The end of a run's log."""
    return run.folder.with_suffix(".log").read_text(errors="replace")[-300:]


def stop(run: Run) -> None:
    """Ends what is left of a run."""
    if run.process is not None and run.process.poll() is None:
        for actor in run.kill():
            with suppress(psutil.Error):
                actor.kill()


def actors(folder: Path, killed: int, stopped: int, seed: int = 0, pause: int = 1024) -> dict[str, Any]:
    """One run whose actors are killed and stopped, one every `pause` frames; it must end at its full frames."""
    name, draw = "IMPALA, processes", random.Random(seed)
    faults = [signal.SIGKILL] * killed + [signal.SIGSTOP] * stopped
    draw.shuffle(faults)
    steps = (len(faults) + 4) * pause
    run, sent = Run(name, folder / "actors", steps), {signal.SIGKILL: 0, signal.SIGSTOP: 0}
    run.start()
    try:
        for number, fault in enumerate(faults, start=1):
            due = number * pause
            if not run.wait_for(lambda due=due: run.frames() >= due):  # type: ignore[misc]
                break
            if alive := run.actors():
                with suppress(psutil.Error):
                    draw.choice(alive).send_signal(fault)
                    sent[fault] += 1
        ended = run.ended()
    finally:
        stop(run)
    rows = [int(row["frames"]) for row in read_curve(run.folder / "progress.csv")[1]]
    whole = rows == list(range(ROLLOUT[name], steps + 1, ROLLOUT[name]))
    problems = [] if ended == 0 else [f"the run ended with code {ended}: {tail(run)}"]
    problems += [] if whole else [f"the curve ends at {rows[-1:]} of {steps} frames or has gaps"]
    tried = sum(sent.values())
    counts = {"killed": sent[signal.SIGKILL], "stopped": sent[signal.SIGSTOP], "frames": rows[-1] if rows else 0}
    ends = {"steps": steps, "planned": len(faults)}
    return {"tried": tried, "survived": 0 if problems else tried, "lost": problems, **counts, **ends}


def soak(folder: Path, minutes: float, seed: int = 0, keep: Keep = forget) -> dict[str, Any]:
    """Training under all of these faults for so long."""
    start = time.monotonic()
    draw, result, end = random.Random(seed), Result(), start + 60 * minutes
    run = Run("IMPALA, processes", folder / "soak")
    faults = {"runs killed": 0, "actors killed": 0, "actors stopped": 0}

    def found() -> dict[str, Any]:
        spent = round((time.monotonic() - start) / 60, 1)
        return {**result.as_dict(), "minutes": spent, **faults, "frames": run.frames()}

    try:
        while time.monotonic() < end:
            reached = saved_frames(run)
            run.start()
            before = run.frames()
            if not run.wait_for(lambda before=before: run.frames() not in (0, before)):  # type: ignore[misc]
                result.add(f"did not train: {tail(run)}")
                break
            for fault in _faults(draw, end):
                time.sleep(draw.uniform(0.5, 4.0))
                if alive := run.actors():
                    with suppress(psutil.Error):
                        draw.choice(alive).send_signal(fault)
                        faults["actors killed" if fault == signal.SIGKILL else "actors stopped"] += 1
            if run.process is not None and run.process.poll() is not None:
                result.add(f"ended by itself with code {run.process.returncode}: {tail(run)}")
                continue
            orphans = run.kill()
            faults["runs killed"] += 1
            result.add(check(run, reached, orphans, result))
            keep(found())
        result.add(finish(run))
    finally:
        stop(run)
    return found()


def _faults(draw: random.Random, end: float) -> Iterator[signal.Signals]:
    for _ in range(draw.randrange(1, 15)):
        if time.monotonic() < end:
            yield draw.choices([signal.SIGKILL, signal.SIGSTOP], [10, 1])[0]


def _median(values: Sequence[float]) -> float:
    return round(sorted(values)[len(values) // 2], 1) if values else 0.0
