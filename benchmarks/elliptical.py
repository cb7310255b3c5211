"""Speed and accuracy of `EllipticalMemory` compared with other implementations of the same bonus.

    python -m benchmarks.elliptical [QUICK=1] [JSON=FILE]

One thread; in each setting ours and the other implementations alternate, and times are CPU time of that thread, so
other load hardly affects the ratios. Whole episodes are run from their first step (the cost of ours grows with the
episode; that of the others does not, so they are sampled). Targets are ratios of steps per second to the authors'
implementation. Exit code 1 if a target is missed.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numba
import numpy as np
import torch
from torch import Tensor

from benchmarks import command
from benchmarks.elliptical_accuracy import accuracy_table, print_accuracy
from benchmarks.elliptical_peers import PEERS, machine_limits
from e3b_gym.memory.elliptical import EllipticalMemory
from e3b_gym.options import Seed

RIDGE = 0.1
SETTINGS = ((1, 256), (32, 256), (32, 512), (4, 1024), (16, 1024))  # N, d
BARS = {  # (d, episode): targets, multiples of the authors' steps per second, for step and for unroll
    (256, "mean 50"): (4.0, 7.0),
    (1024, "mean 50"): (25.0, 45.0),
    (256, "1000"): (2.0, 4.5),
    (1024, "1000"): (5.0, 9.0),
}
BAR_ENVS = {256: 32, 1024: 16}


@dataclass
class Timing:
    """Environment steps per second in one setting."""

    num_envs: int
    dim: int
    episode: str
    steps_per_second: dict[str, float] = field(default_factory=dict)

    def ratio(self, name: str) -> float:
        return self.steps_per_second[name] / self.steps_per_second["authors"]

    def bars(self) -> tuple[float, float] | None:
        return BARS.get((self.dim, self.episode)) if BAR_ENVS.get(self.dim) == self.num_envs else None

    def passed(self) -> bool:
        bars = self.bars()
        return bars is None or (self.ratio("step") >= bars[0] and self.ratio("unroll") >= bars[1])


def embeddings(steps: int, num_envs: int, dim: int, seed: int) -> Tensor:
    """Returns embeddings [T, N, d], non-negative like the output of a ReLU, with norm about sqrt(d / 2)."""
    return torch.randn(steps, num_envs, dim, generator=torch.Generator().manual_seed(seed)).relu_()


def episode_starts(steps: int, num_envs: int, episode: str, seed: int) -> Tensor:
    """Returns first [T, N]: one long episode, or geometric episode lengths with mean 50."""
    first = torch.zeros(steps, num_envs, dtype=torch.bool)
    if episode == "mean 50":
        first = torch.rand(steps, num_envs, generator=torch.Generator().manual_seed(seed)) < 1 / 50
    first[0] = True
    return first


def measure(num_envs: int, dim: int, episode: str, steps: int, seed: int) -> Timing:
    """Times ours over `steps` steps in unrolls of 125, and every other implementation after each unroll."""
    length = 125
    phi = embeddings(length, num_envs, dim, seed)
    first = episode_starts(steps, num_envs, episode, seed + 1)
    stepping, unrolling = EllipticalMemory(num_envs, dim, RIDGE), EllipticalMemory(num_envs, dim, RIDGE)
    peers = {name: peer(num_envs, dim, RIDGE) for name, peer in PEERS.items()}
    warm = EllipticalMemory(num_envs, dim, RIDGE)  # compile before timing
    warm.unroll(phi[:1], first[:1])
    seconds = dict.fromkeys(["step", "unroll", *peers], 0.0)
    done = dict.fromkeys(seconds, 0)
    for start in range(0, steps, length):
        rows, opens = phi.roll(start // length, 0), first[start : start + length]

        def clock(name: str, count: int, run: object, rows: Tensor = rows, opens: Tensor = opens) -> None:
            begin = time.thread_time()
            run(rows[:count], opens[:count])  # type: ignore[operator]
            seconds[name] += time.thread_time() - begin
            done[name] += count * num_envs

        clock("unroll", length, unrolling.unroll)
        clock("step", length, lambda x, f: [stepping.step(*row) for row in zip(x, f, strict=True)])
        for name, peer in peers.items():
            clock(name, _sample(name, num_envs, dim, steps), peer)
    return Timing(num_envs, dim, episode, {name: done[name] / seconds[name] for name in seconds})


def _sample(name: str, num_envs: int, dim: int, steps: int) -> int:
    """Returns the steps of another implementation per unroll: about 0.1 s for fast ones, one solve for the slow one."""
    cost = num_envs * dim**2 * (dim / 8 if name == "direct" else 8) / 1e10
    return max(1, min(50, round(100 / steps / cost)))


def print_timings(timings: list[Timing], limits: dict[str, float]) -> None:
    names = [name for name in timings[0].steps_per_second if name not in ("step", "unroll")]
    print("Environment steps per second (x: ratio to the authors' implementation)\n")
    header = f"{'N':>4} {'d':>5} {'episode':>8} |" + "".join(f"{name:>9}" for name in names)
    print(header + f" | {'step':>9} {'x':>6} {'bar':>5} | {'unroll':>9} {'x':>6} {'bar':>5} |  result")
    print("-" * (len(header) + 58))
    for timing in timings:
        rate = timing.steps_per_second
        step_bar, unroll_bar = timing.bars() or (None, None)
        line = f"{timing.num_envs:>4} {timing.dim:>5} {timing.episode:>8} |"
        line += "".join(f"{rate[name]:>9,.0f}" for name in names)
        for name, bar in (("step", step_bar), ("unroll", unroll_bar)):
            line += f" | {rate[name]:>9,.0f} {timing.ratio(name):>6.1f} {bar or '':>5}"
        verdict = "" if step_bar is None else ("PASS" if timing.passed() else "FAIL")
        print(f"{line} |  {verdict}")
    print(f"\nlimits of this machine, one thread: stream read {limits['stream_read_gb']:.1f} GB/s,", end=" ")
    print(f"sgemm {limits['sgemm_gflop']:.0f} GFLOP/s, dgemm {limits['dgemm_gflop']:.0f} GFLOP/s")
    for timing in timings:
        if timing.episode != "mean 50" and timing.num_envs > 1:
            print(f"  N={timing.num_envs} d={timing.dim}: {against_limits(timing, limits)}")
    print()


def against_limits(timing: Timing, limits: dict[str, float]) -> str:
    """Returns the rates as multiples of an ideal d x d algorithm at the machine's limits."""
    read = limits["stream_read_gb"] * 1e9 / (4 * timing.dim**2)  # reading C^-1 once per step
    gemm = limits["sgemm_gflop"] * 1e9 / (6 * timing.dim**2)  # three d x d products per step (whiten, fold)
    step, unroll = timing.steps_per_second["step"], timing.steps_per_second["unroll"]
    return (
        f"step at {step / read:.2f} x the rate of streaming one d x d float32 matrix per step, "
        f"unroll at {unroll / gemm:.2f} x the rate of a full square-root update at sgemm speed"
    )


