"""Rooms with a clock: who still explores when every observation is new? (the paper's argument, in minutes)

    python -m experiments.rooms demo     E3B, no bonus and the episodic count, time counter on, live (`make demo`)
    python -m experiments.rooms table    every method x {clock, noise, neither} x seeds, with intervals

A new chain of rooms every episode, reward only in the last room, a random policy hardly ever gets there.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Any

from torch import nn

from experiments.plots import markdown_table, plot_curves, plot_panels
from experiments.provenance import provenance
from experiments.study import EPISODES, Point, Run, run_all

TASK = "Rooms-K6-v0"
WORLDS: dict[str, dict[str, Any]] = {
    "clock": {"clock": True},
    "noise": {"noise": 256},
    "neither": {},
}
METHODS = ("e3b", "none", "first-visit", "noveld", "e3b-nonepisodic", "e3b-random", "e3b-policy")
LABELS = {
    "e3b": "E3B",
    "none": "no bonus",
    "first-visit": "episodic count, full observation",
    "noveld": "NovelD, full observation",
    "e3b-nonepisodic": "E3B, non-episodic",
    "e3b-random": "E3B, random encoder",
    "e3b-policy": "E3B, policy encoder",
}
POINT = [field.name for field in dataclasses.fields(Point)]
PPO_SETTINGS: dict[str, Any] = {
    "learning_rate": 5e-4,
    "n_steps": 128,
    "batch_size": 1024,
    "n_epochs": 3,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip_range": 0.2,
    "ent_coef": 0.01,
    "max_grad_norm": 0.5,
    "policy_kwargs": {"net_arch": [128, 128], "activation_fn": nn.ReLU},
}


def make_run(method: str, world: str, seed: int, steps: int) -> Run:
    """A run with the settings that all methods share; only the bonus differs."""
    return Run(method, TASK, seed, steps, world={"flat": True, **WORLDS[world]}, ppo=PPO_SETTINGS)


class Screen:
    """A line per run, redrawn in place in a terminal, appended now and then to a file."""

    def __init__(self, names: list[str], steps: int) -> None:
        self._names, self._steps = names, steps
        self._curves: list[list[Point]] = [[] for _ in names]
        self._live, self._drawn, self._next = sys.stdout.isatty(), False, 0.0

    def show(self, number: int, point: Point) -> None:
        self._curves[number].append(point)
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + (0.5 if self._live else 20.0)
        self.draw()

    def draw(self) -> None:
        if self._live and self._drawn:
            sys.stdout.write(f"\x1b[{len(self._names)}F")
        self._drawn = True
        for name, curve in zip(self._names, self._curves, strict=True):
            sys.stdout.write(("\x1b[2K" if self._live else "") + self._line(name, curve) + "\n")
        sys.stdout.flush()

    def _line(self, name: str, curve: list[Point]) -> str:
        if not curve:
            return f"{name:34} waiting"
        last = curve[-1]
        return (
            f"{name:34} success {last.success:4.2f} |{sparkline(curve, self._steps)}| "
            f"{last.steps / 1e6:.2f}M steps, {last.steps / last.seconds:,.0f}/s"
        )


def sparkline(curve: list[Point], steps: int, width: int = 32) -> str:
    """Success over the whole budget in `width` characters."""
    cells = [" "] * width
    for point in curve:
        cells[min(point.steps * width // steps, width - 1)] = "▁▂▃▄▅▆▇█"[min(int(point.success * 8), 7)]
    return "".join(cells)


def train_all(runs: list[Run], names: list[str], workers: int) -> list[list[Point]]:
    """Trains the runs with a live display; returns their curves."""
    curves: list[list[Point]] = [[] for _ in runs]
    screen = Screen(names, runs[0].steps)
    for number, point in run_all(runs, workers):
        if point is not None:
            curves[number].append(point)
            screen.show(number, point)
    screen.draw()
    return curves


def demo(arguments: argparse.Namespace) -> None:
    methods = ("e3b", "none", "first-visit")
    print(f"{TASK} with a time counter: a new chain of rooms every episode, reward only in the last one")
    runs = [make_run(method, "clock", arguments.seed, arguments.steps) for method in methods]
    curves = train_all(runs, [LABELS[method] for method in methods], arguments.workers)
    path = Path(arguments.out) / "demo.png"
    plot_curves(
        {LABELS[m]: [curve] for m, curve in zip(methods, curves, strict=True)}, f"{TASK}, time counter on", path
    )
    print(f"picture: {path}")


def table(arguments: argparse.Namespace) -> None:
    """Trains what is not there yet, a file per run, so that a long table can be made in several sittings."""
    out = Path(arguments.out)
    cells = [(world, method) for world in arguments.worlds for method in arguments.methods]
    keys = [(world, method, seed) for seed in range(arguments.seeds) for world, method in cells]
    missing = [key for key in keys if not run_file(out, *key).exists()]
    runs = [make_run(method, world, seed, arguments.steps) for world, method, seed in missing]
    print(f"{len(keys) - len(missing)} of {len(keys)} runs are in {out}; training {len(missing)}")
    curves: list[list[Point]] = [[] for _ in runs]
    for number, point in run_all(runs, arguments.workers):
        if point is not None:
            curves[number].append(point)
            continue
        world, method, seed = missing[number]
        save_run(run_file(out, world, method, seed), world, runs[number], curves[number])
        last = curves[number][-1]
        print(f"{world:8} {method:16} seed {seed}: success {last.success:.2f} after {last.seconds:.0f} s", flush=True)
    report(out)


def run_file(out: Path, world: str, method: str, seed: int) -> Path:
    return out / "runs" / f"{world}-{method}-seed{seed}.json"


def save_run(path: Path, world: str, run: Run, curve: list[Point]) -> None:
    """One line per point, so that a change can be read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    head = json.dumps(
        {"provenance": provenance(), "world": world, "run": dataclasses.asdict(run)}, indent=1, default=str
    )
    points = ",\n".join(json.dumps([getattr(point, name) for name in POINT]) for point in curve)
    path.write_text(f'{head[:-2]},\n "columns": {json.dumps(POINT)},\n "curve": [\n{points}\n ]\n}}\n')


