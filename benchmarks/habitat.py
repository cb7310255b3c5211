"""Habitat on generated homes: steps per second with the real `habitat.Env`, and the time of each part.

    python -m benchmarks.habitat            the table, then the targets (about a minute)
    python -m benchmarks.habitat QUICK=1    the same with fewer rounds

The targets (PASS or FAIL; a FAIL makes the exit code 1): one process runs at least 1500 steps per second at 128 x 128
and 700 at 256 x 256, RGB and depth, and at least 200 with coverage measured at every step.

Speeds are per second of processor time of this process, so other programs hardly affect them; wall-clock speeds are
printed next to them. Actions are uniform over forward and the two turns. Resets are timed separately, in homes that are
not cached.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks import command
from e3b_gym.envs import make, make_vec

ID = "Habitat-FloorPlan-v0"
BARS = {"128 x 128": 1500, "256 x 256": 700, "128 x 128, coverage": 200}


def steps_per_second(env: Any, steps: int, rounds: int) -> tuple[float, float]:
    """Returns steps per second of processor time and of wall-clock time, medians over rounds."""
    actions = np.random.default_rng(0).integers(1, 4, (rounds + 1, steps))
    env.reset(options={"episode": 0})
    processor, wall = [], []
    for i, row in enumerate(actions):
        begun, began = time.process_time(), time.perf_counter()
        for action in row:
            env.step(action)
        if i:  # the first round compiles
            processor.append(time.process_time() - begun)
            wall.append(time.perf_counter() - began)
        env.reset(options={"episode": i % 2})
    return steps / float(np.median(processor)), steps / float(np.median(wall))


def milliseconds(call: Callable[[int], Any], times: int) -> float:
    """Returns the median processor time of one call."""
    taken = []
    for n in range(times):
        begun = time.process_time()
        call(n)
        taken.append(time.process_time() - begun)
    return 1e3 * float(np.median(taken))


def frames_per_second(num_envs: int, size: int, steps: int) -> float:
    """Returns frames per second of processor time of an inline vector environment."""
    envs = make_vec(ID, num_envs, seed=0, split="val", size=size, allow_stop=False)
    envs.reset()
    actions = np.random.default_rng(0).integers(0, 3, (steps, num_envs))
    envs.step(actions[0])
    begun = time.process_time()
    for row in actions:
        envs.step(row)
    frames = steps * num_envs / (time.process_time() - begun)
    envs.close()
    return frames


def shares(size: int, times: int) -> dict[str, float]:
    """Returns the milliseconds of each part of a step."""
    from e3b_gym.envs.habitat.raycast import render

    env = make(ID, split="val", size=size, max_steps=10**9)
    env.reset(seed=0)
    sim = env.unwrapped.habitat.sim  # type: ignore[attr-defined]
    x, _, z = (float(each) for each in sim.get_agent_state().position)
    turns = itertools.count()
    parts: list[Callable[[int], Any]] = [
        lambda _: env.step(2),
        lambda _: sim.step(2),
        lambda _: render(sim.home.scene, x, 1.25, z, np.pi / 9 * next(turns), size, size, 90.0),
    ]
    taken = [[milliseconds(part, 1) for part in parts] for _ in range(times)]  # alternating, in all directions
    whole, simulator, drawing = np.mean(taken, 0)
    return {"rays": drawing, "rest of the simulator": simulator - drawing, "habitat.Env": whole - simulator}


def main(arguments: Sequence[str] | None = None) -> int:
    return command(arguments, __doc__, run_all, QUICK=(bool, False))


def run_all(options: SimpleNamespace) -> int:
    """Prints the tables and the targets; returns 1 if a target is missed."""
    rounds, steps = (3, 50) if options.quick else (9, 200)
    speeds = {}
    print(f"{'RGB and depth':24} {'steps/s':>9} {'wall clock':>11}")
    for size, coverage in ((64, False), (128, False), (256, False), (128, True)):
        name = f"{size} x {size}" + (", coverage" if coverage else "")
        env = make(ID, split="val", size=size, max_steps=10**9, coverage=coverage)
        speeds[name], wall = steps_per_second(env, steps, rounds)
        print(f"{name:24} {speeds[name]:>9,.0f} {wall:>11,.0f}", flush=True)
    for num_envs in (1, 8, 32):
        frames = frames_per_second(num_envs, 64, max(4, steps // num_envs))
        print(f"{f'{num_envs} inline, 64 x 64':24} {frames:>9,.0f}", flush=True)
    env = make(ID, split="test", size=64)
    print(f"\nreset in a new home: {milliseconds(lambda n: env.reset(options={'episode': n}), 20):.1f} ms")
    for size in (64, 256):
        parts = ", ".join(f"{name} {ms:.2f}" for name, ms in shares(size, steps).items())
        print(f"a step at {size} x {size}, in ms: {parts}")
    missed = 0
    for name, target in BARS.items():
        missed += speeds[name] < target
        print(f"{'PASS' if speeds[name] >= target else 'FAIL'}  {speeds[name]:7,.0f} (target {target})  {name}")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
