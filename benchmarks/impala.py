"""Training speed of IMPALA: frames per second of the whole loop, and microseconds per frame by stage.

    python -m benchmarks.impala [QUICK=1] [ROUNDS=N] [SECONDS=S] [JSON=FILE]

Real MiniHack, actors and a learner in processes of one thread each, E3B and no bonus, the fast and the paper's network,
one pass over every frame as in IMPALA, compared with a stand-in of the authors' loop with the same network sizes
(`benchmarks.impala_authors`: one copy on each of the same two cores). Contenders alternate in one run, and the median
over the rounds counts. Times are wall-clock, so the machine should be idle: the load before the run is printed. Exit
code 1: a target is missed.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from benchmarks import command
from e3b_gym.options import Count, Positive

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch starts its threads

import torch

from agents.impala.config import Config
from agents.impala.training import Training
from benchmarks.impala_authors import AuthorsLoop
from experiments.provenance import provenance
from experiments.settings import resolve

FREEZE, ROOMS = "MiniHack-Freeze-Random-Restricted-v0", "MiniHack-MultiRoom-N6-v0"
CORES = 2
# Unlike `home`: one pass, and batches as large as speed wants them.
ONE_PASS = {
    "n_epochs": "1",
    "clip_range": "none",
    "clip_range_high": "none",
    "clip_range_high_final": "none",
    "actors": "2",
    "n_envs": "128",
    "n_steps": "32",
    "batch_size": "2048",
}
# A learner that takes most of the time: its two networks side by side, and the second core to one actor.
LARGE_NETWORK = {"threads": "2", "actors": "1", "batch_size": "4096"}
# Stages in which a process waits for another: the learner for a rollout, an actor for a free one.
WAITING = ("rollout", "actor_wait")
T = TypeVar("T")


@dataclass(frozen=True)
class Contender:
    """A training run, ours or the stand-in of the authors' loop."""

    env: str
    net: str
    method: str
    authors: bool = False

    def __str__(self) -> str:
        short = self.env.removeprefix("MiniHack-").removesuffix("-v0")
        return f"{'authors' if self.authors else 'ours'}, {self.net}, {self.method}, {short}"

    def config(self) -> Config:
        given = {"env": self.env, "net": self.net, "method": self.method, "steps": 10**12, **ONE_PASS}
        if self.net == "paper":
            given |= LARGE_NETWORK
        return cast(Config, resolve("impala", "home", given).config)


@dataclass(frozen=True)
class Measurement:
    """Frames per second, and microseconds per frame by stage."""

    speed: float
    stages: dict[str, float]


def measure_ours(config: Config, seconds: float) -> Measurement:
    """Trains for `seconds` after a warm-up (compilation, first episodes)."""
    with Training(config) as training:
        updates = iter(training)
        for _ in range(4):
            next(updates)
        frames, before, start = training.learner.frames, training.seconds, time.perf_counter()
        while time.perf_counter() - start < seconds:
            next(updates)
        frames, passed = training.learner.frames - frames, time.perf_counter() - start
        after = training.seconds
    stages = {stage: (spent - before.get(stage, 0.0)) / frames * 1e6 for stage, spent in after.items()}
    return Measurement(frames / passed, stages)


