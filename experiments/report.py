"""Draws a figure from the folders of its runs: plots, tables and a page that needs no other file.

    make report FIGURE=aggregate SCALE=home

FIGURE=  a figure (`make reproduce` lists them), several with commas, or all   SCALE=  paper, home or smoke
RUNS=    folder of the runs; runs/reproduce by default                         OUT=    runs/report by default
KEEP=1   for maintainers: copy settings, curves and measurements of the runs to results/runs, draw from there into
         results/, and write docs/reproduction.md

Each figure gets a folder: index.html, README.md, and every plot as PNG and SVG with the CSV that is drawn.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from e3b_gym.command import answer
from experiments import plots
from experiments.catalogue import STUDIES, read_choice
from experiments.claims import Judged, judge
from experiments.command import folder
from experiments.reproduce import RUNS
from experiments.results import Result, compares, keep, read_results, with_further_seeds
from experiments.settings import is_set
from experiments.statistics import aggregates, complete, efficiency, improvement, profiles
from experiments.studies import Run, Study

OPTIONS = ("FIGURE", "SCALE", "RUNS", "OUT", "KEEP")
OUT, STORED, RESULTS, REPRODUCTION = "runs/report", Path("results/runs"), Path("results"), Path("docs/reproduction.md")
POINTS = 100
"""Number of points of a drawn curve."""
PLOTS = {"aggregate", "improvement", "scores", "curves", "efficiency", "profiles"}
"""Names of all plots that a report may have."""


@dataclass(frozen=True)
class Plot:
    """A picture in the folder of a report."""

    name: str
    caption: str


@dataclass(frozen=True)
class Report:
    """The content of the pages of a figure."""

    study: Study
    scale: str
    results: Sequence[Result]
    missing: Sequence[Run]
    judged: Sequence[Judged]
    plots: Sequence[Plot]
    out: Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit code."""
    return answer(arguments, __doc__, _run)


def _run(given: list[str]) -> int:
    from experiments.reproduction import write_reproduction

    options, studies, scale = read_choice("report", given, OPTIONS)
    studies = [study for study in studies if scale in study.scales] or studies
    runs, out = folder(options, "RUNS", RUNS), folder(options, "OUT", OUT)
    if is_set(options, "KEEP"):
        if "OUT" in options:
            raise ValueError("KEEP=1 writes to results/; leave out OUT=")
        for study in studies:
            keep(with_further_seeds(study, scale, runs), runs, STORED)
        runs, out = STORED, RESULTS
    write_reports(studies, scale, runs, out)
    if is_set(options, "KEEP"):
        write_reproduction(list(STUDIES.values()), STORED, REPRODUCTION)
        print(f"written: {REPRODUCTION}")
    return 0


def write_reports(studies: Sequence[Study], scale: str, runs: Path, out: Path) -> None:
    """A folder in `out` for each study that has runs of two methods; one study alone may have runs of one only."""
    from experiments.report_pages import write_pages

    for study in studies:
        results = read_results(study, scale, runs)
        if not results and len(studies) == 1:
            raise ValueError(
                f"{runs} holds no measured run of {study.name} at SCALE={scale}; "
                f"make reproduce FIGURE={study.name} SCALE={scale}"
            )
        if compares(results) or (results and len(studies) == 1):
            report = make_report(study, scale, runs, out / study.name)
            write_pages(report)
            counts = f"{len(report.results)} runs, {len(report.missing)} not run"
            print(f"{study.name}: {counts}: {report.out}/index.html", flush=True)


def make_report(study: Study, scale: str, runs: Path, out: Path) -> Report:
    """Reads the folders and draws the plots into `out`."""
    results = read_results(study, scale, runs)
    there = {result.run.folder for result in results}
    missing = [run for run in study.runs(scale) if run.folder not in there]
    judged = [judge(study, claim, results) for claim in study.claims]
    return Report(study, scale, results, missing, judged, draw_plots(study, results, out), out)


