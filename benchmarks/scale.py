"""Speed with more cores and machines: frames/s by engine, the cost of transport, and an estimate for clusters.

    python -m benchmarks.scale [QUICK=1] [ROUNDS=N] [SECONDS=S] [NETWORK=GBIT] [JSON=FILE]

Real MiniHack, E3B, the fast network, every frame learned from once, one thread per process: actors inline, in processes
and on a local Ray (1 and 2 actors), and two data-parallel learners with inline actors: with the environments and the
batch of one learner divided between them, and with as many each as the one learner has. Two independent runs side by
side show what two cores of this machine can give at most, since they share its memory and cache. One learner alone with
half the environments shows what two that divide them could reach if they exchanged and shared nothing. Then bytes and
microseconds of an unroll and of the published weights, and a table of the speed of 1, 8 and 64 machines like this one,
with the assumption of each line: the table is computed, not measured. Contenders alternate in one run, and the median
over the rounds counts. Times are wall-clock, so the machine should be idle: the load before the run is printed.
Exit code 1: a target is missed.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from benchmarks import command
from e3b_gym.options import Count, Positive

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch starts its threads

import ray

from agents.impala.config import Config
from agents.impala.engines.inline import InlineEngine
from agents.impala.learner import Learner
from agents.impala.rollout import Rollout
from agents.ray_cluster import connect
from benchmarks.impala import FREEZE, ONE_PASS, Measurement, measure_ours, take_turns
from benchmarks.sb3 import Bar
from e3b_gym.unroll import tree_leaves
from experiments.provenance import provenance
from experiments.settings import resolve

CORES = 2
TWICE = "learners=2, inline, twice the environments"
SIDE_BY_SIDE = "two runs side by side, inline"
HALF = "inline, half the environments"
MACHINES = (1, 8, 64)
CONTENDERS: dict[str, dict[str, str]] = {
    "inline": {"engine": "inline", "actors": "1"},
    "process, 1 actor": {"engine": "process", "actors": "1"},
    "ray, 1 actor": {"engine": "ray", "actors": "1"},
    "process, 2 actors": {"engine": "process", "actors": "2"},
    "ray, 2 actors": {"engine": "ray", "actors": "2"},
    "learners=2, inline": {"engine": "inline", "actors": "1", "learners": "2"},
    TWICE: {
        "engine": "inline",
        "actors": "1",
        "learners": "2",
        "n_envs": "256",
        "batch_size": "4096",
    },
    SIDE_BY_SIDE: {"engine": "inline", "actors": "1"},
    HALF: {"engine": "inline", "actors": "1", "n_envs": "64", "batch_size": "1024"},
}
# Stages in which the learner works; in the others it waits, or actors work.
LEARNING = ("embed", "score", "encoder", "policy", "optimisers")
ACTING = ("actor_load", "actor_act", "actor_env")


def config_of(name: str, **changes: str) -> Config:
    """The run of a contender."""
    given = {"env": FREEZE, "net": "fast", "steps": 10**12, **ONE_PASS, **CONTENDERS[name], **changes}
    return cast(Config, resolve("impala", "home", given).config)


def measure(name: str, seconds: float) -> Measurement:
    """Speed and stages of a contender; of two runs side by side, the sum and the mean."""
    if name != SIDE_BY_SIDE:
        return measure_ours(config_of(name), seconds)
    with multiprocessing.get_context("spawn").Pool(CORES) as pool:
        runs = pool.starmap(measure_ours, [(config_of(name, seed=str(seed)), seconds) for seed in range(CORES)])
    stages = {stage: sum(run.stages[stage] for run in runs) / CORES for stage in runs[0].stages}
    return Measurement(sum(run.speed for run in runs), stages)


@dataclass(frozen=True)
class Transport:
    """Bytes and microseconds of one unroll and of one publication.

    Attributes:
        unroll_us: into Ray's object store, out of it and into a rollout, on one machine; in processes it is 0, since
            the learner reads where the actor wrote.
        weight_bytes: of the policy, which actors get.
        gradient_bytes: of policy and encoder, which learners average.
        publish_us: by contender, of the learner's time.
    """

    unroll_bytes: int
    unroll_us: float
    weight_bytes: int
    gradient_bytes: int
    publish_us: dict[str, float]


def measure_transport(config: Config, publish_us: dict[str, float], repeats: int = 20) -> Transport:
    """Sends a real unroll through Ray's object store."""
    engine = InlineEngine(config)
    learner = Learner(config, *engine.spaces)
    engine.publish(learner.policy, 0)
    with engine.rollout() as rollout:
        packed = rollout.packed()
        session = connect(None, 1, "the benchmark")
        try:
            unroll_us = min(_seconds(lambda: _through_ray(rollout, packed)) for _ in range(repeats)) * 1e6
        finally:
            session.close()
    engine.close()
    unroll_bytes, weight_bytes = (_bytes(tree_leaves(tree)) for tree in (packed, learner.policy.state_dict()))
    trained = [*learner.policy.parameters(), *learner.explorer.bonus.parameters()]
    gradient_bytes = _bytes([weight for weight in trained if weight.requires_grad])
    return Transport(unroll_bytes, unroll_us, weight_bytes, gradient_bytes, publish_us)


