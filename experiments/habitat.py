"""Reward-free exploration of homes: four methods trained alike, then how much of homes never seen they reveal.

python -m experiments.habitat [WORD=value ...] [--methods ...] [--steps N] [--episodes N]

Every run is the `home` preset of `make train` with the words given, on the bonus alone. Its folder is under
runs/habitat/ and is gone on with if it was stopped. Coverage of the val homes by every run and two random agents
(experiments.coverage), settings and curves come to results/habitat/.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from e3b_gym.command import Parser, answer, at_least
from experiments.coverage import cover
from experiments.long_runs import keep, option, progress, train

ENV = "Habitat-FloorPlan-v0"
METHODS = ("e3b", "rnd", "icm", "noveld-subsampled")
KEPT = ("config.yaml", "progress.csv")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit code."""
    return answer(arguments, None, _run)


def _run(arguments: list[str]) -> int:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--steps", type=at_least(1), default=1_000_000, help="of every run")
    parser.add_argument("--episodes", type=at_least(1), default=100, help="of every agent, one in each home")
    parser.add_argument("--runs", type=Path, default=Path("runs/habitat"), help="where the runs' folders are")
    parser.add_argument("--out", type=Path, default=Path("results/habitat"))
    parser.add_argument(
        "words", nargs="*", type=option, metavar="WORD=value", help="of `make train`, such as engine=inline"
    )
    given = parser.parse_args(arguments)
    for method in given.methods:
        train(given.runs / method, given.steps, [f"ENV={ENV}", f"METHOD={method}", *given.words])
        keep(given.runs / method, given.out / "runs" / method, KEPT)
    found = cover([str(given.runs / method) for method in given.methods], given.episodes, "val", 0, given.out)
    minutes = [float(progress(given.runs / method)[-1]["seconds"]) / 60 for method in given.methods]
    (given.out / "README.md").write_text(report(found, minutes))
    return 0


def report(found: Mapping[str, Any], minutes: Sequence[float]) -> str:
    """README.md: coverage with intervals, and how it came about. `minutes` are those of the runs, in order."""
    times = [f"{number:.0f}" for number in minutes] + [""] * (len(found["agents"]) - len(minutes))
    rows = [
        "| {agent} | {:.2f}M | {} | {mean:.3f} [{low:.3f}, {high:.3f}] |".format(
            agent["frames"] / 1e6, time, agent=agent["agent"], **agent["coverage"]
        )
        for agent, time in zip(found["agents"], times, strict=True)
    ]
    commits = sorted({commit for agent in found["agents"] for commit in agent.get("commits", [])})
    source = found["provenance"]
    return (
        "# Habitat: how much of a home never seen is revealed\n\n"
        f"Generated homes ({found['env']}), **not HM3D**. Trained without any reward, on the bonus alone, one seed "
        f"each, in the train homes; then {found['episodes']} episodes of {found['max_steps']} steps in the "
        f"{found['split']} homes. Coverage is the mean share of the navigable area that the line of sight revealed, "
        "with its 95 % bootstrap interval over episodes; actions are drawn from the policy. The random agents cannot "
        "stop either.\n\n"
        "| agent | frames | minutes | coverage |\n|---|---|---|---|\n" + "\n".join(rows) + "\n\n"
        "![coverage](coverage.png)\n\n![paths and what they revealed](trajectories.png)\n\n"
        f"Made by `python -m experiments.habitat`; trained at commit {', '.join(commits)}, measured at "
        f"{source['commit']} ({source['machine']}). Every run's settings, command and curve are in `runs/`; every "
        "episode is in `coverage.json`. The preset was chosen with E3B, by the coverage of 20 val episodes, and serves "
        "all methods ([defaults](../../docs/defaults.md)).\n"
    )


if __name__ == "__main__":
    sys.exit(main())
