"""MiniHack's bars, ours against the stock package: crops, and 32 games in one process. Run by `benchmarks.envs`.

Both sides return glyphs, blstats, message and a 9x9 crop, and alternate within one run; medians of wall-clock time.
"""

from __future__ import annotations

import functools
import importlib
import time
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from e3b_gym.envs import minihack
from e3b_gym.envs.minihack.crop import crop_into

STOCK_KEYS = ("glyphs", "blstats", "message", "glyphs_crop")


def make_stock(id: str) -> gymnasium.Env[Any, Any] | None:
    """The stock environment with the observations that ours returns, or None where it crashes (LavaCrossing) or has no
    such id (the paper's names of the unrestricted skill tasks)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pkg_resources, and MiniGrid's outdated N4-S5-v0
        importlib.import_module("minihack")  # registers its ids

        try:
            return gymnasium.make(id, observation_keys=STOCK_KEYS, disable_env_checker=True)
        except (AssertionError, gymnasium.error.UnregisteredEnv):
            return None


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