def _bytes(arrays: Sequence[Any]) -> int:
    return sum(array.nbytes for array in arrays)


def _through_ray(rollout: Rollout, packed: Mapping[str, Any]) -> None:
    rollout.unpack(ray.get(ray.put(packed)))


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


@dataclass(frozen=True)
class Line:
    """A row of the table: frames/s by number of machines, what limits each, and what is assumed."""

    name: str
    frames_per_second: dict[int, float]
    limit: dict[int, str]
    assumption: str


def extrapolate(
    speed: Mapping[str, float],
    stages: Mapping[str, Mapping[str, float]],
    transport: Transport,
    frames: int,
    batch: int,
    network: float,
) -> list[Line]:
    """The table.

    Args:
        speed: frames/s by contender.
        stages: us per frame of each contender by stage.
        transport: as measured.
        frames: environment steps of an unroll.
        batch: environment steps of one learner in an update.
        network: bytes/s that a machine can send or receive.
    """
    used = stages["ray, 2 actors"]
    learner = 1e6 / (sum(used[stage] for stage in LEARNING) + transport.publish_us["ray, 2 actors"] / frames)
    actor = 1e6 / sum(used[stage] for stage in ACTING)  # of one core
    received = network / (transport.unroll_bytes / frames)
    efficiency = speed[TWICE] / (2 * speed["inline"])

    def actors_on_ray(machines: int) -> dict[str, float]:
        limits = {"learner": learner, "actors": actor * (machines * CORES - 1)}
        if machines > 1:
            # Each other machine fetches the weights once per unroll; the first one sends them all.
            sent = network / ((machines - 1) * transport.weight_bytes / frames)
            limits |= {"network in": received * machines / (machines - 1), "network out": sent}
        return limits

    def learners(machines: int) -> dict[str, float]:
        count = machines * CORES
        work = speed["inline"] * (efficiency if count > 1 else 1.0) * count
        if machines == 1:
            return {"learners": work}
        # A ring sends and receives about two gradients per update, which has a batch of each learner.
        return {"learners": work, "network": network / (2 * transport.gradient_bytes / (count * batch))}

    def runs(machines: int) -> dict[str, float]:
        return {"cores": speed[SIDE_BY_SIDE] * machines}

    return [
        _line("one run, engine=ray, one learner", actors_on_ray, "one core learns, all others act"),
        _line(
            "one run, learners=K, inline actors, K = cores",
            learners,
            f"each has as many environments as one alone, and is worth {efficiency:.2f}, as measured with two",
        ),
        _line(
            "many runs, make reproduce CLUSTER=ray, all together",
            runs,
            "independent runs, one per core, inline, as measured with two",
        ),
    ]


