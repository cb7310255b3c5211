"""MiniHack networks, fast path compared with PyTorch's plain modules: microseconds per frame on one thread, accuracy.

Frames come from a random policy in 64 environments for 81 steps after a warm-up (`paper` trains on 8 of them, `fast` on
all). Training is forward and backward of the whole network, or of one trunk with its block of the first layer; the
plain modules get fewer rows, which does not change their cost per row. Acting is 81 steps of 64 rows without gradients,
with the memo cleared before the first. All variants alternate; the numbers are medians of CPU seconds of this thread,
which other processes affect less than wall-clock time. Errors are the largest error of a tensor relative to its largest
entry, compared with float64, the maximum over the output and all gradients.

    python -m benchmarks.networks [VARIANT=fast|paper] [QUICK=1] [JSON=FILE]
"""

from __future__ import annotations

import copy
import json
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any, Literal

from benchmarks import command

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch starts its threads

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from e3b_gym import envs
from e3b_gym.encoders.sum_rows import sum_rows
from e3b_gym.encoders.unique_rows import unique_rows
from e3b_gym.envs.minihack.network import MiniHackNetwork, env_options, minihack_network

LEVELS = ("MiniHack-Freeze-Random-Restricted-v0", "MiniHack-MultiRoom-N6-v0")
NUM_ENVS, STEPS, WARM_UP = 64, 81, 120
TRAINED_ENVS = {"fast": 64, "paper": 8}
PLAIN_ROWS = {"fast": 640, "paper": 64}
LEAST_SPEEDUP = 8.0
Obs = dict[str, Tensor]


def play(level: str, variant: str) -> tuple[spaces.Space[Any], Obs]:
    """Returns the observation space of one environment, and frames [STEPS * NUM_ENVS, ...], time first."""
    pool = {"level_pool": 8} if "MultiRoom" in level else {}
    env: Any = envs.make_vec(level, NUM_ENVS, **env_options(variant), **pool)
    rng = np.random.default_rng(0)
    env.reset(seed=0)
    frames = []
    for step in range(WARM_UP + STEPS):
        obs = env.step(rng.integers(env.single_action_space.n, size=NUM_ENVS))[0]
        if step >= WARM_UP:
            frames.append(obs)
    env.close()
    return env.single_observation_space, {
        key: torch.from_numpy(np.concatenate([frame[key] for frame in frames])) for key in frames[0]
    }


