"""Curves and tables of small studies. Everything is drawn from the recorded points; nothing is typed in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from experiments.intervals import bootstrap
from experiments.study import EPISODES, Point


def steps_to(curve: Sequence[Point], success: float = 0.8) -> int | None:
    """Environment steps until the success rate first reached `success`; None if it did not."""
    return next((point.steps for point in curve if point.success >= success), None)


def plot_curves(curves: Mapping[str, Sequence[Sequence[Point]]], title: str, path: Path) -> None:
    """Success against steps; a line is the mean over a label's runs, the band their range."""
    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    _draw(figure.subplots(), curves, title)
    _save(figure, path)


def plot_panels(panels: Mapping[str, Mapping[str, Sequence[Sequence[Point]]]], path: Path) -> None:
    """One panel per world, the same colours in each."""
    figure = Figure(figsize=(5.2 * len(panels), 5.0), layout="constrained")
    axes = np.atleast_1d(figure.subplots(1, len(panels), sharey=True))
    for axis, (title, curves) in zip(axes, panels.items(), strict=True):
        _draw(axis, curves, title, legend=False)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    _save(figure, path)


def _draw(axis: Any, curves: Mapping[str, Sequence[Sequence[Point]]], title: str, legend: bool = True) -> None:
    for label, runs in curves.items():
        common = min(run[-1].steps for run in runs)
        steps = np.array([point.steps for point in runs[0] if point.steps <= common])
        success = np.array([success_at(steps, run) for run in runs])  # [runs, points]
        (line,) = axis.plot(steps / 1e6, success.mean(axis=0), label=label)
        axis.fill_between(steps / 1e6, success.min(axis=0), success.max(axis=0), color=line.get_color(), alpha=0.15)
    axis.set(
        title=title, xlabel="environment steps (millions)", ylabel=f"success, last {EPISODES} episodes", ylim=(0, 1)
    )
    axis.grid(alpha=0.3)
    if legend:
        axis.legend(frameon=False)


def success_at(steps: NDArray[Any], run: Sequence[Point]) -> NDArray[Any]:
    """The run's success at these steps; runs that log by the clock have points of their own."""
    return np.interp(steps, [point.steps for point in run], [point.success for point in run])


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure)
    figure.savefig(path, dpi=110)


def markdown_table(panels: Mapping[str, Mapping[str, Sequence[Sequence[Point]]]]) -> str:
    """Final success with its interval, and the steps to 0.8, for every method and world."""
    methods = list(dict.fromkeys(method for panel in panels.values() for method in panel))
    lines = ["| method | " + " | ".join(panels) + " |", "|---|" + "---|" * len(panels)]
    for method in methods:
        cells = [_cell(panel[method]) if method in panel else "not run" for panel in panels.values()]
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(runs: Sequence[Sequence[Point]]) -> str:
    final = [run[-1].success for run in runs]
    low, high = bootstrap(final)
    spread = f"[{low:.2f}, {high:.2f}]" if len(final) >= 3 else "too few seeds for an interval"
    reached = sorted(steps for run in runs if (steps := steps_to(run)) is not None)
    when = f"; 0.8 after {', '.join(f'{steps / 1e6:.2f}M' for steps in reached)}" if reached else ""
    return f"{np.mean(final):.2f} {spread} (n={len(final)}){when}"
