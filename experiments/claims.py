"""Compares the claims of the paper with the runs, by the same rules for every claim.

above   agrees where the 95 % interval of the difference of means lies above 0, disagrees where it lies below
same    agrees where that interval holds 0, disagrees where it does not
solves  agrees with a mean score of at least 0.5, disagrees with at most 0.1
fails   agrees with a mean score of at most 0.1, disagrees with at least 0.5

Anything in between is undecided, and so is a difference between single seeds. Means are over the tasks that were run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from experiments.results import Result
from experiments.statistics import FEW_SEEDS, Estimate, cells, difference, matrix
from experiments.studies import Claim, Study

SOLVED, FAILED = 0.5, 0.1


class Verdict(StrEnum):
    """The verdict of the runs on a claim."""

    AGREES = "agrees"
    DISAGREES = "disagrees"
    PARTLY = "agrees in part"
    UNDECIDED = "undecided"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Judged:
    """A claim with its verdict and the numbers behind it."""

    claim: Claim
    verdict: Verdict
    evidence: str


def judge(study: Study, claim: Claim, results: Sequence[Result]) -> Judged:
    """The verdict on a claim, with the numbers behind it."""
    found = cells(results)
    group = study.group(claim.group)
    parts: list[tuple[Verdict, str]] = []
    for method in claim.methods:
        for other in claim.others or ("",):
            against = found.get(other, {}) if other else found.get(method, {})
            tasks = [task for task in group if task in found.get(method, {}) and task in against]
            name = study.labels[method] + (f" minus {study.labels[other]}" if other else "")
            if not tasks:
                parts.append((Verdict.NOT_RUN, f"{name}: not run"))
                continue
            one, two = matrix(found[method], tasks), matrix(against, tasks)
            verdict, text = _compare(claim, difference(one, two)) if other else _level(claim, float(one.mean()))
            size = f"{_tasks(tasks, group)}{_seeds(min(len(one), len(two)))}"
            parts.append((verdict, f"{name}: {text} ({size})"))
    return Judged(claim, _overall([verdict for verdict, _ in parts]), "; ".join(text for _, text in parts))


def _compare(claim: Claim, gap: Estimate) -> tuple[Verdict, str]:
    text = f"{gap.value:+.2f}"
    if gap.interval is None:
        return Verdict.UNDECIDED, text
    low, high = gap.interval
    text += f" [{low:+.2f}, {high:+.2f}]"
    if claim.kind == "same":
        return (Verdict.AGREES if low <= 0 <= high else Verdict.DISAGREES), text
    return (Verdict.AGREES if low > 0 else Verdict.DISAGREES if high < 0 else Verdict.UNDECIDED), text


def _level(claim: Claim, mean: float) -> tuple[Verdict, str]:
    text = f"mean {mean:.2f}"
    if FAILED < mean < SOLVED:
        return Verdict.UNDECIDED, text
    return (Verdict.AGREES if (claim.kind == "solves") == (mean >= SOLVED) else Verdict.DISAGREES), text


def _overall(verdicts: Sequence[Verdict]) -> Verdict:
    there = set(verdicts)
    if len(there) == 1:
        return verdicts[0]
    if Verdict.DISAGREES in there or Verdict.NOT_RUN in there:
        return Verdict.PARTLY if Verdict.AGREES in there else Verdict.UNDECIDED
    return Verdict.UNDECIDED


def _tasks(tasks: Sequence[str], group: Sequence[str]) -> str:
    return "" if len(group) == 1 else f"{len(tasks)} of {len(group)} tasks, "


def _seeds(seeds: int) -> str:
    return f"{seeds} seed{'s' * (seeds > 1)}{', few' * (seeds < FEW_SEEDS)}"
