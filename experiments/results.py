"""Reads a run's folder: settings, curve, evaluation. Only files are read, so that old runs stay readable.

config.yaml        settings and where they come from
progress.csv       the curve
evaluation-*.json  success and return in new environments
coverage.json      share of new homes that was revealed (Habitat)
"""

from __future__ import annotations

import glob
import math
import shutil
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from e3b_gym.errors import DamagedFileError
from experiments.curve import WINDOW, CurveWarning, read_curve
from experiments.run_files import check_parts, read_config, read_coverage, read_evaluation
from experiments.studies import Run, Study

CONFIG, CURVE, EVALUATION, COVERAGE = "config.yaml", "progress.csv", "evaluation-latest-seed0.json", "coverage.json"
KEPT = (CONFIG, CURVE, EVALUATION, COVERAGE)
FILMS = ("*.gif", "*.mp4", "trajectories.png")


@dataclass(frozen=True)
class Progress:
    """The progress of a run, by the last row of its curve."""

    frames: int = 0
    seconds: float = 0.0
    fps: float = math.nan
    success: float = math.nan
    ret: float = math.nan


def read_rows(folder: Path) -> list[dict[str, str]]:
    """The rows of progress.csv; none where there is no file yet."""
    path = folder / CURVE
    if not path.exists():
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CurveWarning)  # a row may be half written while a run trains
        return read_curve(path)[1]


def progress_of(rows: Sequence[Mapping[str, str]]) -> Progress:
    """Progress of a run after these rows."""
    if not rows:
        return Progress()
    last = rows[-1]
    return Progress(
        int(float(last["frames"])),
        _number(last.get("seconds")),
        _number(last.get("fps")),
        _number(last.get("success")),
        _number(last.get("return")),
    )


