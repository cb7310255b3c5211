"""Writes docs/reproduction.md: for each claim of the paper the runs, and whether they agree."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from e3b_gym.files import atomic_write
from experiments.claims import Judged, Verdict, judge
from experiments.report_tables import markdown
from experiments.results import Result, compares, read_results
from experiments.studies import Study

HEAD = """# Reproduction: the paper claim by claim

Made by `make report FIGURE=all KEEP=1` from the run folders in [results/runs](../results/runs); do not edit. "Not run"
means that there is no run. A claim agrees or disagrees by the rules of `experiments/claims.py`: a difference where its
95 % interval excludes 0, "solves" from a mean of 0.5, "fails" up to 0.1. Runs are at scale `home` (one core, minutes to
hours) unless a section says otherwise; the paper's have 10 to 100 times the frames, five seeds and larger networks.
Two or three seeds are few: an interval over them is too narrow.
"""


def write_reproduction(studies: Sequence[Study], runs: Path, path: Path) -> None:
    """Writes the page from the folders in `runs`; for each study the largest scale that was run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = reproduction_page(studies, runs)
    with atomic_write(path) as temporary:
        temporary.write_text(text)


def reproduction_page(studies: Sequence[Study], runs: Path) -> str:
    """The text of the page."""
    found = {study.name: _largest(study, runs) for study in studies}
    paper = [study for study in studies if study.of_paper]
    own = [study for study in studies if study not in paper and study.claims]
    parts = [HEAD, "## Summary\n\n" + _summary(paper, found), "## The paper's figures"]
    parts += [_section(study, *found[study.name]) for study in paper]
    parts.append("## Studies made for this library")
    parts += [_section(study, *found[study.name]) for study in own]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _largest(study: Study, runs: Path) -> tuple[str, list[Result]]:
    for scale in ("paper", "home"):
        if scale in study.scales and (results := read_results(study, scale, runs)):
            return scale, results
    return "", []


def _summary(studies: Sequence[Study], found: dict[str, tuple[str, list[Result]]]) -> str:
    rows = []
    for study in studies:
        scale, results = found[study.name]
        verdicts = [judge(study, claim, results).verdict for claim in study.claims]
        counts = [f"{verdicts.count(verdict)} {verdict.value}" for verdict in Verdict if verdict in verdicts]
        ran = f"{len(results)} runs, {scale}" if results else "not run"
        rows.append([f"[{study.name}](#{study.name})", study.source, ran, ", ".join(counts)])
    return markdown((["figure", "in the paper", "runs", "claims"], rows))


def _section(study: Study, scale: str, results: Sequence[Result]) -> str:
    judged: list[Judged] = [judge(study, claim, results) for claim in study.claims]
    rows = [[one.claim.text, one.evidence, one.verdict.value] for one in judged]
    parts = [f"### {study.name}", f"{study.title} ({study.source}). {study.shows} {_note(study)}"]
    parts.append(_ran(study, scale, results))
    if rows:
        parts.append(markdown((["claim", "our runs", ""], rows)))
    return "\n\n".join(part.strip() for part in parts if part.strip())


def _note(study: Study) -> str:
    return study.note.replace("](", f"](../results/{study.name}/")


def _ran(study: Study, scale: str, results: Sequence[Result]) -> str:
    """The part of the plan that was run, and the rest."""
    if not results:
        plan = "home" if "home" in study.scales else "paper"
        return f"Not run. To run it: `make reproduce FIGURE={study.name} SCALE={plan}` ({len(study.runs(plan))} runs)."
    planned = study.runs(scale)
    tasks = {str(result.run.task) for result in results}
    there = {result.run.folder for result in results}
    further = len(there.difference(run.folder for run in planned))
    text = f"{len(results) - further} of {len(planned)} runs at scale {scale}, {len(tasks)} of {len(study.tasks)} tasks"
    text += f", and {further} with further seeds: " if further else ": "
    text += f"[page](../results/{study.name}/README.md)." if compares(results) else "nothing to compare yet."
    left: dict[str, list[str]] = {}
    for run in planned:
        if run.folder not in there:
            left.setdefault(study.labels[run.method.name], []).append(f"{run.task.short} seed {run.seed}")
    if left:
        text += " Not run: " + "; ".join(f"{label} ({len(names)} runs)" for label, names in left.items()) + "."
    return text
