"""The tables of a report as rows of text, for the HTML page and for README.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.intervals import bootstrap
from experiments.results import Result
from experiments.studies import Study

Table = tuple[list[str], list[list[str]]]
"""Heads of the columns, and the rows."""
# Named elsewhere in the table, or without an effect on what is learned.
IGNORED = ("env", "method", "seed", "steps", "engine", "actors", "threads", "agent")


def score_table(study: Study, scale: str, results: Sequence[Result]) -> Table:
    """Methods x tasks: the mean over seeds with its interval, or the seeds themselves where they are fewer than 3."""
    tasks = study.tasks_at(scale)
    rows = []
    for method in study.methods:
        cells = [_cell([r for r in results if (r.run.task, r.run.method) == (task, method)]) for task in tasks]
        rows.append([study.labels[method.name], *cells])
    return ["method", *(task.short for task in tasks)], rows


def _cell(results: Sequence[Result]) -> str:
    scores = [result.score for result in results if result.score is not None]
    if not scores:
        return "not run"
    digits = 0 if results[0].run.measure == "frames per second" else 3
    if len(scores) < 3:
        text = ", ".join(f"{score:.{digits}f}" for score in scores)
        return f"{text} ({len(scores)} seed{'s' * (len(scores) > 1)})"
    low, high = bootstrap(scores)
    return f"{np.mean(scores):.{digits}f} [{low:.{digits}f}, {high:.{digits}f}] ({len(scores)} seeds)"


def run_table(study: Study, results: Sequence[Result]) -> Table:
    """A row per run."""
    differing = differences(results)
    heads = [
        "task",
        "method",
        "seed",
        "frames",
        "hours",
        "score",
        "episodes",
        "0.8 of training at",
        "differs",
        "commit",
    ]
    rows = []
    for result in results:
        interval = "" if result.interval is None else " [{:.3f}, {:.3f}]".format(*result.interval)
        reached, has_success = result.steps_to(), result.run.measure in ("success", "training success")
        rows.append(
            [
                result.run.task.short,
                study.labels[result.run.method.name],
                str(result.run.seed),
                _millions(result.frames),
                f"{result.hours:.2f}" if result.hours else "",
                f"{result.score:.3f}{interval}",
                str(result.episodes or ""),
                ("never" if reached is None else _millions(reached)) if result.run.learns and has_success else "",
                differing[result.run.folder],
                ", ".join(result.commits),
            ]
        )
    used = [place for place, _ in enumerate(heads) if any(row[place] for row in rows)]
    return [heads[place] for place in used], [[row[place] for place in used] for row in rows]


def differences(results: Sequence[Result]) -> dict[Any, str]:
    """By folder, the options of `make train` in which a run differs from most runs that have the option."""
    flat = {result.run.folder: flattened(result.content["config"]) for result in results if result.run.learns}
    names = dict.fromkeys(name for config in flat.values() for name in config)
    usual = {}
    for name in names:
        # The options of a bonus are those of its method, an environment's are the same for all runs.
        having = [config for config in flat.values() if name in config or name.startswith("env.")]
        values = [str(config.get(name)) for config in having]
        usual[name] = max(dict.fromkeys(values), key=values.count)
    found = {result.run.folder: "" for result in results}
    for folder, config in flat.items():
        own = {name: value for name, value in config.items() if str(value) != usual[name]}
        found[folder] = " ".join(f"{name}={value}" for name, value in own.items())
    return found


def flattened(config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by name, those of the bonus without a prefix, those of the environment as env.<name>."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        if name in IGNORED:
            continue
        if isinstance(value, Mapping):
            prefix = "env." if name == "env_options" else ""
            found |= {f"{prefix}{key}": item for key, item in value.items() if key not in IGNORED}
        else:
            found[name] = value
    return found


def _millions(frames: int) -> str:
    return f"{frames / 1e6:.2f}M" if frames else ""


def markdown(table: Table) -> str:
    """The table in Markdown."""
    heads, rows = table
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])
