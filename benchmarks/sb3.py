"""Cost of the exploration bonus in Stable-Baselines3: frames per second without, with ours and with rllte's.

    python -m benchmarks.sb3 [QUICK=1] [ROUNDS=N] [JSON=FILE]

PPO on MiniGrid-DoorKey-8x8 with 16 environments (MultiInputPolicy, minibatches of 256, 4 epochs), a slow simulator, and
on Rooms-K4 with 64 (MlpPolicy, minibatches of 1024, 3 epochs), a fast one; rollouts of 128 steps, all environments in
this process; embeddings of d = 64 numbers, our default, and of 512. Then RecurrentPPO, contrib's and ours, as in
`benchmarks.recurrent_ppo`. One thread; contenders alternate, a rollout and its training each, and times are CPU seconds
of this process, so other load hardly affects the ratios. Exit code 1: a target is missed.

rllte (`pip install rllte-core`) is measured if it can be imported. Its recipe for SB3 computes the bonus when a rollout
is full, one environment step at a time, and adds it to the advantages. It does not support Dict observations: it gets
them flattened, and embeddings of the same length as ours. No bonus can be faster than PPO alone, so the ratio of plain
PPO to rllte's recipe is an upper limit.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks import command
from e3b_gym.options import Count

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch starts its threads

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.vec_env import VecEnv

from benchmarks import recurrent_ppo
from e3b_gym import E3BRewardWrapper, EncoderUpdateCallback, make_vec_env
from experiments.provenance import provenance

N_STEPS = 128


@dataclass(frozen=True)
class Setting:
    """Environments, the arguments of PPO for them, and the length of the embeddings."""

    env: str
    num_envs: int
    policy: str
    options: dict[str, Any]
    ppo: dict[str, Any]
    dim: int = 64


_MINIGRID = Setting("MiniGrid-DoorKey-8x8-v0", 16, "MultiInputPolicy", {}, {"batch_size": 256, "n_epochs": 4})
_ROOMS = Setting("Rooms-K4-v0", 64, "MlpPolicy", {"clock": True, "flat": True}, {"batch_size": 1024, "n_epochs": 3})
SETTINGS = {
    "MiniGrid": _MINIGRID,
    "Rooms": _ROOMS,
    "MiniGrid, d = 512": replace(_MINIGRID, dim=512),
    "Rooms, d = 512": replace(_ROOMS, dim=512),
}


def flat(observations: Any) -> torch.Tensor:
    """Converts observations [T, N, ...], MiniGrid's Dict or flat ones, to float vectors [T, N, width]."""
    if not isinstance(observations, dict):
        return torch.as_tensor(observations)
    image = torch.as_tensor(observations["image"], dtype=torch.float32).flatten(-3) / 10  # [..., 147]
    direction = torch.as_tensor(observations["direction"]).long().reshape(image.shape[:-1])
    return torch.cat([image, torch.nn.functional.one_hot(direction, 4)], -1)


class RllteE3B(BaseCallback):
    """rllte's E3B on each full rollout, added to advantages and returns, as in its example for SB3."""

    def __init__(self, venv: VecEnv, dim: int) -> None:
        super().__init__()
        from rllte.xplore.reward import E3B  # type: ignore[import-not-found]

        width = 151 if isinstance(venv.observation_space, spaces.Dict) else venv.observation_space.shape[0]  # type: ignore[index]
        shown = SimpleNamespace(observation_space=spaces.Box(0, 1, (width,)), action_space=venv.action_space)
        shown.unwrapped = SimpleNamespace(num_envs=venv.num_envs)
        self.bonus = E3B(shown, device="cpu", latent_dim=dim)

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        buffer = self.model.rollout_buffer  # type: ignore[attr-defined]
        seen = flat(buffer.observations)  # [T, N, width]
        ends = torch.as_tensor(np.vstack([buffer.episode_starts[1:], self.locals["dones"]]))
        experience = {
            "observations": seen,
            "next_observations": torch.cat([seen[1:], flat(self.locals["new_obs"])[None]]),
            "actions": torch.as_tensor(buffer.actions),
            "rewards": torch.as_tensor(buffer.rewards),
            "terminateds": ends,
            "truncateds": torch.zeros_like(ends),
        }
        bonus = self.bonus.compute(experience).numpy()
        buffer.advantages += bonus
        buffer.returns += bonus


_RLLTE = "PPO + E3B, rllte"
CONTENDERS: dict[str, Callable[[VecEnv, int], tuple[VecEnv, BaseCallback]]] = {
    "PPO": lambda venv, dim: (venv, CallbackList([])),
    "PPO + E3B, ours": lambda venv, dim: (E3BRewardWrapper(venv, seed=0, dim=dim), EncoderUpdateCallback()),
    _RLLTE: lambda venv, dim: (venv, RllteE3B(venv, dim)),
}


def can_import_rllte() -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of pynvml, gym ...
            from rllte.xplore.reward import E3B  # noqa: F401
    except ImportError:
        return False
    return True


