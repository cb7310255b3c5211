"""The trained agents that come with the repository.

make agents                                  lists them, with what was measured
make watch ENV=MiniHack-MultiRoom-N6-Lava-v0 plays one
make evaluate RUN=agents/trained/<id>        measures one again; every command that takes RUN= takes their folders
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agents.exported import TRAINED, is_exported, read_about
from e3b_gym.command import answer, read_options
from e3b_gym.errors import DamagedFileError
from experiments.results import COVERAGE, EVALUATION
from experiments.run_files import read_coverage, read_evaluation
from experiments.runs import RunFolder

MEASURES = ("success", "return")


def trained_agents() -> dict[str, RunFolder]:
    """The agents by the id of their environment."""
    folders = [RunFolder(nearby(path)) for path in sorted(TRAINED.glob("*")) if is_exported(path)]
    return {folder.path.name: folder for folder in folders}


def chosen_run(options: Mapping[str, str]) -> RunFolder:
    """The run of RUN=, or the trained agent of ENV=."""
    run, env = options.get("RUN"), options.get("ENV")
    if env is None:
        return RunFolder.existing(run)
    if run is not None:
        raise ValueError("RUN= and ENV= were both given; a run has its own environment, so leave out ENV=")
    agents = trained_agents()
    if env not in agents:
        raise ValueError(
            f"no trained agent for ENV={env} comes with the repository, only for {', '.join(agents) or 'none'}; "
            f"train one: make train ENV={env}"
        )
    return agents[env]


def measured(folder: RunFolder) -> tuple[str, dict[str, Any], int]:
    """Name of the measure, its mean with interval, and the episodes of an exported agent."""
    if (file := folder.path / COVERAGE).exists():
        found = read_coverage(file)
        return "coverage", found["agents"][0]["coverage"], found["episodes"]
    found = read_evaluation(file := folder.path / EVALUATION)
    name = next((name for name in MEASURES if name in found), None)
    if name is None:
        raise DamagedFileError(f"{file} has neither success nor return; remove it, and evaluate the agent again")
    return name, found[name], found["episodes"]


def row(folder: RunFolder) -> tuple[str, ...]:
    """The row of an agent in `make agents`."""
    settings, parts = folder.load()
    about = read_about(folder.path)
    name, value, episodes = measured(folder)
    size = sum(file.stat().st_size for file in folder.path.glob("*.npz"))
    return (
        folder.path.name,
        settings.title,
        f"{about['frames']:,}",
        "{} {mean:.3f} [{low:.3f}, {high:.3f}], {} episodes".format(name, episodes, **value),
        f"{size / 1e6:.1f} MB",
        str(parts[-1]["commit"]) if parts else "unknown",
    )


def table(rows: list[tuple[str, ...]]) -> str:
    """Formats rows as columns that are as wide as necessary."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Lists the agents; returns the exit code."""
    return answer(arguments, __doc__, _run, needs_options=False)


def _run(given: list[str]) -> int:
    read_options(given)  # there are none
    heads = ("environment", "agent", "frames", "in unseen environments (95 % interval)", "size", "trained at")
    print(table([heads, *map(row, trained_agents().values())]))
    print("\nto see one play: make watch ENV=<environment>")
    return 0


def nearby(path: Path) -> Path:
    """Returns the path relative to the working directory if it is inside, as a user would write it."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else Path(relative)


if __name__ == "__main__":
    sys.exit(main())