def provenance(seed: int) -> dict[str, object]:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), cpu)
    versions = {"torch": torch.__version__, "numpy": np.__version__, "numba": numba.__version__}
    return {
        "machine": f"{cpu}, {platform.system()} {platform.machine()}",
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        **versions,
        "commit": commit.stdout.strip() or "unknown",
        "seed": seed,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    return command(arguments, __doc__, run_all, QUICK=(bool, False), SEED=(Seed, 0), JSON=(Path | None, None))


def run_all(options: SimpleNamespace) -> int:
    torch.set_num_threads(1)
    facts = provenance(options.seed)
    print("  ".join(f"{name}: {value}" for name, value in facts.items()), "\n")
    limits = machine_limits()
    timings = []
    for num_envs, dim in SETTINGS:
        if options.quick and BAR_ENVS.get(dim) != num_envs:
            continue
        timings += [measure(num_envs, dim, episode, 1000, options.seed) for episode in ("mean 50", "1000")]
    print_timings(timings, limits)
    accuracy = accuracy_table(
        steps=2_000 if options.quick else 10_000, dim=128 if options.quick else 256, seed=options.seed
    )
    accurate = print_accuracy(accuracy)
    if options.json:
        rates = [asdict(timing) | {"bars": timing.bars(), "passed": timing.passed()} for timing in timings]
        everything = {"facts": facts, "limits": limits, "speed": rates, "accuracy": [asdict(row) for row in accuracy]}
        options.json.write_text(json.dumps(everything, indent=1) + "\n")
    passed = accurate and all(timing.passed() for timing in timings)
    print("\nPASS: all targets are met" if passed else "\nFAIL: a target is missed")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
