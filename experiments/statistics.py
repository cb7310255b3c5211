"""Aggregates over runs and tasks by rliable (Agarwal et al. 2021): estimates with stratified bootstrap intervals.

Scores are matrices (num_runs x num_tasks) by method; runs are seeds. Intervals resample runs within each task, 95 %,
seeded, so that a report is reproducible. With one run there is nothing to resample, and no interval is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.results import Result

REPEATS, CURVE_REPEATS = 2000, 200
"""Draws of the bootstrap, for a number and for each point of a curve."""
METRICS = ("IQM", "mean", "median", "optimality gap")
FEW_SEEDS = 5
"""The paper's number; below it a report says that the seeds are few."""

Scores = Mapping[str, NDArray[Any]]
"""(num_runs x num_tasks) by method."""


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval; None where there was one run only."""

    value: float
    interval: tuple[float, float] | None

    def __str__(self) -> str:
        if self.interval is None:
            return f"{self.value:.2f}"
        return f"{self.value:.2f} [{self.interval[0]:.2f}, {self.interval[1]:.2f}]"


def cells(results: Sequence[Result]) -> dict[str, dict[str, list[float]]]:
    """method -> task -> scores of its seeds."""
    found: dict[str, dict[str, list[float]]] = {}
    for result in results:
        if result.score is not None:
            found.setdefault(result.run.method.name, {}).setdefault(str(result.run.task), []).append(result.score)
    return found


def complete(results: Sequence[Result], tasks: Sequence[str], methods: Sequence[str]) -> tuple[Scores, list[str]]:
    """Matrices of the methods that were run on all tasks which at least two methods have, and these tasks.

    A task with more seeds than another counts with as many as the other has, so that the tasks weigh the same.
    """
    found = cells(results)
    shared = [task for task in tasks if sum(task in found.get(method, {}) for method in methods) >= 2]
    whole = [method for method in methods if shared and set(shared) <= set(found.get(method, {}))]
    return {method: matrix(found[method], shared) for method in whole}, shared


def matrix(of_method: Mapping[str, Sequence[float]], tasks: Sequence[str]) -> NDArray[Any]:
    """(num_runs x num_tasks) of one method."""
    runs = min(len(of_method[task]) for task in tasks)
    return np.array([of_method[task][:runs] for task in tasks], dtype=float).T


def aggregates(scores: Scores) -> dict[str, dict[str, Estimate]]:
    """method -> metric -> estimate, for METRICS."""
    from rliable import metrics  # type: ignore[import-untyped]

    functions = (
        metrics.aggregate_iqm,
        metrics.aggregate_mean,
        metrics.aggregate_median,
        metrics.aggregate_optimality_gap,
    )
    found = _estimates(scores, lambda values: np.array([function(values) for function in functions]), REPEATS)
    return {method: dict(zip(METRICS, numbers, strict=True)) for method, numbers in found.items()}


def improvement(scores: Scores, first: str) -> dict[str, Estimate]:
    """Probability that a run of method `first` scores higher than one of each other method, on average over tasks."""
    from rliable import metrics

    pairs = {other: (scores[first], scores[other]) for other in scores if other != first}
    found = _estimates(pairs, metrics.probability_of_improvement, CURVE_REPEATS)  # a U test for each draw and task
    return {other: numbers[0] for other, numbers in found.items()}


def difference(one: NDArray[Any], other: NDArray[Any]) -> Estimate:
    """The difference of the mean scores of two methods, (num_runs x num_tasks) each."""
    return _estimates({"": (one, other)}, lambda x, y: x.mean() - y.mean(), REPEATS)[""][0]


def profiles(scores: Scores, thresholds: NDArray[Any]) -> dict[str, list[Estimate]]:
    """method -> share of runs that score above each threshold: the performance profile."""
    from rliable.library import score_distributions  # type: ignore[import-untyped]

    return _estimates(scores, lambda values: score_distributions(values, thresholds), CURVE_REPEATS)


def efficiency(results: Sequence[Result], scores: Scores, tasks: Sequence[str], points: int = 30) -> dict[str, Any]:
    """IQM of the success of the training episodes by the share of each task's frames; 0 before a run's first value.

    Returns:
        {"share": [points], "curves": method -> list of estimates}, for the methods of `scores`.
    """
    from rliable import metrics

    share = np.linspace(0, 1, points)
    found: dict[str, dict[str, list[Any]]] = {}
    for result in results:
        if len(curve := result.curve["frames"]):
            success = np.interp(share * curve[-1], curve, np.nan_to_num(result.curve["success"]), left=0.0)
            found.setdefault(result.run.method.name, {}).setdefault(str(result.run.task), []).append(success)
    curves = {}
    for method in scores:
        if set(tasks) <= set(found.get(method, {})):
            runs = min(len(found[method][task]) for task in tasks)
            curves[method] = np.array([found[method][task][:runs] for task in tasks]).swapaxes(0, 1)

    def iqm(values: NDArray[Any]) -> NDArray[Any]:
        return np.array([metrics.aggregate_iqm(values[..., point]) for point in range(points)])

    return {"share": share, "curves": _estimates(curves, iqm, CURVE_REPEATS)}


def _estimates(
    scores: Mapping[str, NDArray[Any] | tuple[NDArray[Any], ...]], function: Callable[..., Any], repeats: int
) -> dict[str, list[Estimate]]:
    """Applies `function` to the matrices of each entry; returns the numbers with their intervals."""
    from rliable.library import get_interval_estimates

    found = {}
    for name, values in scores.items():
        matrices = values if isinstance(values, tuple) else (values,)

        def numbers(*parts: NDArray[Any]) -> NDArray[Any]:
            return np.asarray(np.atleast_1d(function(*parts)), dtype=float)

        points = numbers(*matrices)
        if min(len(part) for part in matrices) < 2:
            found[name] = [Estimate(float(point), None) for point in points]
            continue
        entry = {name: list(matrices) if len(matrices) > 1 else matrices[0]}
        with _seeded():
            _, intervals = get_interval_estimates(entry, numbers, reps=repeats)
        found[name] = [
            Estimate(float(point), (float(low), float(high)))
            for point, low, high in zip(points, *intervals[name], strict=True)
        ]
    return found


@contextmanager
def _seeded() -> Iterator[None]:
    """Seeds NumPy's global state, from which rliable draws even with random_state, and restores it afterwards."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(0)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002
