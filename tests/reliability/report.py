"""The table of results/reliability/README.md, made from the JSON files next to it.

    python -m tests.reliability.report [OUT=results/reliability]

Only the part between the two marks is written; other sections of the page stay as they are.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

from e3b_gym.command import answer, read_options

START, END = "<!-- faults: made by tests.reliability.report -->", "<!-- end of faults -->"
WHAT = {
    "fuzz": "malformed command lines, config files, curves, checkpoints",
    "kills": "`kill -9` at a random moment, then `RESUME=1`; at the end each of the three runs trains to its end",
    "actors": "actors of one run killed or stopped (SIGSTOP)",
    "writes": "no space, read-only or EIO at each write of a run, once and from then on",
    "soak": "training with continuous kills and actor failures",
}


def row(name: str, found: dict[str, Any]) -> str:
    """One line of the table."""
    if name == "fuzz":
        tried, lost = sum(found["outcomes"].values()), len(found["failures"])
        notes = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(found["outcomes"].items()))
        command = f"python -m tests.reliability.fuzz CASES={found['cases']} SEED={found['seed']}"
    else:
        tried, lost = found["tried"], found["tried"] - found["survived"]
        shown = ("killed", "stopped", "frames", "steps", "runs killed", "actors killed", "actors stopped", "minutes")
        shown += ("seconds lost at most", "median seconds lost", "checkpoint interval", "continued", "refused")
        notes = ", ".join(f"{key} {found[key]:,}" for key in shown if key in found)
        if found.get("planned", 0) > tried:
            notes += f", stopped before the {found['planned']:,} planned"
        command = found["provenance"]["command"]
    commit = found["provenance"]["commit"]
    return f"| {WHAT[name]} | {tried:,} | {tried - lost:,} | {lost:,} | {notes} | `{command}` | {commit} |"


def table(folder: Path) -> str:
    """The table of all parts that have a result."""
    rows = [row(name, json.loads(file.read_text())) for name in WHAT if (file := folder / f"{name}.json").exists()]
    head = "| what | tried | survived | lost | | command | commit |\n|---|---|---|---|---|---|---|\n"
    return head + "\n".join(rows)


def write(folder: Path) -> int:
    """Writes the table into the page of the folder."""
    page = folder / "README.md"
    before, _, rest = page.read_text().partition(START)
    after = rest.partition(END)[2]
    page.write_text(f"{before}{START}\n{table(folder)}\n{END}{after}")
    return 0


def main(arguments: list[str] | None = None) -> int:
    options = {"OUT": (Path, Path("results/reliability"))}
    return answer(
        arguments,
        __doc__ or "",
        lambda given: partial(write, read_options(given, **options).out),
        needs_options=False,
    )


if __name__ == "__main__":
    sys.exit(main())
