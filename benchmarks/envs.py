"""Steps per second and milliseconds per reset of every id, compared with the simulator's own environment.

    python -m benchmarks.envs                       every id, then the targets
    python -m benchmarks.envs QUICK=1               the same with fewer rounds (a minute or two)
    python -m benchmarks.envs SUITE=VizDoom       one suite
    python -m benchmarks.envs IDS="[ID, ID]"        some ids

The targets (PASS or FAIL; a FAIL makes the exit code 1) compare MiniHack here with the stock package: levels drawn by
MiniGrid reset at least 2x as fast (the slowest id counts), crops are computed at least 5x as fast, and 32 games in one
process step at least 1.5x as fast as in SB3's DummyVecEnv and in Gymnasium's SyncVectorEnv.

Ours and stock alternate, so that load on the machine affects both equally. Medians are reported; x is how many times
faster ours is. Stock is what a user assembles from the simulator and Gymnasium's wrappers to get the same kind of
observation: for MiniGrid the registered environment, for VizDoom `VizdoomMyWayHome-v1` with max-and-skip, resize, gray
and stack wrappers. Stock VizDoom then draws six 320x240 colour screens per step and ours three 160x120 gray ones, which
explains most of the ratio. Stock MiniHack drops the running game at a reset, which leaks 2 kB of memory; ours ends it,
within the time shown. A dash: stock has no such id, or crashes.
"""

from __future__ import annotations

import contextlib
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import wrappers

from benchmarks import command
from e3b_gym.envs import make
from e3b_gym.envs.minigrid import MISSING
from e3b_gym.envs.registry import SUITES, all_tasks, suite_of
from e3b_gym.options import Count

VECTOR_ID = "MiniHack-Freeze-Random-Restricted-v0"
RESETS = 3
NEED_DATA = {"Habitat-HM3D-v0"}  # also needs a simulator that pip cannot install
"""In a round."""


def suite_name(id: str) -> str | None:
    """Returns the name of the suite of an id; None for ids of other packages."""
    suite = suite_of(id)
    return None if suite is None else suite.name