@dataclass(frozen=True)
class Result:
    """A run that was made."""

    run: Run
    folder: Path

    @cached_property
    def content(self) -> dict[str, Any]:
        """The settings in config.yaml."""
        path = self.folder / CONFIG
        content = read_config(path)
        check_parts(path, content.get("provenance"))
        if not isinstance(content.get("config"), dict):
            raise DamagedFileError(f"{path} has no settings; restore it")
        return content

    @cached_property
    def curve(self) -> dict[str, NDArray[Any]]:
        """frames, seconds and success, [points] each, to the run's budget.

        The first episodes to end are short ones, whose success is not that of all: where a run has `WINDOW` episodes,
        the curve starts with them.
        """
        rows = [row for row in read_rows(self.folder) if row.get("success") or row.get("return")]
        full = [row for row in rows if _number(row.get("episodes")) >= WINDOW]
        rows = full or rows
        columns = {
            name: np.array([_number(row.get(name)) for row in rows]) for name in ("frames", "seconds", "success")
        }
        if self.run.frames is not None:  # a run that was continued counts up to the first row at its budget
            inside = 1 + int(np.searchsorted(columns["frames"], self.run.frames))
            columns = {name: values[:inside] for name, values in columns.items()}
        return columns

    @property
    def frames(self) -> int:
        """Frames that the score was measured after."""
        if self.run.measure == "success" and self._evaluation:
            return int(self._evaluation["frames"])
        return int(self.curve["frames"][-1]) if len(self.curve["frames"]) else 0

    @property
    def hours(self) -> float:
        """Of training."""
        return float(self.curve["seconds"][-1]) / 3600 if len(self.curve["seconds"]) else 0.0

    @property
    def commits(self) -> list[str]:
        """Of the parts of the run, in order."""
        return list(dict.fromkeys(str(part["commit"]) for part in self.content["provenance"]))

    @cached_property
    def _evaluation(self) -> dict[str, Any]:
        path = self.folder / EVALUATION
        return read_evaluation(path) if path.exists() else {}

    @cached_property
    def _coverage(self) -> dict[str, Any]:
        path = self.folder / COVERAGE
        if not path.exists():
            return {}
        method, agents = self.run.method.method, read_coverage(path)["agents"]
        found = next((agent for agent in agents if agent.get("method", agent["agent"]) == method), None)
        if found is None:
            raise DamagedFileError(f"{path} does not hold the run of {method} in its folder; measure it again")
        return dict(found)

    @cached_property
    def score(self) -> float | None:
        """By the study's measure; None where it was not measured."""
        if self.run.measure == "success":
            found = self._evaluation.get("success")
            return None if found is None else float(found["mean"])
        if self.run.measure == "coverage":
            return float(self._coverage["coverage"]["mean"]) if self._coverage else None
        if self.run.measure == "frames per second":
            last = progress_of(read_rows(self.folder))  # whether or not an episode has ended
            return last.frames / last.seconds if last.seconds > 0 else None
        success = self.curve["success"]
        return float(success[-1]) if len(success) else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of the score over episodes, where episodes were played for it."""
        found = {"success": self._evaluation.get("success"), "coverage": self._coverage.get("coverage")}
        part = found.get(self.run.measure)
        return None if part is None else (float(part["low"]), float(part["high"]))

    @property
    def episodes(self) -> int | None:
        """Behind the score, where episodes were played for it."""
        found = {"success": self._evaluation.get("episodes"), "coverage": len(self._coverage.get("played", ())) or None}
        return found.get(self.run.measure)

    def steps_to(self, success: float = 0.8) -> int | None:
        """Frames until the success of the training episodes first reached `success`; None if it did not."""
        reached = np.flatnonzero(self.curve["success"] >= success)
        return int(self.curve["frames"][reached[0]]) if len(reached) else None

    @property
    def films(self) -> list[Path]:
        return sorted(path for pattern in FILMS for path in self.folder.glob(pattern))


def is_finished(run: Run, folder: Path, frames: int) -> bool:
    """Whether a run has all its frames and its measurement."""
    if not (folder / CONFIG).exists():
        return False
    if run.learns and progress_of(read_rows(folder)).frames < frames:
        return False
    return run.measure == "frames per second" or (folder / measured_file(run)).exists()


def measured_file(run: Run) -> str:
    """The file that the measurement of a run leaves."""
    return COVERAGE if run.measure == "coverage" else EVALUATION


def read_results(study: Study, scale: str, root: Path) -> list[Result]:
    """The runs of a study whose folders hold a score, by task, method and seed."""
    runs = with_further_seeds(study, scale, root)
    results = [Result(run, root / run.folder) for run in runs if (root / run.folder / CONFIG).exists()]
    places = [*map(str, study.tasks)], [method.name for method in study.methods]
    return sorted(
        (result for result in results if result.content and result.score is not None),  # both are read before drawing
        key=lambda r: (places[0].index(str(r.run.task)), places[1].index(r.run.method.name), r.run.seed),
    )


def with_further_seeds(study: Study, scale: str, root: Path) -> list[Run]:
    """The runs of a study, and those with later seeds that the folder holds, such as of `make reproduce SEEDS=5`."""
    planned = study.runs(scale)
    size = study.scales[scale]
    further = [
        replace(run, seed=seed)
        for run in planned
        if run.learns and run.seed == size.first_seed
        for seed in _seeds_in(root / run.folder)
        if seed >= size.first_seed + size.seeds
    ]
    return planned + further


def _seeds_in(folder: Path) -> list[int]:
    """The seeds for which there is a folder next to this one, `<method>-seed<k>`."""
    name = folder.name.rpartition("-seed")[0]
    numbers = (path.name.rpartition("-seed")[2] for path in folder.parent.glob(f"{glob.escape(name)}-seed*"))
    return sorted(int(number) for number in numbers if number.isdecimal())


def compares(results: Sequence[Result]) -> bool:
    """Whether at least two methods were run, so that there is something to draw."""
    return len({result.run.method.name for result in results}) > 1


def keep(runs: Sequence[Run], root: Path, target: Path) -> list[Path]:
    """Copies settings, curve, measurement and films of measured runs, without checkpoints; returns the new folders."""
    kept = []
    for run in runs:
        result, to = Result(run, root / run.folder), target / run.folder
        if not (result.folder / CONFIG).exists() or result.score is None:
            continue
        to.mkdir(parents=True, exist_ok=True)
        for source in [*(result.folder / name for name in KEPT), *result.films]:
            if source.exists():
                shutil.copyfile(source, to / source.name)
        kept.append(to)
    return kept


def _number(text: str | None) -> float:
    return float(text) if text else math.nan