def _line(name: str, limits_of: Callable[[int], dict[str, float]], assumption: str) -> Line:
    limits = {machines: limits_of(machines) for machines in MACHINES}
    tightest = {machines: min(found, key=lambda limit: found[limit]) for machines, found in limits.items()}
    return Line(name, {m: limits[m][tightest[m]] for m in MACHINES}, tightest, assumption)


def compare(speed: Mapping[str, float]) -> list[Bar]:
    """The targets."""
    bars = [
        Bar(
            f"engine=ray, share of engine=process, {actors}",
            speed[f"ray, {actors}"] / speed[f"process, {actors}"],
            0.85,
        )
        for actors in ("1 actor", "2 actors")
    ]
    alone = speed["inline"]
    return [
        *bars,
        Bar("learners=2 with half the environments each, times one learner", speed["learners=2, inline"] / alone, 1.7),
        Bar("learners=2 with all the environments each, times one learner", speed[TWICE] / alone, 1.7),
    ]


def most_of_two_halves(speed: Mapping[str, float]) -> float:
    """The speed of two learners with half the environments each that exchange and share nothing, times one learner."""
    return 2 * speed[HALF] / speed["inline"]


def report(speed: Mapping[str, float], transport: Transport, lines: Sequence[Line], network: float) -> None:
    for name, value in speed.items():
        print(f"{name:44} {value:>9,.0f} frames/s")
    print(f"\nlearners=2 that divide the environments, at most: {most_of_two_halves(speed):.2f} times one learner")
    print(f"an unroll: {transport.unroll_bytes:,} bytes, {transport.unroll_us:,.0f} us through Ray on one machine")
    print(f"gradients of policy and encoder: {transport.gradient_bytes:,} bytes")
    print(f"weights: {transport.weight_bytes:,} bytes; us of the learner per publication: ", end="")
    print(", ".join(f"{name} {spent:,.0f}" for name, spent in transport.publish_us.items()))
    print(f"\ncomputed for machines of {CORES} cores like these and a network of {network / 1e6:,.0f} MB/s, frames/s")
    for line in lines:
        cells = "  ".join(f"{m}: {line.frames_per_second[m]:,.0f} ({line.limit[m]})" for m in MACHINES)
        print(f"  {line.name}\n    {cells}\n    {line.assumption}")
    print()


def main(arguments: Sequence[str] | None = None) -> int:
    return command(
        arguments,
        __doc__,
        run_all,
        QUICK=(bool, False),
        ROUNDS=(Count, 3),
        SECONDS=(Positive, 20.0),
        NETWORK=(Positive, 1.0),
        JSON=(Path | None, None),
    )


def _rollout_frames(name: str) -> int:
    config = config_of(name)
    return config.n_steps * config.n_envs


def run_all(options: SimpleNamespace) -> int:
    rounds, seconds = (1, 5.0) if options.quick else (options.rounds, options.seconds)
    speed, stages = take_turns(list(CONTENDERS), rounds, lambda name: measure(name, seconds))
    config = config_of("inline")
    frames, network = _rollout_frames("inline"), options.network * 1e9 / 8
    publish_us = {name: stages[name]["publish"] * _rollout_frames(name) for name in CONTENDERS}
    transport = measure_transport(config, publish_us)
    batch = config.n_steps * config.columns
    lines, bars = extrapolate(speed, stages, transport, frames, batch, network), compare(speed)
    report(speed, transport, lines, network)
    for bar in bars:
        print(f"{bar.name:64} {bar.ratio:>6.2f}   target {bar.bar:<4} {bar.verdict}")
    if options.json:
        record = {
            "provenance": provenance(),
            "frames_per_second": speed,
            "us_per_frame": stages,
            "transport": asdict(transport),
            "machines": [asdict(line) for line in lines],
            "bars": [asdict(bar) | {"verdict": bar.verdict} for bar in bars],
        }
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    return 1 if any(bar.verdict == "FAIL" for bar in bars) else 0


if __name__ == "__main__":
    sys.exit(main())
