"""Training and end-to-end speed of e3b_gym.sb3.RecurrentPPO compared with sb3-contrib's, alternating on one thread.

Dict observations, 8 environments, n_steps 128, LSTM 256 for actor and critic; otherwise contrib's defaults (minibatches
of 128, 10 epochs). The environment costs almost nothing, so the ratio is that of the agents. contrib loops over time
only in minibatches in which an episode starts, and pads more if many do, so several episode lengths are measured; with
very long episodes it rarely loops. Times are CPU seconds of this process, which other processes affect less than
wall-clock time.

    python -m benchmarks.recurrent_ppo [QUICK=1] [JSON=FILE]
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks import command

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch starts its threads

import gymnasium as gym
import numpy as np
import sb3_contrib
import torch as th
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv

from e3b_gym.sb3.recurrent_ppo import RecurrentPPO

N_ENVS, N_STEPS, LSTM_SIZE = 8, 128, 256
EPISODE_LENGTHS = (10, 40, 200, 1000)
ALGORITHMS = {"contrib": sb3_contrib.RecurrentPPO, "ours": RecurrentPPO}


class DictStream(gym.Env[dict[str, Any], Any]):
    """Dict observations from a fixed set; episodes end at random after `length` steps on average."""

    def __init__(self, length: int, seed: int) -> None:
        self.observation_space = spaces.Dict(
            view=spaces.Box(-1, 1, (7, 7, 3), np.float32), vector=spaces.Box(-1, 1, (16,), np.float32)
        )
        self.action_space = spaces.Discrete(6)
        self.length, self.rng, self.turn = length, np.random.default_rng(seed), 0
        self.observation_space.seed(seed)
        self.observations = [self.observation_space.sample() for _ in range(64)]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        return self.observations[self.turn % 64], {}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        self.turn += 1
        ended = self.rng.random() < 1 / self.length
        return self.observations[self.turn % 64], float(action == self.turn % 6), bool(ended), False, {}


def _model(name: str, length: int) -> tuple[Any, Any]:
    """Returns a model that has compiled, collected and trained once, and its callback."""
    env = DummyVecEnv([partial(DictStream, length, seed) for seed in range(N_ENVS)])
    policy_kwargs = {"lstm_hidden_size": LSTM_SIZE}
    model = ALGORITHMS[name](
        "MultiInputLstmPolicy", env, n_steps=N_STEPS, policy_kwargs=policy_kwargs, seed=0, device="cpu"
    )
    _, callback = model._setup_learn(10**9)
    _rollout_and_train(model, callback, epochs=1)
    return model, callback


def _rollout_and_train(model: Any, callback: Any, epochs: int) -> tuple[float, float]:
    """Returns CPU seconds of one rollout and of one epoch of training on it."""
    start = time.process_time()
    model.collect_rollouts(model.env, callback, model.rollout_buffer, N_STEPS)
    collected = time.process_time()
    model.n_epochs = epochs
    model.train()
    return collected - start, (time.process_time() - collected) / epochs


def measure(length: int, rounds: int, epochs: int = 2) -> dict[str, Any]:
    """Measures both agents on episodes of about `length` steps.

    Args:
        length: mean episode length.
        rounds: number of times that each agent collects and trains, alternating.
        epochs: epochs trained and timed per round; end-to-end figures are for the default of 10.
    """
    models = {name: _model(name, length) for name in ALGORITHMS}
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in ALGORITHMS}
    for turn in range(rounds):
        for name, (model, callback) in models.items():
            np.random.seed(turn)  # noqa: NPY002  contrib's buffer draws its minibatches from the global generator
            seconds[name].append(_rollout_and_train(model, callback, epochs))
    frames, whole = N_ENVS * N_STEPS, {}
    result: dict[str, Any] = {"episode_length": length}
    for name, times in seconds.items():
        collect, train = np.median(times, axis=0)
        whole[name] = collect + 10 * train
        result[name] = {
            "collect_fps": frames / collect,
            "train_fps_per_epoch": frames / train,
            "end_to_end_fps": frames / whole[name],
        }
    per_round = {name: np.array(times)[:, 1] for name, times in seconds.items()}
    result["train_speedup"] = float(np.median(per_round["contrib"] / per_round["ours"]))
    result["end_to_end_speedup"] = float(whole["contrib"] / whole["ours"])
    return result


def run(quick: bool = False) -> list[dict[str, Any]]:
    """Returns one row per episode length; `quick`: fewer rounds."""
    threads = th.get_num_threads()
    th.set_num_threads(1)
    try:
        return [measure(length, *((2, 1) if quick else (5, 2))) for length in EPISODE_LENGTHS]
    finally:
        th.set_num_threads(threads)


def main(arguments: Sequence[str] | None = None) -> int:
    return command(arguments, __doc__, run_all, QUICK=(bool, False), JSON=(Path | None, None))


def run_all(options: SimpleNamespace) -> int:
    rows = run(options.quick)
    print("episode |  frames/s trained per epoch |  frames/s end to end (10 epochs)")
    print(" length |  contrib     ours    ratio  |  contrib     ours    ratio")
    for row in rows:
        contrib, ours = row["contrib"], row["ours"]
        print(
            f"{row['episode_length']:7d} |{contrib['train_fps_per_epoch']:9.0f}{ours['train_fps_per_epoch']:9.0f}"
            f"{row['train_speedup']:8.1f}x |{contrib['end_to_end_fps']:9.1f}{ours['end_to_end_fps']:9.1f}"
            f"{row['end_to_end_speedup']:8.1f}x"
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
