"""The diagnosis as a picture: bonus, value and policy over the steps of an episode, and the findings next to them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from e3b_gym.diagnosis import measures
from e3b_gym.diagnosis.episodes import Floats

if TYPE_CHECKING:
    from e3b_gym.diagnosis.report import Diagnosis

OK, PROBLEM = "#2a7d4f", "#b3392f"
MOST_POINTS = 4000


def draw(diagnosis: Diagnosis, path: Path) -> None:
    """Writes the picture as PNG."""
    figure = Figure(figsize=(13, 7.5), layout="constrained")
    figure.suptitle(f"{diagnosis.title}\n{diagnosis.conclusion()}", fontsize=10, wrap=True)
    ((bonus, value), (policy, text)) = figure.subplots(2, 2)
    _draw_bonus(bonus, diagnosis)
    _draw_value(value, diagnosis)
    _draw_policy(policy, diagnosis)
    _draw_findings(text, diagnosis)
    FigureCanvasAgg(figure)
    figure.savefig(path, dpi=110, format="png")


def _draw_bonus(axis: Any, diagnosis: Diagnosis) -> None:
    """The bonus step by step: median and range over the episodes."""
    rows = _padded([np.where(e.valid, e.intrinsic, np.nan) for e in diagnosis.episodes])  # [episodes, T]
    seen = ~np.isnan(rows).all(axis=0)
    steps, rows = 1 + np.flatnonzero(seen), rows[:, seen]
    low, middle, high = np.nanquantile(rows, [0.1, 0.5, 0.9], axis=0) if seen.any() else np.empty((3, 0))
    axis.fill_between(steps, low, high, alpha=0.25, label="10 to 90 % of episodes")
    axis.plot(steps, middle, label="median")
    if (rows > 0).any():
        axis.set_yscale("log")
    goal = measures.goal(diagnosis.episodes, diagnosis.setup)
    if goal is not None:
        axis.axhline(goal, color="black", linewidth=0.8, linestyle="--", label="goal")
    axis.set(title="bonus as the agent gets it", xlabel="step of the episode", ylabel="beta b / sigma")
    axis.legend(frameon=False, fontsize=8)


def _draw_value(axis: Any, diagnosis: Diagnosis) -> None:
    """Predicted value against the return that followed."""
    axis.set(title="value against return", xlabel="value", ylabel="discounted return")
    given = [episode for episode in diagnosis.episodes if episode.values is not None]
    if not given:
        _say(axis, "this model has no value function")
        return
    values = np.concatenate([episode.values for episode in given if episode.values is not None])
    returns = np.concatenate([episode.returns(diagnosis.setup.gammas) for episode in given])
    every = max(1, len(values) // MOST_POINTS)
    for head in range(values.shape[1]):
        axis.scatter(values[::every, head], returns[::every, head], s=4, alpha=0.4, label=f"head {head}")
    ends = [min(values.min(), returns.min()), max(values.max(), returns.max())]
    axis.plot(ends, ends, color="black", linewidth=0.8)
    if values.shape[1] > 1:
        axis.legend(frameon=False, fontsize=8)


def _draw_policy(axis: Any, diagnosis: Diagnosis) -> None:
    """Mean probability of each action, and the share of states where it is improbable."""
    axis.set(title="actions")
    given = [episode.probabilities for episode in diagnosis.episodes if episode.probabilities is not None]
    if not given:
        _say(axis, "this model has no table of action probabilities")
        return
    p = np.concatenate(given)  # [steps, A]
    places = np.arange(p.shape[1])
    rare = (p < measures.IMPROBABLE).mean(axis=0)
    axis.bar(places - 0.2, p.mean(axis=0), 0.4, label="mean probability")
    axis.bar(places + 0.2, rare, 0.4, color=PROBLEM, label=f"share of states below {100 * measures.IMPROBABLE:g} %")
    names = diagnosis.setup.action_names
    if len(names) == len(places):
        axis.set_xticks(places, names, rotation=90 if len(names) > 8 else 30, fontsize=7)
    axis.set(ylim=(0, 1), xlabel="action")
    axis.legend(frameon=False, fontsize=8)


def _draw_findings(axis: Any, diagnosis: Diagnosis) -> None:
    axis.axis("off")
    lines = diagnosis.findings
    for row, finding in enumerate(lines):
        y = 1 - (row + 0.5) / max(len(lines), 12)
        colour = PROBLEM if finding.is_problem else OK if finding.verdict else "black"
        axis.text(0.0, y, finding.label, fontsize=8, color=colour, transform=axis.transAxes)
        axis.text(0.72, y, f"{finding.value:.3g}", fontsize=8, color=colour, transform=axis.transAxes)
        axis.text(0.86, y, finding.verdict, fontsize=8, color=colour, transform=axis.transAxes)


def _padded(rows: list[Floats]) -> Floats:
    """[rows, longest], NaN behind the end of each."""
    result = np.full((len(rows), max(len(row) for row in rows)), np.nan)
    for i, row in enumerate(rows):
        result[i, : len(row)] = row
    return result


def _say(axis: Any, text: str) -> None:
    axis.text(0.5, 0.5, text, ha="center", va="center", transform=axis.transAxes)
