"""MiniHack with IMPALA: E3B, no bonus and random actions, trained by `make train` and measured by `make evaluate`.

python -m experiments.minihack [WORD=value ...] [--tasks ...] [--methods ...] [--seeds N]

Every run is the `home` preset. Its folder is under runs/minihack/ and is resumed if
it was stopped; its settings, curve and evaluation are copied to results/minihack/runs/, from which the report is made.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from e3b_gym.command import Parser, answer, at_least
from experiments.long_runs import command, keep, option, progress, train
from experiments.plots import plot_panels, steps_to
from experiments.settings import as_words, by_word, resolve, usual_settings
from experiments.study import Point
from experiments.table import LABELS

TASKS = (
    "MiniHack-MultiRoom-N6-v0",
    "MiniHack-LavaCrossingS19N13-v0",
    "MiniHack-LavaCross-Levitate-Restricted-v0",
    "MiniHack-LavaCross-Restricted-v0",
)
RANDOM = "random"
METHODS = ("e3b", "none", RANDOM)
NAMES = {**LABELS, RANDOM: "random policy"}
IGNORED = ("seed", "steps", "engine", "actors")  # in the table, or nothing to do with what is learned
CURVE, EVALUATION = "progress.csv", "evaluation-latest-seed0.json"
KEPT = ("config.yaml", CURVE, EVALUATION)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit code."""
    return answer(arguments, None, _run)


def _run(arguments: list[str]) -> int:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=TASKS, choices=TASKS)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--seeds", type=at_least(1), default=2)
    parser.add_argument("--steps", type=at_least(1), help="of every run, in place of the task's own")
    parser.add_argument("--episodes", type=at_least(1), default=200, help="of every evaluation")
    parser.add_argument("--runs", type=Path, default=Path("runs/minihack"), help="where the runs' folders are")
    parser.add_argument("--out", type=Path, default=Path("results/minihack"))
    parser.add_argument(
        "words", nargs="*", type=option, metavar="WORD=value", help="of `make train`, such as engine=inline"
    )
    given = parser.parse_args(arguments)
    for seed in range(given.seeds):
        for task in given.tasks:
            for method in given.methods if seed == 0 else [method for method in given.methods if method != RANDOM]:
                name = f"{task.removeprefix('MiniHack-').removesuffix('-v0')}-{method}-seed{seed}"
                run, kept, files = given.runs / name, given.out / "runs" / name, files_of(method)
                if all((kept / file).exists() for file in files):
                    continue
                words = [f"ENV={task}", f"METHOD={method}", f"SEED={seed}"]
                if method == RANDOM:
                    command("train", f"RUN={run}", *words)
                else:
                    steps = given.steps or resolve("impala", "home", {"env": task, "method": method}).config.steps
                    train(run, steps, [*words, *given.words])
                episodes = given.episodes * (5 if method == RANDOM else 1)  # its share may be a few in a thousand
                command("evaluate", f"RUN={run}", f"EPISODES={episodes}")
                keep(run, kept, files)
    report(given.out)
    return 0


def files_of(method: str) -> list[str]:
    """What is kept of a run; a random policy has no curve."""
    return [file for file in KEPT if file != CURVE or method != RANDOM]


def report(out: Path) -> None:
    """From the runs that are there: README.md and curves.png."""
    panels: dict[str, dict[str, list[list[Point]]]] = {}
    rows, commits = [], set()
    for folder in sorted((out / "runs").iterdir(), key=_order):
        settings = yaml.safe_load((folder / "config.yaml").read_text())
        config, found = settings["config"], json.loads((folder / EVALUATION).read_text())
        curve = [] if config["method"] == RANDOM else _curve(folder)
        if curve:
            panels.setdefault(config["env"], {}).setdefault(NAMES[config["method"]], []).append(curve)
        rows.append(_row(config, curve, found))
        commits |= {part["commit"] for part in settings["provenance"]}
    plot_panels(panels, out / "curves.png")
    source = settings["provenance"][-1]
    (out / "README.md").write_text(
        "# MiniHack: IMPALA with E3B and without a bonus\n\n"
        "The `home` preset of `make train`, one run a row, with what it has for the task alone. "
        "Success is the share of episodes in worlds that training did not use, with its 95 % Wilson interval, actions "
        f"drawn from the policy (`make evaluate`). Minutes are those of the whole training ({source['machine']}).\n\n"
        "| task | method | settings of the task | seed | frames | minutes | episodes | success "
        "| 0.8 of training episodes at |\n" + "|---" * 9 + "|\n" + "\n".join(rows) + "\n\n![curves](curves.png)\n\n"
        f"Made by `python -m experiments.minihack` at commit {', '.join(sorted(commits))}. Settings, curve and "
        "evaluation of every run are in `runs/`. [How the settings were found](tuning.md), with what did not work.\n"
    )


def _order(folder: Path) -> tuple[int, str]:
    tasks = [task.removeprefix("MiniHack-").removesuffix("-v0") for task in TASKS]
    task = folder.name.rsplit("-", 2)[0]
    return tasks.index(task), folder.name


def _curve(folder: Path) -> list[Point]:
    """From when the first episodes ended."""
    rows = [row for row in progress(folder) if row.get("success")]
    if not rows:
        raise ValueError(f"no episode of {folder} has ended; give its task more steps")
    return [Point(int(r["frames"]), float(r["seconds"]), float(r["success"]), float(r["length"])) for r in rows]


def _row(config: dict[str, Any], curve: list[Point], found: dict[str, Any]) -> str:
    cells = [config["env"], NAMES[config["method"]]]
    if config["method"] != RANDOM:
        reached = steps_to(curve)
        cells += [_changes(config), str(config["seed"])]
        cells += [f"{found['frames'] / 1e6:.2f}M", f"{curve[-1].seconds / 60:.0f}"]
        when = "never" if reached is None else f"{reached / 1e6:.2f}M"
    else:
        cells, when = [*cells, "", "", "", ""], ""
    cells += [str(found["episodes"]), "{mean:.3f} [{low:.3f}, {high:.3f}]".format(**found["success"]), when]
    return "| " + " | ".join(cells) + " |"


def _changes(config: dict[str, Any]) -> str:
    """Where a run differs from what `home` has for every task, as words of `make train`."""
    usual = usual_settings("home", "impala", config["env"], config["method"])
    taken = {word: value for word, value in by_word(config).items() if word not in IGNORED}
    return as_words({word: value for word, value in taken.items() if value != usual.get(word)})


if __name__ == "__main__":
    sys.exit(main())
