"""A study: methods x worlds x seeds, trained in several sittings if need be, reported with intervals.

Every finished run is a file under `<out>/runs/`; a second call trains only what is missing, and the report is made from
the files that are there.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from e3b_gym.command import at_least
from experiments.plots import markdown_table, plot_panels
from experiments.provenance import provenance
from experiments.study import EPISODES, Point, Run, run_all

LABELS = {
    "e3b": "E3B",
    "none": "no bonus",
    "first-visit": "episodic count, full observation",
    "noveld": "NovelD, full observation",
    "e3b-nonepisodic": "E3B, non-episodic",
    "e3b-random": "E3B, random encoder",
    "e3b-policy": "E3B, policy encoder",
}
COLUMNS = [field.name for field in dataclasses.fields(Point)]


@dataclasses.dataclass(frozen=True)
class World:
    """Where methods are compared: an id of `e3b_gym.envs`, the budget of every run there, and the world's options."""

    env: str
    steps: int
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.env}, {self.steps / 1e6:g}M steps"


@dataclasses.dataclass(frozen=True)
class Study:
    """What is compared.

    Attributes:
        name: the module that runs it, and its folder under results/.
        worlds: by name.
        methods: names of `e3b_gym.METHODS`, in the order of the report.
        seeds: how many.
        make_run: (method, world, seed) -> Run; the methods share every other setting.
    """

    name: str
    worlds: Mapping[str, World]
    methods: tuple[str, ...]
    seeds: int
    make_run: Callable[[str, World, int], Run]

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.set_defaults(function=self.train)
        parser.add_argument("--out", default=f"results/{self.name}", help="folder of the runs and the report")
        parser.add_argument(
            "--steps", type=at_least(1), help="environment steps of every run, in place of the world's own"
        )
        parser.add_argument("--beta", type=float, help="of every run, in place of its own; needs an --out of its own")
        parser.add_argument("--seeds", type=at_least(1), default=self.seeds)
        parser.add_argument("--workers", type=at_least(1), default=2, help="runs at a time, one thread each")
        parser.add_argument("--worlds", nargs="+", default=list(self.worlds), choices=list(self.worlds))
        parser.add_argument("--methods", nargs="+", default=list(self.methods), choices=list(self.methods))

    def train(self, arguments: argparse.Namespace) -> None:
        """Trains what is not there yet, then reports."""
        out = Path(arguments.out)
        if arguments.beta is not None and out == Path(f"results/{self.name}"):
            raise ValueError("--beta makes another study; say where it goes with --out, or it would mix with this one")
        keys = [
            (world, method, seed)
            for seed in range(arguments.seeds)
            for world in arguments.worlds
            for method in arguments.methods
        ]
        missing = [key for key in keys if not _file(out, *key).exists()]
        runs = [self.make_run(method, self.worlds[world], seed) for world, method, seed in missing]
        if arguments.steps is not None:
            runs = [dataclasses.replace(run, steps=arguments.steps) for run in runs]
        if arguments.beta is not None:
            runs = [dataclasses.replace(run, bonus={**run.bonus, "beta": arguments.beta}) for run in runs]
        print(f"{len(keys) - len(missing)} of {len(keys)} runs are in {out}; training {len(missing)}", flush=True)
        curves: list[list[Point]] = [[] for _ in runs]
        for number, point in run_all(runs, arguments.workers):
            if point is not None:
                curves[number].append(point)
                continue
            world, method, seed = missing[number]
            _save(_file(out, world, method, seed), world, runs[number], curves[number])
            last = curves[number][-1]
            print(f"{world}, {method}, seed {seed}: success {last.success:.2f} after {last.seconds:.0f} s", flush=True)
        self.report(out)

    def report(self, out: Path) -> None:
        """From the runs that are there: a table with intervals (README.md) and curves (curves.png)."""
        records = [json.loads(path.read_text()) for path in sorted((out / "runs").glob("*.json"))]
        order = {(w, m): i for i, (w, m) in enumerate((w, m) for w in self.worlds for m in self.methods)}
        panels: dict[str, dict[str, list[list[Point]]]] = {}
        for record in sorted(records, key=lambda record: order[record["world"], record["run"]["method"]]):
            world, run = record["world"], record["run"]
            steps = min(run["steps"], self.worlds[world].steps)
            curve = [Point(**dict(zip(record["columns"], values, strict=True))) for values in record["curve"]]
            title = f"{world}: {World(run['env'], steps)}"
            panels.setdefault(title, {}).setdefault(LABELS[run["method"]], []).append(_within(curve, steps))
        plot_panels(panels, out / "curves.png")
        findings = "[What this shows, and what not](findings.md)\n\n" if (out / "findings.md").exists() else ""
        (out / "README.md").write_text(self._text(records, markdown_table(panels), findings))

    def _text(self, records: list[dict[str, Any]], table: str, findings: str) -> str:
        source = records[0]["provenance"]
        commits = ", ".join(sorted({record["provenance"]["commit"] for record in records}))
        packages = ", ".join(f"{name} {number}" for name, number in source["packages"].items())
        return (
            f"# {self.name}: success by method and world\n\n"
            f"Share of the last {EPISODES} training episodes that reached the goal, at the end of the budget: mean "
            f"over n seeds, its 95 % bootstrap interval, and the steps at which single runs first reached 0.8.\n\n"
            f"{table}\n\n![curves](curves.png)\n\n{findings}"
            f"Made by `python -m experiments.{self.name} table` at commit {commits} ({source['machine']}; Python "
            f"{source['python']}, {packages}). Every run's settings, seed and curve are in `runs/`.\n"
        )


def _within(curve: list[Point], steps: int) -> list[Point]:
    """The curve until its first point at or beyond `steps`: a run that went on longer counts as if it had not."""
    return [point for before, point in zip([None, *curve], curve, strict=False) if not before or before.steps < steps]


def _file(out: Path, world: str, method: str, seed: int) -> Path:
    return out / "runs" / f"{world}-{method}-seed{seed}.json"


def _save(path: Path, world: str, run: Run, curve: list[Point]) -> None:
    """One line per point, so that a change can be read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    settings = {"provenance": provenance(), "world": world, "run": dataclasses.asdict(run)}
    head = json.dumps(settings, indent=1, default=str)
    points = ",\n".join(json.dumps([getattr(point, name) for name in COLUMNS]) for point in curve)
    path.write_text(f'{head[:-2]},\n "columns": {json.dumps(COLUMNS)},\n "curve": [\n{points}\n ]\n}}\n')