def take_turns(
    contenders: Sequence[T], rounds: int, measure: Callable[[T], Measurement]
) -> tuple[dict[T, float], dict[T, dict[str, float]]]:
    """Measures each contender once per round; returns the medians: frames per second, and microseconds by stage."""
    print(f"load before the run: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    measured: dict[T, list[Measurement]] = {contender: [] for contender in contenders}
    for number in range(rounds):
        for contender, found in measured.items():
            found.append(measure(contender))
            print(f"round {number + 1}: {contender}: {found[-1].speed:,.0f} frames/s", flush=True)
    speed = {contender: statistics.median(each.speed for each in found) for contender, found in measured.items()}
    stages = {
        contender: {stage: statistics.median(each.stages[stage] for each in found) for stage in found[0].stages}
        for contender, found in measured.items()
    }
    return speed, stages


def measure_authors(config: Config, bonus: bool) -> Measurement:
    """Runs one copy per core at the same time; returns the sum of their speeds."""
    with multiprocessing.get_context("spawn").Pool(CORES) as pool:
        copies = pool.starmap(_iterate_once, [(replace(config, seed=seed), bonus) for seed in range(CORES)])
    frames, act, learn = map(sum, zip(*copies, strict=True))
    stages = {"act": act / frames * 1e6, "learn": learn / frames * 1e6}
    return Measurement(sum(count / (acting + learning) for count, acting, learning in copies), stages)


def _iterate_once(config: Config, bonus: bool) -> tuple[int, float, float]:
    torch.set_num_threads(1)
    loop = AuthorsLoop(config, bonus)
    loop.iterate(steps=4)
    return loop.iterate()


def measure(contender: Contender, seconds: float) -> Measurement:
    if contender.authors:
        return measure_authors(contender.config(), contender.method != "none")
    return measure_ours(contender.config(), seconds)


E3B_FAST, E3B_PAPER, E3B_ROOMS = (
    Contender(e, n, "e3b") for e, n in ((FREEZE, "fast"), (FREEZE, "paper"), (ROOMS, "fast"))
)
NONE_FAST, NONE_PAPER = Contender(FREEZE, "fast", "none"), Contender(FREEZE, "paper", "none")
AUTHORS_FAST, AUTHORS_PAPER = replace(E3B_FAST, authors=True), replace(E3B_PAPER, authors=True)
QUICK = (E3B_FAST, NONE_FAST, AUTHORS_FAST)
ALL = (*QUICK, E3B_ROOMS, E3B_PAPER, NONE_PAPER, AUTHORS_PAPER)


def bars(
    speed: dict[Contender, float], stages: dict[Contender, dict[str, float]]
) -> list[tuple[str, float, float, bool]]:
    """Returns (name, value, target, whether it is met) of each target that was measured."""
    found = []

    def at_least(what: str, value: float, bar: float) -> None:
        found.append((what, value, bar, value >= bar))

    for contender, bar in ((E3B_FAST, 7000.0), (E3B_PAPER, 1000.0), (E3B_ROOMS, 3000.0)):
        if contender in speed:
            at_least(f"frames/s: {contender}", speed[contender], bar)
    for ours, none, authors in ((E3B_FAST, NONE_FAST, AUTHORS_FAST), (E3B_PAPER, NONE_PAPER, AUTHORS_PAPER)):
        if ours in speed:
            at_least(f"ours / authors, {ours.net}", speed[ours] / speed[authors], 25.0)
            cost = speed[none] / speed[ours]
            found.append((f"cost of E3B, {ours.net}", cost, 1.7, cost <= 1.7))
            worked = sum(spent for stage, spent in stages[ours].items() if stage not in WAITING)
            share = stages[ours]["score"] / worked
            found.append((f"scoring's share of the time worked, {ours.net}", share, 0.05, share <= 0.05))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    return command(
        arguments,
        __doc__,
        run_all,
        QUICK=(bool, False),
        ROUNDS=(Count, 3),
        SECONDS=(Positive, 20.0),
        JSON=(Path | None, None),
    )


def run_all(options: SimpleNamespace) -> int:
    contenders, rounds = (QUICK, 1) if options.quick else (ALL, options.rounds)
    speed, stages = take_turns(contenders, rounds, lambda contender: measure(contender, options.seconds))
    report(speed, stages)
    results = bars(speed, stages)
    for what, value, bar, holds in results:
        print(f"{'pass' if holds else 'MISS'}  {what}: {value:,.2f} (bar {bar:,g})")
    if options.json:
        options.json.write_text(json.dumps(as_json(speed, stages, results), indent=1) + "\n")
    return 0 if all(holds for *_, holds in results) else 1


def report(speed: dict[Contender, float], stages: dict[Contender, dict[str, float]]) -> None:
    for contender, value in speed.items():
        parts = "  ".join(f"{stage} {spent:.0f}" for stage, spent in stages[contender].items())
        print(f"\n{contender}: {value:,.0f} frames/s\n    us/frame: {parts}")
    print()


def as_json(
    speed: dict[Contender, float], stages: dict[Contender, dict[str, float]], results: list[Any]
) -> dict[str, Any]:
    rows = {str(c): {"frames_per_second": speed[c], "us_per_frame": stages[c]} for c in speed}
    return {"provenance": provenance(), "contenders": rows, "bars": results}


if __name__ == "__main__":
    sys.exit(main())
