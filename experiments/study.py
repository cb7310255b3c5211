"""Small studies with Stable-Baselines3's PPO: many runs of (method, world, seed), curves of success, side by side.

A `Run` is data; `train_run` executes it in this process; `run_all` spreads runs over processes, one thread each.
"""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv, VecMonitor

from e3b_gym.envs import make_vec
from e3b_gym.sb3 import E3BRewardWrapper
from e3b_gym.sb3.callbacks import EncoderUpdateCallback
from e3b_gym.sb3.vec_env import GymnasiumVecEnv

# What the studies share; a study adds its batch size and network.
PPO_SETTINGS: dict[str, Any] = {
    "learning_rate": 5e-4,
    "n_steps": 128,
    "n_epochs": 3,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip_range": 0.2,
    "ent_coef": 0.01,
    "max_grad_norm": 0.5,
}

# Success is the share of the last this many training episodes that reached the goal.
EPISODES = 200


@dataclass(frozen=True)
class Run:
    """One training run.

    Attributes:
        method: a name of `e3b_gym.METHODS`.
        env: an id of `e3b_gym.envs`.
        seed: of the worlds, the policy and the encoder.
        steps: environment steps, over all environments together.
        world: options of the environment.
        bonus: options of E3BRewardWrapper.
        ppo: options of PPO.
        num_envs: how many environments.
        policy: SB3's name of the policy class.
    """

    method: str
    env: str
    seed: int
    steps: int
    world: Mapping[str, Any] = field(default_factory=dict)
    bonus: Mapping[str, Any] = field(default_factory=dict)
    ppo: Mapping[str, Any] = field(default_factory=dict)
    num_envs: int = 64
    policy: str = "MlpPolicy"


@dataclass(frozen=True)
class Point:
    """Where a run stands: environment steps, seconds since its start, share of successes, mean episode length."""

    steps: int
    seconds: float
    success: float
    length: float


class SuccessCurve(BaseCallback):
    """Reports a Point after every rollout."""

    def __init__(self, report: Callable[[Point], None]) -> None:
        super().__init__()
        self._report = report
        self._successes: deque[bool] = deque(maxlen=EPISODES)
        self._lengths: deque[int] = deque(maxlen=EPISODES)

    def _on_training_start(self) -> None:
        self._start = time.perf_counter()

    def _on_step(self) -> bool:
        for env in self.locals["dones"].nonzero()[0]:
            info = self.locals["infos"][env]
            self._successes.append(bool(info["is_success"]))
            self._lengths.append(info["episode"]["l"])
        return True

    def _on_rollout_end(self) -> None:
        episodes = max(len(self._successes), 1)
        success, length = sum(self._successes) / episodes, sum(self._lengths) / episodes
        self._report(Point(self.num_timesteps, time.perf_counter() - self._start, success, length))


def make_venv(run: Run) -> VecEnv:
    """The run's environments, their bonus around them."""
    envs = make_vec(run.env, run.num_envs, seed=run.seed * 1_000_003, **run.world)
    return E3BRewardWrapper(VecMonitor(GymnasiumVecEnv(envs)), run.method, seed=run.seed, **run.bonus)


def train_run(run: Run, report: Callable[[Point], None] = lambda point: None) -> list[Point]:
    """Trains in this process, single-threaded, and returns the curve."""
    torch.set_num_threads(1)
    curve: list[Point] = []

    def keep(point: Point) -> None:
        curve.append(point)
        report(point)

    venv = make_venv(run)
    model = PPO(run.policy, venv, seed=run.seed, device="cpu", **run.ppo)
    model.learn(run.steps, callback=[EncoderUpdateCallback(), SuccessCurve(keep)])
    venv.close()
    return curve


def run_all(runs: Sequence[Run], workers: int = 2) -> Iterator[tuple[int, Point | None]]:
    """Trains all runs, `workers` at a time, each in a process of its own.

    Yields (run's number, its newest point) as they come, and (number, None) when a run has ended. A run that fails
    raises here, with its traceback.
    """
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    waiting = list(range(len(runs)))
    busy: dict[int, Any] = {}
    try:
        while waiting or busy:
            while waiting and len(busy) < workers:
                number = waiting.pop(0)
                busy[number] = context.Process(target=_work, args=(number, runs[number], queue), daemon=True)
                busy[number].start()
            number, point = queue.get()
            if isinstance(point, str):
                raise RuntimeError(f"run {runs[number]} failed:\n{point}")
            if point is None:
                busy.pop(number).join()
            yield number, point
    finally:
        for process in busy.values():
            process.terminate()


def _work(number: int, run: Run, queue: Any) -> None:
    def report(point: Point) -> None:
        parent = multiprocessing.parent_process()
        if parent is not None and not parent.is_alive():
            os._exit(1)  # killed while we trained: nobody will take the result
        queue.put((number, point))

    try:
        train_run(run, report)
        queue.put((number, None))
    except BaseException:
        queue.put((number, traceback.format_exc()))
        raise
