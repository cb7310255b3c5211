"""MiniHack: ours against the stock package, id by id, in one interleaved run.

    python -m benchmarks.envs_minihack                    every id of the paper, the vector environment and the crop
    python -m benchmarks.envs_minihack --ids ID [ID ...]  some ids

Both sides return glyphs, blstats, message and a 9x9 crop. Rounds of both alternate, so that load on the machine hits
both alike; medians over rounds are reported, of processor time for steps and of wall-clock time (lev_comp is a process
of its own) for resets and vectors. The stock package fails on LavaCrossing, which is shown as a dash.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from e3b_gym.envs import minihack
from e3b_gym.envs.minihack import PAPER_IDS
from e3b_gym.envs.minihack.crop import crop_into

STOCK_KEYS = ("glyphs", "blstats", "message", "glyphs_crop")


@dataclass(frozen=True)
class Row:
    """Medians for one id; the stock numbers are None where the stock package cannot make the environment."""

    id: str
    steps_per_second: float
    stock_steps_per_second: float | None
    reset_ms: float
    stock_reset_ms: float | None


def make_stock(id: str) -> gymnasium.Env[Any, Any] | None:
    """The stock environment with the observations that ours returns, or None where it crashes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pkg_resources, and MiniGrid's outdated N4-S5-v0
        importlib.import_module("minihack")  # registers its ids

        try:
            return gymnasium.make(id, observation_keys=STOCK_KEYS, disable_env_checker=True)
        except AssertionError:
            return None


def measure(id: str, rounds: int = 20, steps: int = 2000) -> Row:
    """Steps and resets of one id, ours and stock in turns."""
    envs = {"ours": minihack.make(id), "stock": make_stock(id)}
    rng = np.random.default_rng(0)
    step_seconds: dict[str, list[float]] = {name: [] for name in envs}
    reset_seconds: dict[str, list[float]] = {name: [] for name in envs}
    for round in range(rounds + 1):
        for name, env in envs.items():
            if env is None:
                continue
            started = time.perf_counter()
            env.reset()
            if round:  # the first one loads and compiles
                reset_seconds[name].append(time.perf_counter() - started)
            step_seconds[name].append(_seconds_per_step(env, steps // rounds, rng))
    for env in envs.values():
        if env is not None:
            env.close()
    has_stock = bool(reset_seconds["stock"])
    return Row(
        id,
        1 / float(np.median(step_seconds["ours"])),
        1 / float(np.median(step_seconds["stock"])) if has_stock else None,
        1e3 * float(np.median(reset_seconds["ours"])),
        1e3 * float(np.median(reset_seconds["stock"])) if has_stock else None,
    )


def _seconds_per_step(env: gymnasium.Env[Any, Any], steps: int, rng: np.random.Generator) -> float:
    """Processor time of random actions until `steps` or the end of the episode; resets are not in it."""
    taken, ended = 0, False
    actions = rng.integers(env.action_space.n, size=steps)  # type: ignore[attr-defined]
    started = time.process_time()
    while taken < steps and not ended:
        _, _, terminated, truncated, _ = env.step(actions[taken])
        ended = terminated or truncated
        taken += 1
    return (time.process_time() - started) / taken


def measure_vector(id: str, num_envs: int = 32, rounds: int = 10, steps: int = 15) -> dict[str, float]:
    """Frames per second, resets included, of our inline vector env against SB3's and Gymnasium's of stock envs."""
    from stable_baselines3.common.vec_env import DummyVecEnv

    def stock() -> gymnasium.Env[Any, Any]:
        env = make_stock(id)
        if env is None:
            raise ValueError(f"the stock package cannot make {id}; choose another id")
        return env

    vectors: dict[str, Any] = {
        "inline": minihack.make_vec(id, num_envs),
        "inline, no copy": minihack.make_vec(id, num_envs, copy=False),
        "SB3 DummyVecEnv": DummyVecEnv([stock] * num_envs),
        "Gymnasium SyncVectorEnv": gymnasium.vector.SyncVectorEnv([stock] * num_envs),
    }
    for vector in vectors.values():
        vector.reset()
    rng = np.random.default_rng(0)
    seconds: dict[str, list[float]] = {name: [] for name in vectors}
    for _ in range(rounds):
        actions = rng.integers(len(minihack.TASKS[id].actions), size=(steps, num_envs))
        for name, vector in vectors.items():
            seconds[name].append(_timed(functools.partial(_play, vector, actions)))
    for vector in vectors.values():
        vector.close()
    return {name: steps * num_envs / float(np.median(times)) for name, times in seconds.items()}


def measure_crop(num_envs: int = 32, rounds: int = 50) -> dict[str, float]:
    """Microseconds per 9x9 crop: ours for a batch, MiniHack's own map by map."""
    from minihack.base import MiniHack  # type: ignore[import-untyped]

    rng = np.random.default_rng(0)
    maps = rng.integers(0, 5976, size=(num_envs, 21, 79), dtype=np.int16)
    x, y = rng.integers(79, size=num_envs), rng.integers(21, size=num_envs)
    crops = np.empty((num_envs, 9, 9), np.int16)
    holder = type("Crop", (), {"obs_crop_h": 9, "obs_crop_w": 9, "obs_crop_pad": 0})()
    cuts: dict[str, Callable[[], Any]] = {
        "ours": lambda: crop_into(maps, x, y, 0, crops),
        "MiniHack glyphs_crop": lambda: [
            MiniHack._crop_observation(holder, maps[n], (x[n], y[n])) for n in range(num_envs)
        ],
    }
    cuts["ours"]()
    seconds: dict[str, list[float]] = {name: [] for name in cuts}
    for _ in range(rounds):
        for name, cut in cuts.items():
            seconds[name].append(_timed(cut))
    return {name: 1e6 * float(np.median(times)) / num_envs for name, times in seconds.items()}


def _play(vector: Any, actions: np.ndarray[Any, Any]) -> None:
    for row in actions:
        vector.step(row)


def _timed(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ids", nargs="+", default=list(PAPER_IDS), metavar="ID")
    parser.add_argument("--vector-ids", nargs="*", default=["MiniHack-Freeze-Random-Restricted-v0"], metavar="ID")
    options = parser.parse_args(arguments)
    print(f"{'id':42s} {'steps/s':>9s} {'stock':>9s} {'ratio':>6s} {'reset ms':>9s} {'stock':>7s} {'ratio':>6s}")
    for row in map(measure, options.ids):
        print(
            f"{row.id:42s} {_compared(row.steps_per_second, row.stock_steps_per_second, 9, 0, faster_is_more=True)}",
            end="",
        )
        print(f" {_compared(row.reset_ms, row.stock_reset_ms, 7, 1, faster_is_more=False)}", flush=True)
    for id in options.vector_ids:
        print(f"\n{id}, 32 environments, frames/s with resets")
        for name, frames in measure_vector(id).items():
            print(f"  {name:26s} {frames:9.0f}")
    print("\n9x9 crop, us each")
    for name, microseconds in measure_crop().items():
        print(f"  {name:26s} {microseconds:9.2f}")


def _compared(ours: float, stock: float | None, width: int, digits: int, faster_is_more: bool) -> str:
    if stock is None:
        return f"{ours:9.{digits}f} {'-':>{width}s} {'-':>6s}"
    ratio = ours / stock if faster_is_more else stock / ours
    return f"{ours:9.{digits}f} {stock:{width}.{digits}f} {ratio:5.1f}x"


if __name__ == "__main__":
    main()
