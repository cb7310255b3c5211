"""The pictures of `experiments.coverage`: bars of coverage, and the revealed part of homes, as in the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from experiments.progress import short

HIDDEN, REVEALED = "#c9c5be", "#f3c98b"
AREAS = ListedColormap(["white", HIDDEN, REVEALED])  # white: not navigable
LEARNED, RANDOM = "#3f8f93", "#b9b5ae"
INTERVAL = "#444444"
PATH, START, END = "#1b5fc1", "#2f9e44", "#c22f4b"


@dataclass(frozen=True)
class Sight:
    """The part of a home that an episode revealed.

    Attributes:
        home: its name.
        areas: uint8 [height, width] seen from above: 0 not navigable, 1 navigable, 2 revealed.
        path: [steps + 1, 2], where the agent was, in rows and columns of `areas`.
        coverage: revealed area as a share of the navigable one.
    """

    home: str
    areas: NDArray[np.uint8]
    path: NDArray[np.float64]
    coverage: float


def draw_bars(report: Mapping[str, Any], path: Path) -> None:
    """Mean coverage of every agent with its 95 % interval, the best first."""
    agents = sorted(report["agents"], key=lambda agent: -agent["coverage"]["mean"])
    means = np.array([agent["coverage"]["mean"] for agent in agents])
    ends = np.array([[agent["coverage"]["low"], agent["coverage"]["high"]] for agent in agents])  # [agents, 2]
    figure = Figure(figsize=(max(7.2, 1.6 + 1.1 * len(agents)), 4.6), layout="constrained")
    axis = figure.subplots()
    colours = [LEARNED if agent["frames"] else RANDOM for agent in agents]
    errors = np.abs(ends - means[:, None]).T.tolist()  # matplotlib warns of an array [2, 1]
    axis.bar(range(len(agents)), means, yerr=errors, capsize=4, color=colours, ecolor=INTERVAL)
    for place, (mean, top) in enumerate(zip(means, ends[:, 1], strict=True)):
        axis.annotate(f"{mean:.1%}", (place, top), (0, 4), textcoords="offset points", ha="center")
    labels = [agent["agent"].replace(", ", ",\n") for agent in agents]
    axis.set_xticks(range(len(agents)), labels)
    axis.set(ylabel=f"coverage after {report['max_steps']} steps", ylim=(0, 1.15 * float(ends.max()) + 0.01))
    axis.yaxis.set_major_formatter(PercentFormatter(1.0))
    homes = len({home for home, _, _ in agents[0]["played"]})
    axis.set_title(f"{report['env']}: {report['episodes']} episodes in {homes} homes of {report['split']}", fontsize=11)
    interval = Line2D([], [], color=INTERVAL, label="95 % interval")
    figure.legend(
        handles=[*bar_kinds(agents), interval], loc="outside lower center", ncols=3, frameon=False, fontsize=9
    )
    axis.grid(axis="y", alpha=0.3)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    _save(figure, path)


def bar_kinds(agents: Sequence[Mapping[str, Any]]) -> list[Patch]:
    """The colours of the kinds of agents that occur."""
    frames = sorted({agent["frames"] for agent in agents if agent["frames"]})
    trained = " to ".join(short(count) for count in dict.fromkeys(frames[:1] + frames[-1:]))
    kinds = {LEARNED: f"trained without reward, {trained} frames", RANDOM: "random actions"}
    there = {LEARNED if agent["frames"] else RANDOM for agent in agents}
    return [Patch(color=colour, label=label) for colour, label in kinds.items() if colour in there]


def draw_trajectories(sights: Mapping[str, Sequence[Sight]], path: Path) -> None:
    """Draws a row per episode (one home, one start) and a column per agent."""
    rows = max(len(column) for column in sights.values())
    if not rows:
        return
    first = next(iter(sights.values()))
    # A map is as wide as its panel; its coverage is printed below.
    heights = [2.6 * sight.areas.shape[0] / sight.areas.shape[1] + 0.35 for sight in first]
    figure = Figure(figsize=(2.6 * max(2, len(sights)), sum(heights) + 0.6), layout="constrained")
    axes = figure.subplots(rows, len(sights), squeeze=False, height_ratios=heights)
    for (title, column), cells in zip(sights.items(), axes.T, strict=True):
        cells[0].set_title(title, fontsize=11, weight="bold")
        for axis, sight in zip(cells, column, strict=True):
            _draw_sight(axis, sight)
    for axis, sight in zip(axes[:, 0], first, strict=True):
        axis.set_ylabel(sight.home.split("/")[-1], fontsize=9)
    figure.legend(
        handles=_meanings(), loc="outside lower center", ncols=5, frameon=False, fontsize=9, columnspacing=1.5
    )
    _save(figure, path)


def _meanings() -> list[Patch | Line2D]:
    """The legend of `draw_trajectories`."""
    return [
        Patch(color=REVEALED, label="revealed"),
        Patch(color=HIDDEN, label="not revealed"),
        Line2D([], [], color=PATH, label="path"),
        Line2D([], [], color=START, label="start", marker="o", linestyle="none"),
        Line2D([], [], color=END, label="end", marker="s", linestyle="none"),
    ]


def _draw_sight(axis: Any, sight: Sight) -> None:
    axis.imshow(sight.areas, cmap=AREAS, vmin=0, vmax=AREAS.N - 1, interpolation="nearest")
    rows, columns = sight.path.T
    axis.plot(columns, rows, color=PATH, linewidth=1.1)
    axis.plot(columns[0], rows[0], "o", color=START, markersize=6, markeredgecolor="white")
    axis.plot(columns[-1], rows[-1], "s", color=END, markersize=6, markeredgecolor="white")
    y, x = np.nonzero(sight.areas)
    axis.set(xlim=(x.min() - 4, x.max() + 4), ylim=(y.max() + 4, y.min() - 4), xticks=[], yticks=[])
    axis.set_xlabel(f"coverage {sight.coverage:.0%}", fontsize=9)


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure)
    figure.savefig(path, dpi=110)