def make_stock(id: str) -> Any:
    """Returns the simulator's own environment, or None."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # outdated versions, pkg_resources
        if suite_name(id) == "MiniHack":
            from benchmarks import envs_minihack

            return envs_minihack.make_stock(id)
        if id == "VizdoomMyWayHomeDense-v0":
            return _stock_vizdoom()
        if suite_name(id) == "MiniGrid" and not any(id == f"MiniGrid-{name}-v0" for name in MISSING):
            import minigrid  # noqa: F401

            return gymnasium.make(id, disable_env_checker=True)
    return None


def _stock_vizdoom() -> Any:
    from vizdoom import gymnasium_wrapper  # noqa: F401

    env: Any = gymnasium.make("VizdoomMyWayHome-v1", disable_env_checker=True)
    env = wrappers.TransformObservation(env, lambda seen: seen["screen"], env.observation_space["screen"])
    env = wrappers.MaxAndSkipObservation(env, skip=6)
    env = wrappers.GrayscaleObservation(wrappers.ResizeObservation(env, (42, 42)))
    return wrappers.FrameStackObservation(env, 4)


def measure(id: str, rounds: int, steps: int) -> dict[str, tuple[float, float]]:
    """Returns name -> (seconds per step, seconds per reset); without "stock" if there is none."""
    envs = {"ours": make(id), "stock": make_stock(id)}
    envs = {name: env for name, env in envs.items() if env is not None}
    stepping: dict[str, list[float]] = {name: [] for name in envs}
    resetting: dict[str, list[float]] = {name: [] for name in envs}
    for round in range(rounds + 1):
        for name, env in envs.items():
            resets = [_timed_reset(env, seed=RESETS * round + i) for i in range(RESETS)]
            step = _seconds_per_step(env, steps, seed=round)
            if round:  # the first round starts simulators and compiles
                resetting[name] += resets
                stepping[name].append(step)
    for env in envs.values():
        env.close()
    return {name: (_median(stepping[name]), _median(resetting[name])) for name in envs}


def _median(seconds: list[float]) -> float:
    return float(np.median(seconds))


def _timed_reset(env: Any, seed: int) -> float:
    started = time.perf_counter()
    env.reset(seed=seed)
    return time.perf_counter() - started


def _seconds_per_step(env: Any, steps: int, seed: int) -> float:
    """Measures the time per step, without the resets after episode ends."""
    stepping = 0.0
    for action in np.random.default_rng(seed).integers(env.action_space.n, size=steps):
        started = time.perf_counter()
        _, _, terminated, truncated, _ = env.step(action)
        stepping += time.perf_counter() - started
        if terminated or truncated:
            env.reset()
    return stepping / steps


def report(id: str, measured: dict[str, tuple[float, float]], width: int) -> str:
    step, reset = measured["ours"]
    line = f"{id:{width}} {1 / step:>10,.0f} {1e3 * reset:>9.2f}"
    if "stock" not in measured:
        return f"{line} {'-':>10} {'-':>9} {'-':>7} {'-':>7}"
    stock_step, stock_reset = measured["stock"]
    times = f"{stock_step / step:>6.2f}x {stock_reset / reset:>6.2f}x"
    return f"{line} {1 / stock_step:>10,.0f} {1e3 * stock_reset:>9.2f} {times}"


def minihack_bars(resets: dict[str, float], quick: bool) -> Iterator[tuple[str, float, float]]:
    """(what, how many times faster, how many are promised).

    Args:
        resets: id -> how many times faster our resets are; only those of levels drawn by MiniGrid count.
        quick: Fewer rounds.
    """
    from benchmarks import envs_minihack
    from e3b_gym.envs.minihack import TASKS
    from e3b_gym.envs.minihack.tasks import StockLevel

    drawn = {id: ratio for id, ratio in resets.items() if id in TASKS and not isinstance(TASKS[id].level, StockLevel)}
    if drawn:
        slowest = min(drawn, key=drawn.__getitem__)
        yield f"reset of a level drawn by MiniGrid, slowest of {len(drawn)}: {slowest}", drawn[slowest], 2
    crop = envs_minihack.measure_crop()
    yield "9x9 crop against MiniHack's glyphs_crop", crop["MiniHack glyphs_crop"] / crop["ours"], 5
    frames = envs_minihack.measure_vector(VECTOR_ID, rounds=4 if quick else 10)
    for name in ("SB3 DummyVecEnv", "Gymnasium SyncVectorEnv"):
        yield f"32 x {VECTOR_ID} inline against {name}", frames["inline"] / frames[name], 1.5


def main(arguments: Sequence[str] | None = None) -> int:
    return command(
        arguments,
        __doc__,
        run_all,
        QUICK=(bool, False),
        SUITE=(Literal[tuple(suite.name for suite in SUITES)] | None, None),
        IDS=(Sequence[str] | None, None),
        ROUNDS=(Count, 10),
        STEPS=(Count, 50),
    )


def run_all(options: SimpleNamespace) -> int:
    """Prints the table and the bars; returns 1 if a bar is missed."""
    rounds, steps = (3, 20) if options.quick else (options.rounds, options.steps)
    ids = options.ids or [
        id for id, (suite, _) in all_tasks().items() if options.suite in (None, suite.name) and id not in NEED_DATA
    ]
    width = max(map(len, ids))
    print(f"{'':{width}} {'ours':>20} {'stock':>20} {'faster by':>15}")
    print(f"{'id':{width}} {'steps/s':>10} {'reset ms':>9} {'steps/s':>10} {'reset ms':>9} {'steps':>7} {'reset':>7}")
    resets: dict[str, float] = {}
    missed = 0
    # Stock VizDoom writes files to the working directory.
    with TemporaryDirectory() as elsewhere, contextlib.chdir(elsewhere):
        for id in ids:
            measured = measure(id, rounds, steps)
            print(report(id, measured, width), flush=True)
            if "stock" in measured:
                resets[id] = measured["stock"][1] / measured["ours"][1]
        if any(suite_name(id) == "MiniHack" for id in ids):
            print()
            for what, times, promised in minihack_bars(resets, options.quick):
                missed += times < promised
                print(
                    f"{'PASS' if times >= promised else 'FAIL'}  {times:6.2f}x (promised {promised}x)  {what}",
                    flush=True,
                )
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