class Contender:
    """A PPO with its callback. Its first rollout, which compiles, is not timed."""

    def __init__(self, name: str, setting: Setting) -> None:
        venv = make_vec_env(setting.env, n_envs=setting.num_envs, seed=0, **setting.options)
        self.venv, callback = CONTENDERS[name](venv, setting.dim)
        self.model = PPO(setting.policy, self.venv, n_steps=N_STEPS, seed=0, device="cpu", **setting.ppo)
        _, self.callback = self.model._setup_learn(10**9, callback)
        self.callback.on_training_start({}, {})
        self.seconds()

    def seconds(self) -> float:
        """Returns the CPU time of one rollout and its training."""
        start = time.process_time()
        self.model.collect_rollouts(self.venv, self.callback, self.model.rollout_buffer, N_STEPS)
        self.model.train()
        return time.process_time() - start


def measure(setting: Setting, rounds: int) -> dict[str, float]:
    """Returns frames per second by contender, from medians over rounds; without rllte if it cannot be imported."""
    names = [name for name in CONTENDERS if name != _RLLTE or can_import_rllte()]
    contenders = {name: Contender(name, setting) for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name, contender in contenders.items():
            seconds[name].append(contender.seconds())
    for contender in contenders.values():
        contender.venv.close()
    return {name: setting.num_envs * N_STEPS / float(np.median(times)) for name, times in seconds.items()}


@dataclass(frozen=True)
class Bar:
    """A ratio and its target; ratio None: not measured."""

    name: str
    ratio: float | None
    bar: float

    @property
    def verdict(self) -> str:
        return "not measured" if self.ratio is None else "PASS" if self.ratio >= self.bar else "FAIL"


def compare(speeds: dict[str, dict[str, float]], recurrent: Sequence[dict[str, Any]]) -> list[Bar]:
    plain, ours, rllte = (speeds["MiniGrid"].get(name, 0.0) for name in CONTENDERS)
    bars = [
        Bar("MiniGrid: share of PPO's speed that PPO + E3B keeps", ours / plain, 0.5),
        Bar("MiniGrid: PPO + E3B, times rllte's recipe", ours / rllte if rllte else None, 3.0),
    ]
    for part, bar in (("train", 8.0), ("end_to_end", 5.0)):
        slowest = min(row[f"{part}_speedup"] for row in recurrent)
        bars.append(Bar(f"RecurrentPPO, {part.replace('_', ' ')}: times contrib's, at least", slowest, bar))
    return bars


def print_speeds(setting: Setting, speeds: dict[str, float]) -> None:
    print(f"{setting.env}, {setting.num_envs} environments, d = {setting.dim}")
    print(f"  {'':20} {'frames/s':>9} {'of PPO':>7} {'x rllte':>8} {'cost of the bonus':>18}")
    for name in CONTENDERS:
        if name not in speeds:
            print(f"  {name:20} rllte is not importable here")
            continue
        share, cost = speeds[name] / speeds["PPO"], 1e6 / speeds[name] - 1e6 / speeds["PPO"]
        rllte = f"{speeds[name] / speeds[_RLLTE]:.2f}" if _RLLTE in speeds else "-"
        print(f"  {name:20} {speeds[name]:>9,.0f} {share:>7.0%} {rllte:>8} {cost:>9.0f} us/frame")


def print_recurrent(rows: Sequence[dict[str, Any]]) -> None:
    print("RecurrentPPO, frames/s end to end (x: times contrib's; then in training alone)")
    for row in rows:
        speed = {name: row[name]["end_to_end_fps"] for name in ("contrib", "ours")}
        print(
            f"  episodes of {row['episode_length']:>4} steps: contrib {speed['contrib']:>6,.0f}, "
            f"ours {speed['ours']:>6,.0f}, x {row['end_to_end_speedup']:.1f}; training x {row['train_speedup']:.1f}"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    return command(arguments, __doc__, run_all, QUICK=(bool, False), ROUNDS=(Count, 8), JSON=(Path | None, None))


def run_all(options: SimpleNamespace) -> int:
    torch.set_num_threads(1)
    facts = provenance()
    print(*(f"{name}: {value}" for name, value in facts.items()), "", sep="\n")
    speeds = {}
    for name, setting in list(SETTINGS.items())[: 1 if options.quick else None]:
        speeds[name] = measure(setting, 1 if options.quick else options.rounds)
        print_speeds(setting, speeds[name])
    rows = [recurrent_ppo.measure(40, rounds=1, epochs=1)] if options.quick else recurrent_ppo.run()
    print_recurrent(rows)
    bars = compare(speeds, rows)
    print()
    for bar in bars:
        ratio = "-" if bar.ratio is None else f"{bar.ratio:.2f}"
        print(f"{bar.name:64} {ratio:>6}   target {bar.bar:<4} {bar.verdict}")
    if options.json:
        verdicts = [asdict(bar) | {"verdict": bar.verdict} for bar in bars]
        record = {"provenance": facts, "frames_per_second": speeds, "recurrent": rows, "bars": verdicts}
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    return 1 if any(bar.verdict == "FAIL" for bar in bars) else 0


if __name__ == "__main__":
    sys.exit(main())
