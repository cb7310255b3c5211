"""The plots of a report. Each is drawn only from a table of rows, which is written next to it as CSV.

A function returns its rows; `draw` writes <name>.csv, <name>.png and <name>.svg.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

Rows = list[dict[str, Any]]
# Okabe and Ito's colours, which colour-blind readers can tell apart, then some more.
COLOURS = (
    "#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#8c564b", "#b8b800", "#000000",
    "#9467bd", "#17becf",
)  # fmt: skip
STYLE: Any = {
    "svg.hashsalt": "e3b_gym",
    "svg.fonttype": "path",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def draw(rows: Rows, name: str, out: Path, figure: Callable[[Rows], Figure]) -> str:
    """Writes the rows and their picture; returns the name. The files depend on the rows alone."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / f"{name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _rounded(value) for key, value in row.items()} for row in rows)
    with mpl.rc_context(STYLE):
        picture = figure(rows)
        FigureCanvasAgg(picture)
        picture.savefig(out / f"{name}.png", dpi=110, metadata={"Software": None})
        picture.savefig(out / f"{name}.svg", metadata={"Date": None, "Creator": None})
    return name


def colours_of(labels: Sequence[str]) -> dict[str, str]:
    """A colour per label, the same in all plots of a report."""
    return {label: COLOURS[place % len(COLOURS)] for place, label in enumerate(dict.fromkeys(labels))}