def report(out: Path) -> None:
    """From the runs that are there: a table with intervals (README.md) and curves (curves.png)."""
    records = [json.loads(path.read_text()) for path in sorted((out / "runs").glob("*.json"))]
    order = {method: i for i, method in enumerate(METHODS)}
    panels: dict[str, dict[str, list[list[Point]]]] = {}
    for record in sorted(records, key=lambda r: (list(WORLDS).index(r["world"]), order[r["run"]["method"]])):
        curve = [Point(**dict(zip(record["columns"], values, strict=True))) for values in record["curve"]]
        panels.setdefault(record["world"], {}).setdefault(LABELS[record["run"]["method"]], []).append(curve)
    plot_panels(panels, out / "curves.png")
    commits = sorted({record["provenance"]["commit"] for record in records})
    source, steps = records[0]["provenance"], records[0]["run"]["steps"]
    (out / "README.md").write_text(
        f"# {records[0]['run']['env']}: success after {steps / 1e6:.1f}M steps\n\n"
        f"Share of the last {EPISODES} training episodes that reached the goal at the end of the budget: mean over "
        f"n seeds, its 95 % bootstrap interval, and the steps at which single runs first reached 0.8.\n\n"
        f"{markdown_table(panels)}\n\n![curves](curves.png)\n\n"
        f"Made by `python -m experiments.rooms table` at commit {', '.join(commits)} ({source['machine']}; Python "
        f"{source['python']}, {', '.join(f'{name} {number}' for name, number in source['packages'].items())}). "
        f"Every run's settings, seed and curve are in `runs/`.\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, function, out in (("demo", demo, "runs/demo"), ("table", table, "results/rooms")):
        command = commands.add_parser(name)
        command.set_defaults(function=function)
        command.add_argument("--out", default=out)
        command.add_argument("--steps", type=int, default=1_500_000)
        command.add_argument("--workers", type=int, default=2)
        if name == "demo":
            command.add_argument("--seed", type=int, default=0)
        else:
            command.add_argument("--seeds", type=int, default=3)
            command.add_argument("--worlds", nargs="+", default=list(WORLDS), choices=list(WORLDS))
            command.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    arguments = parser.parse_args()
    arguments.function(arguments)


if __name__ == "__main__":
    main()
