"""Steps per second and milliseconds per reset of every id, ours against the simulator's own environment, in one run.

    python -m benchmarks.envs                       every id
    python -m benchmarks.envs --suite VizDoom       one suite
    python -m benchmarks.envs --ids ID [ID ...]     some ids

Ours and stock take turns, so that load on the machine hits both alike; medians over rounds are reported, and x is how
many times faster ours is. Stock is what a user assembles from the simulator and Gymnasium's wrappers to get the
same kind of observation: for MiniGrid the registered environment, for VizDoom `VizdoomMyWayHome-v1` with max-and-skip,
resize, gray and stack wrappers. Stock VizDoom then draws six 320x240 colour screens a step where ours draws three
160x120 gray ones, so its ratio is mostly the smaller picture. A dash: stock has no such id, or crashes.
"""

from __future__ import annotations

import argparse
import contextlib
import time
import warnings
from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import Any

import gymnasium
import numpy as np
from gymnasium import wrappers

from e3b_gym.envs import make
from e3b_gym.envs.minigrid import MISSING
from e3b_gym.envs.registry import SUITES, all_tasks


def make_stock(id: str) -> Any:
    """The simulator's own environment, or None."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # outdated versions, pkg_resources
        if id.startswith("MiniHack-"):
            from benchmarks import envs_minihack

            return envs_minihack.make_stock(id)
        if id == "VizdoomMyWayHomeDense-v0":
            return _stock_vizdoom()
        if id.startswith("MiniGrid-") and id.removeprefix("MiniGrid-").removesuffix("-v0") not in MISSING:
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
    """name -> (seconds per step, seconds per reset), medians; without "stock" where there is none."""
    envs = {"ours": make(id), "stock": make_stock(id)}
    envs = {name: env for name, env in envs.items() if env is not None}
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in envs}
    for round in range(rounds + 1):
        for name, env in envs.items():
            timed = _seconds(env, steps, seed=round)
            if round:  # the first round starts simulators and compiles
                seconds[name].append(timed)
    for env in envs.values():
        env.close()
    return {name: tuple(np.median(timed, axis=0)) for name, timed in seconds.items()}


def _seconds(env: Any, steps: int, seed: int) -> tuple[float, float]:
    """Seconds per step and for one reset; the resets after endings are left out of the steps."""
    actions = np.random.default_rng(seed).integers(env.action_space.n, size=steps)
    started = time.perf_counter()
    env.reset(seed=seed)
    reset = time.perf_counter() - started
    stepping = 0.0
    for action in actions:
        started = time.perf_counter()
        _, _, terminated, truncated, _ = env.step(action)
        stepping += time.perf_counter() - started
        if terminated or truncated:
            env.reset()
    return stepping / steps, reset


def report(id: str, measured: dict[str, tuple[float, float]], width: int) -> str:
    step, reset = measured["ours"]
    line = f"{id:{width}} {1 / step:>10,.0f} {1e3 * reset:>9.2f}"
    if "stock" not in measured:
        return f"{line} {'-':>10} {'-':>9} {'-':>7} {'-':>7}"
    stock_step, stock_reset = measured["stock"]
    times = f"{stock_step / step:>6.2f}x {stock_reset / reset:>6.2f}x"
    return f"{line} {1 / stock_step:>10,.0f} {1e3 * stock_reset:>9.2f} {times}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Environments, ours against stock.")
    parser.add_argument("--suite", choices=[suite.name for suite in SUITES])
    parser.add_argument("--ids", nargs="+", metavar="ID")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=50, help="per round")
    options = parser.parse_args(arguments)
    ids = options.ids or [id for id, (suite, _) in all_tasks().items() if options.suite in (None, suite.name)]
    width = max(map(len, ids))
    print(f"{'':{width}} {'ours':>20} {'stock':>20} {'faster by':>15}")
    print(f"{'id':{width}} {'steps/s':>10} {'reset ms':>9} {'steps/s':>10} {'reset ms':>9} {'steps':>7} {'reset':>7}")
    # Stock VizDoom litters the working directory.
    with TemporaryDirectory() as elsewhere, contextlib.chdir(elsewhere):
        for id in ids:
            print(report(id, measure(id, options.rounds, options.steps), width), flush=True)


if __name__ == "__main__":
    main()