def take_turns(ways: dict[str, tuple[Callable[[], object], int]], rounds: int) -> dict[str, float]:
    """Returns microseconds per row of each variant, given as a function and its number of rows."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for function, _ in ways.values():
        function()
    for _ in range(rounds):
        for name, (function, _) in ways.items():
            start = time.thread_time()
            function()
            seconds[name].append(time.thread_time() - start)
    return {name: round(1e6 * median(seconds[name]) / rows, 1) for name, (_, rows) in ways.items()}


def train(network: MiniHackNetwork, obs: Obs) -> dict[str, Tensor]:
    """Runs one forward and backward pass; returns the output and all gradients."""
    network.zero_grad()
    out: Tensor = network(obs)
    _backward(out)
    gradients = {name: weight.grad for name, weight in network.named_parameters() if weight.grad is not None}
    return {"out": out.detach()} | gradients


def train_trunk(function: Callable[[Tensor], Tensor], rows: Tensor, once: bool) -> None:
    """Runs forward and backward of one trunk; with `once`, only on the different rows."""
    if once:
        different, numbers = unique_rows(rows)
        out = sum_rows(function(different), numbers.unsqueeze(1))
    else:
        out = function(rows)
    _backward(out)


def _backward(out: Tensor) -> None:
    """Runs backward with a random output gradient: that of a plain sum is zero after LayerNorm."""
    cotangent = torch.randn(out.shape, generator=torch.Generator().manual_seed(0)).to(out.dtype)
    torch.autograd.backward(out, cotangent)


def trunk_ways(network: MiniHackNetwork, obs: Obs, few: int) -> dict[str, tuple[Callable[[], object], int]]:
    """Returns each trunk as plain module, with different rows only, with different patches only, and with both."""
    ways: dict[str, tuple[Callable[[], object], int]] = {
        "message, plain": (partial(train_trunk, network.message, obs["message"][:few], False), few),
        "message, rows once": (partial(train_trunk, network.message, obs["message"], True), len(obs["message"])),
    }
    for key, trunk in (("glyphs_crop", network.crop), ("glyphs", network.map)):
        if trunk is not None:
            plain, fast = (partial(trunk, embedding=network.glyphs, accelerate=fast) for fast in (False, True))
            rows, part = obs[key], obs[key][: 4 * few]
            ways[f"{key}, plain"] = partial(train_trunk, plain, rows[:few], False), few
            ways[f"{key}, rows once"] = partial(train_trunk, plain, part, True), len(part)
            ways[f"{key}, patches once"] = partial(train_trunk, fast, rows, False), len(rows)
            ways[f"{key}, both"] = partial(train_trunk, fast, rows, True), len(rows)
    return ways


@torch.no_grad()
def act(network: MiniHackNetwork, obs: Obs, steps: int) -> None:
    network.clear_memo()
    for step in range(steps):
        network({key: leaf[step * NUM_ENVS : (step + 1) * NUM_ENVS] for key, leaf in obs.items()})


def worst_error(got: dict[str, Tensor], exact: dict[str, Tensor]) -> float:
    return max(float((got[name] - exact[name]).abs().max() / exact[name].abs().max()) for name in exact)


def measure(level: str, variant: str, rounds: int) -> dict[str, dict[str, float]]:
    """Measures one network on one level: training, trunks, acting, errors."""
    space, frames = play(level, variant)
    fast = minihack_network(space, variant, layer_norm=True, seed=0)
    plain, remembering = copy.deepcopy(fast), copy.deepcopy(fast)
    plain.accelerate, remembering.memoise = False, True
    count, few = TRAINED_ENVS[variant], PLAIN_ROWS[variant]
    obs = {key: leaf.view(STEPS, NUM_ENVS, *leaf.shape[1:])[:, :count].flatten(0, 1) for key, leaf in frames.items()}
    part = {key: leaf[:few] for key, leaf in obs.items()}
    exact = train(copy.deepcopy(plain).double(), part)
    whole: dict[str, tuple[Callable[[], object], int]] = {
        "plain": (partial(train, plain, part), few),
        "fast path": (partial(train, fast, obs), STEPS * count),
    }
    acting: dict[str, tuple[Callable[[], object], int]] = {
        "plain": (partial(act, plain, frames, 2), 2 * NUM_ENVS),
        "fast path": (partial(act, fast, frames, STEPS), STEPS * NUM_ENVS),
        "fast path, memo": (partial(act, remembering, frames, STEPS), STEPS * NUM_ENVS),
    }
    return {
        "training": take_turns(whole, rounds),
        "trunks": take_turns(trunk_ways(fast, obs, few), rounds),
        "acting": take_turns(acting, max(1, rounds // 3)),
        "error": {"plain": worst_error(train(plain, part), exact), "fast path": worst_error(train(fast, part), exact)},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    return command(
        arguments,
        __doc__,
        run_all,
        QUICK=(bool, False),
        VARIANT=(Literal[tuple(TRAINED_ENVS)] | None, None),
        JSON=(Path | None, None),
    )


def run_all(options: SimpleNamespace) -> int:
    """Prints and stores the numbers; returns 1 if a speedup over the plain modules is below `LEAST_SPEEDUP`."""
    torch.set_num_threads(1)
    record, failed = {}, False
    for variant in [options.variant] if options.variant else TRAINED_ENVS:
        for level in LEVELS:
            numbers = record[f"{variant} {level}"] = measure(level, variant, 1 if options.quick else 5)
            speedup = numbers["training"]["plain"] / numbers["training"]["fast path"]
            failed |= speedup < LEAST_SPEEDUP
            verdict = "PASS" if speedup >= LEAST_SPEEDUP else "FAIL"
            print(f"\n{variant} on {level}: {speedup:.1f}x (target {LEAST_SPEEDUP:g}x) {verdict}")
            for title in ("training", "trunks", "acting"):
                print(f"  {title}, us/frame:", "; ".join(f"{way} {us:g}" for way, us in numbers[title].items()))
            print("  error:", "; ".join(f"{way} {error:.1e}" for way, error in numbers["error"].items()), flush=True)
    if options.json:
        options.json.write_text(json.dumps(record, indent=1))
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