def curves_figure(rows: Rows) -> Figure:
    """Rows: task, method, frames, mean, low, high. One panel per task; the band is the range of the seeds."""
    tasks, colours = _values(rows, "task"), colours_of(_values(rows, "method"))
    columns = min(len(tasks), 4)
    lines = -(-len(tasks) // columns)
    figure = Figure(figsize=(max(4.2 * columns, 6.4), 3.2 * lines + 0.9), layout="constrained")
    axes = list(figure.subplots(lines, columns, squeeze=False, sharey=True).flat)
    for axis, task in zip(axes, tasks, strict=False):
        for method, colour in colours.items():
            part = [row for row in rows if (row["task"], row["method"]) == (task, method)]
            frames = np.array([row["frames"] for row in part]) / 1e6
            axis.plot(frames, [row["mean"] for row in part], color=colour, label=method)
            low, high = [row["low"] for row in part], [row["high"] for row in part]
            axis.fill_between(frames, low, high, color=colour, alpha=0.15, linewidth=0)
        axis.set_title(task, fontsize=10)
        axis.set(xlabel="frames (millions)", ylim=(-0.02, 1.02), xlim=(0, None))
        axis.grid(alpha=0.3)
    for axis in axes[len(tasks) :]:
        axis.set_visible(False)
    figure.supylabel("success of the last 200 training episodes", fontsize=10)
    _legend(figure, colours)
    return figure


def aggregate_figure(rows: Rows) -> Figure:
    """Rows: group, method, metric, value, low, high. One row of panels per group, one column per metric."""
    groups, metrics = _values(rows, "group"), _values(rows, "metric")
    methods = _values(rows, "method")
    colours = colours_of(methods)
    height = 0.32 * len(methods) + 0.75
    figure = Figure(figsize=(3.0 * len(metrics) + 1.6, height * len(groups) + 0.2), layout="constrained")
    axes = figure.subplots(len(groups), len(metrics), squeeze=False, sharex="col")
    for line, group in zip(axes, groups, strict=True):
        for axis, metric in zip(line, metrics, strict=True):
            part = {row["method"]: row for row in rows if (row["group"], row["metric"]) == (group, metric)}
            _bars(axis, part, methods, colours)
            axis.set(xlim=(-0.03, 1.03))
            axis.set_title(f"{metric} (lower is better)" if metric == "optimality gap" else metric, fontsize=10)
            if axis is not line[0]:
                axis.set_yticklabels([])
        line[0].set_ylabel(group, weight="bold")
    return figure


def improvement_figure(rows: Rows) -> Figure:
    """Rows: method, value, low, high: the probability that the first method scores higher than this one."""
    methods, colours = _values(rows, "method"), colours_of(["", *_values(rows, "method")])
    figure = Figure(figsize=(6.4, 0.34 * len(methods) + 1.1), layout="constrained")
    axis = figure.subplots()
    _bars(axis, {row["method"]: row for row in rows}, methods, colours)
    axis.axvline(0.5, color="#444444", linestyle=":", linewidth=1)
    axis.set(xlim=(-0.02, 1.02), xlabel=f"probability that {rows[0]['first']} scores higher")
    return figure


def line_figure(rows: Rows, x: str, xlabel: str, ylabel: str) -> Figure:
    """Rows: method, `x`, value, low, high. A line per method with its interval."""
    colours = colours_of(_values(rows, "method"))
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axis = figure.subplots()
    for method, colour in colours.items():
        part = [row for row in rows if row["method"] == method]
        places = [row[x] for row in part]
        axis.plot(places, [row["value"] for row in part], color=colour, label=method)
        low, high = ([row["value"] if row[end] == "" else row[end] for row in part] for end in ("low", "high"))
        axis.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
    axis.set(xlabel=xlabel, ylabel=ylabel, ylim=(-0.02, 1.02))
    axis.grid(alpha=0.3)
    _legend(figure, colours)
    return figure


def score_figure(rows: Rows, ylabel: str) -> Figure:
    """Rows: task, method, seed, score. A bar for the mean, a point per seed."""
    tasks, methods = _values(rows, "task"), _values(rows, "method")
    colours = colours_of(methods)
    figure = Figure(figsize=(max(6.4, 0.7 * len(methods) * len(tasks) + 1.5), 4.2), layout="constrained")
    axis = figure.subplots()
    width = 0.8 / len(methods)
    for place, method in enumerate(methods):
        for number, task in enumerate(tasks):
            scores = [row["score"] for row in rows if (row["task"], row["method"]) == (task, method)]
            if not scores:
                continue
            x = number + (place - (len(methods) - 1) / 2) * width
            axis.bar(x, np.mean(scores), 0.9 * width, color=colours[method], alpha=0.55)
            axis.plot([x] * len(scores), scores, "o", color=colours[method], markersize=4, markeredgecolor="white")
            axis.annotate(
                f"{np.mean(scores):.2g}", (x, max(scores)), (0, 4), textcoords="offset points", ha="center", fontsize=8
            )
    axis.set_xticks(range(len(tasks)), tasks)
    axis.set(ylabel=ylabel, ylim=(0, 1.15 * max(row["score"] for row in rows) or 1))
    axis.grid(axis="y", alpha=0.3)
    _legend(figure, colours)
    return figure


def _bars(axis: Any, part: Mapping[str, Mapping[str, Any]], methods: Sequence[str], colours: Mapping[str, str]) -> None:
    """A line per method: the estimate as a mark, its interval as a bar."""
    for place, method in enumerate(methods):
        if method not in part:
            continue
        row, colour = part[method], colours[method]
        if row["low"] != "":
            axis.barh(place, row["high"] - row["low"], 0.6, left=row["low"], color=colour, alpha=0.55)
        axis.plot([row["value"]] * 2, [place - 0.3, place + 0.3], color=colour, linewidth=2.5)
    axis.set_yticks(range(len(methods)), methods)
    axis.set_ylim(len(methods) - 0.4, -0.6)
    axis.grid(axis="x", alpha=0.3)


def _legend(figure: Figure, colours: Mapping[str, str]) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=colour, linewidth=2.5, label=label) for label, colour in colours.items()]
    fitting = int(figure.get_figwidth() * 13 / (6 + max(map(len, colours))))  # about 13 characters to an inch
    columns = max(min(len(handles), fitting), 1)
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)


def _values(rows: Rows, name: str) -> list[str]:
    return list(dict.fromkeys(row[name] for row in rows))


def _rounded(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value