def draw_plots(study: Study, results: Sequence[Result], out: Path) -> list[Plot]:
    """Draws the plots that the runs allow."""
    drawn: list[Plot] = []

    def add(name: str, rows: plots.Rows, figure: Any, caption: str) -> None:
        if rows:
            drawn.append(Plot(plots.draw(rows, name, out, figure), caption))

    scores, tasks = complete(results, [str(task) for task in study.tasks], [method.name for method in study.methods])
    several = len(tasks) > 1 and len(scores) > 1
    if several:
        text = "Aggregates over tasks with 95 % stratified bootstrap intervals."
        add("aggregate", aggregate_rows(study, results), plots.aggregate_figure, text)
        first = study.methods[0].name
        if first in scores:
            text = f"Probability of improvement of {study.labels[first]}, on average over {len(tasks)} tasks."
            add("improvement", improvement_rows(study, scores, first), plots.improvement_figure, text)
    if study.measure in ("coverage", "frames per second") or len(tasks) <= 1:
        label = {"success": "success in new environments"}.get(study.measure, study.measure)
        text = f"{label.capitalize()}: mean over seeds, and each seed as a point."
        add("scores", score_rows(study, results), partial(plots.score_figure, ylabel=label), text)
    if study.measure in ("success", "training success"):
        text = "Success of the last 200 training episodes: mean and range over seeds."
        add("curves", curve_rows(study, results), plots.curves_figure, text)
        if several:
            draw = partial(plots.line_figure, x="share", xlabel="share of each task's frames", ylabel="IQM of success")
            text = f"Sample efficiency over {len(tasks)} tasks."
            add("efficiency", efficiency_rows(study, results, scores, tasks), draw, text)
            draw = partial(plots.line_figure, x="score", xlabel="score", ylabel="share of runs above the score")
            add("profiles", profile_rows(study, scores), draw, f"Performance profiles over {len(tasks)} tasks.")
    for name in PLOTS - {plot.name for plot in drawn}:  # of an earlier report, whose runs allowed more
        for kind in ("csv", "png", "svg"):
            (out / f"{name}.{kind}").unlink(missing_ok=True)
    return drawn


def aggregate_rows(study: Study, results: Sequence[Result]) -> plots.Rows:
    """group, tasks, method, runs, metric, value, low, high."""
    rows: plots.Rows = []
    for group, names in {f"all {len(study.tasks)} tasks": study.group(None), **study.groups}.items():
        scores, tasks = complete(results, names, [method.name for method in study.methods])
        title = f"{group} ({len(tasks)} run)" if len(tasks) < len(names) else group
        for method, metrics in aggregates(scores).items():
            size = {"tasks": len(tasks), "method": study.labels[method], "runs": len(scores[method])}
            for metric, estimate in metrics.items():
                rows.append({"group": title, **size, "metric": metric, **_numbers(estimate)})
    return rows


def improvement_rows(study: Study, scores: Mapping[str, Any], first: str) -> plots.Rows:
    """first, method, value, low, high."""
    found = improvement(scores, first)
    return [
        {"first": study.labels[first], "method": study.labels[method], **_numbers(estimate)}
        for method, estimate in found.items()
    ]


def score_rows(study: Study, results: Sequence[Result]) -> plots.Rows:
    """task, method, seed, score."""
    return [
        {
            "task": result.run.task.short,
            "method": study.labels[result.run.method.name],
            "seed": result.run.seed,
            "score": result.score,
        }
        for result in results
    ]


def curve_rows(study: Study, results: Sequence[Result]) -> plots.Rows:
    """task, method, seeds, frames, mean, low, high, at POINTS places where all seeds have values."""
    rows: plots.Rows = []
    for task in study.tasks:
        for method in study.methods:
            of_cell = [r for r in results if (r.run.task, r.run.method) == (task, method) and len(r.curve["frames"])]
            if not of_cell:
                continue
            last = min(r.curve["frames"][-1] for r in of_cell)
            frames = np.linspace(min(max(r.curve["frames"][0] for r in of_cell), last), last, POINTS)
            success = np.array(
                [np.interp(frames, r.curve["frames"], np.nan_to_num(r.curve["success"])) for r in of_cell]
            )
            head = {"task": task.short, "method": study.labels[method.name], "seeds": len(of_cell)}
            columns = zip(frames, success.mean(axis=0), success.min(axis=0), success.max(axis=0), strict=True)
            rows += [
                {**head, "frames": round(at), "mean": float(mean), "low": float(low), "high": float(high)}
                for at, mean, low, high in columns
            ]
    return rows


def efficiency_rows(study: Study, results: Sequence[Result], scores: Any, tasks: Sequence[str]) -> plots.Rows:
    """method, share, value, low, high."""
    found = efficiency(results, scores, tasks)
    return [
        {"method": study.labels[method], "share": float(share), **_numbers(estimate)}
        for method, estimates in found["curves"].items()
        for share, estimate in zip(found["share"], estimates, strict=True)
    ]


def profile_rows(study: Study, scores: Any) -> plots.Rows:
    """method, score, value, low, high."""
    thresholds = np.linspace(0, 0.99, 34)
    return [
        {"method": study.labels[method], "score": float(threshold), **_numbers(estimate)}
        for method, estimates in profiles(scores, thresholds).items()
        for threshold, estimate in zip(thresholds, estimates, strict=True)
    ]


def _numbers(estimate: Any) -> dict[str, Any]:
    low, high = ("", "") if estimate.interval is None else estimate.interval
    return {"value": estimate.value, "low": low, "high": high}


if __name__ == "__main__":
    sys.exit(main())
