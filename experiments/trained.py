"""The trained agents that come with the repository.

make agents                                  lists them, with what was measured
make watch ENV=MiniHack-MultiRoom-N6-Lava-v0 plays one
make evaluate RUN=agents/trained/<id>        measures one again; every command that takes RUN= takes their folders
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agents.exported import TRAINED, is_exported
from e3b_gym.command import refuse
from experiments.runs import RunFolder

MEASURES = ("success", "coverage", "return")


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
    if (file := folder.path / "coverage.json").exists():
        found = json.loads(file.read_text())
        return "coverage", found["agents"][0]["coverage"], found["episodes"]
    found = json.loads((folder.path / "evaluation-latest-seed0.json").read_text())
    name = next(name for name in MEASURES if name in found)
    return name, found[name], found["episodes"]


def row(folder: RunFolder) -> tuple[str, ...]:
    """What `make agents` prints about an agent."""
    settings, parts = folder.load()
    about = json.loads((folder.path / "agent.json").read_text())
    name, value, episodes = measured(folder)
    size = sum(file.stat().st_size for file in folder.path.glob("*.npz"))
    return (
        folder.path.name,
        settings.title,
        f"{about['frames']:,}",
        "{} {mean:.3f} [{low:.3f}, {high:.3f}], {} episodes".format(name, episodes, **value),
        f"{size / 1e6:.1f} MB",
        parts[-1]["commit"],
    )


def table(rows: list[tuple[str, ...]]) -> str:
    """Columns of the width that they need."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join(lines)


def main() -> int:
    """Lists the agents; returns the exit code."""
    try:
        agents = trained_agents()
        heads = ("environment", "agent", "frames", "in unseen environments (95 % interval)", "size", "trained at")
        print(table([heads, *map(row, agents.values())]))
        print("\nto see one play: make watch ENV=<environment>")
    except ValueError as error:
        return refuse(error)
    return 0


def nearby(path: Path) -> Path:
    """Relative to the working directory where it lies below, as a user would write it."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else Path(relative)


if __name__ == "__main__":
    sys.exit(main())
