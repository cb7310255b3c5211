"""Diagnosis: the findings of a run as one screen of text, as JSON and as a picture."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from e3b_gym.diagnosis import measures
from e3b_gym.diagnosis.episodes import Episode, Setup
from e3b_gym.diagnosis.findings import SOLVED, Bounds, Finding, find
from e3b_gym.files import atomic_write

WIDTH = 110
MOST_CAUSES = 4
"""Causes that the screen names; the JSON has all."""


@dataclass(frozen=True)
class Diagnosis:
    """Why a run does or does not explore. `print` shows it on one screen.

    Attributes:
        title: the run.
        endings: share of the episodes by how they ended.
        success: share of successes; None where the environment does not report success.
        length: median number of steps of an episode.
        findings: the numbers, in the order in which one explains the next.
        episodes: the episodes that they were computed from.
        setup: what the run was trained with.
    """

    title: str
    endings: dict[str, float]
    success: float | None
    length: float
    findings: list[Finding]
    episodes: Sequence[Episode] = field(repr=False)
    setup: Setup = field(repr=False)

    @classmethod
    def of(cls, episodes: Sequence[Episode], setup: Setup) -> Diagnosis:
        """The diagnosis of recorded episodes."""
        findings = find(episodes, setup)
        length = float(np.median([len(episode) for episode in episodes]))
        rates = measures.endings(episodes), measures.success_rate(episodes)
        return cls(setup.title, *rates, length, findings, episodes, setup)

    @property
    def problems(self) -> list[Finding]:
        """The findings that are not healthy; the first is the likely cause of the others."""
        return [finding for finding in self.findings if finding.is_problem]

    def __getitem__(self, name: str) -> Finding:
        """The finding of that name."""
        return next(finding for finding in self.findings if finding.name == name)

    def __contains__(self, name: str) -> bool:
        return any(finding.name == name for finding in self.findings)

    def conclusion(self) -> str:
        """One line."""
        if not self.setup.has_bonus:
            return "There is no exploration bonus (method none), so only the environment's reward guides the agent."
        solved = self.success is not None and self.success >= SOLVED
        if not self.problems:
            return "The agent solves the task." if solved else "Every number is healthy: train for longer."
        start = "The agent solves the task; still worth a look:" if solved else "Likely cause:"
        return f"{start} {self.problems[0].cause}."

    def __str__(self) -> str:
        ends = ", ".join(f"{name} {share:.0%}" for name, share in self.endings.items())
        lines = [
            self.title,
            f"{len(self.episodes)} episodes: {ends}; median length {self.length:.0f} steps",
            "",
            f"{'':47}{'value':>9}  {'healthy':14}verdict",
            *(_line(finding) for finding in self.findings),
            "",
            *textwrap.wrap(self.conclusion(), WIDTH),
        ]
        for number, finding in enumerate(self.problems[:MOST_CAUSES], start=1):
            text = f"{number}. {finding.label} is {finding.verdict}: {finding.change}"
            if number > 1:
                text += f" ({finding.cause})"
            lines += textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="     ")
        return "\n".join([*lines, "Each line is explained in docs/doctor.md."])

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "title": self.title,
            "conclusion": self.conclusion(),
            "episodes": len(self.episodes),
            "endings": self.endings,
            "success": self.success,
            "length": self.length,
            "findings": [dataclasses.asdict(finding) for finding in self.findings],
            "problems": [finding.name for finding in self.problems],
            "options": {
                **dict(self.setup.options),
                "beta": self.setup.beta,
                "ridge": self.setup.ridge,
                "extrinsic": self.setup.extrinsic,
                "penalties": self.setup.penalties,
                "normaliser": self.setup.normaliser,
            },
        }

    def save(self, path: str | Path) -> tuple[Path, Path]:
        """Writes `<path>.json` and `<path>.png`; returns both."""
        from e3b_gym.diagnosis.picture import draw

        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        json_file, png_file = target.with_name(target.name + ".json"), target.with_name(target.name + ".png")
        with atomic_write(json_file) as temporary:
            temporary.write_text(json.dumps(self.as_dict(), indent=1, allow_nan=False) + "\n")
        with atomic_write(png_file) as temporary:
            draw(self, temporary)
        return json_file, png_file


def _line(finding: Finding) -> str:
    text = f"{finding.label:47.47}{finding.value:>9.3g}  {_range(finding.healthy):14}{finding.verdict:5}"
    return f"{text} {finding.detail}".rstrip()[:WIDTH]


def _range(bounds: Bounds) -> str:
    low, high = bounds
    if low is None:
        return "" if high is None else f"<= {high:g}"
    return f">= {low:g}" if high is None else f"{low:g} to {high:g}"
