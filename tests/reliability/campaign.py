"""The campaign of faults: kills, lost actors, failing disks, a soak. Long by default; `SHORT=1` is minutes.

    make campaign                      or: python -m tests.reliability.campaign [PARTS="[kills, soak]"] [SHORT=1]
                                           [MINUTES=120] [SEED=0] [OUT=results/reliability]

kills    kill -9 at random moments of training (IMPALA inline and in processes, PPO), each run resumed
actors   actors of one run killed and stopped (SIGSTOP), which must end at its full frames
writes   no space, read-only and EIO at every write of a run
soak     training in processes under the faults of the first two for MINUTES

Each writes <name>.json with tried, survived and lost after every trial, so a campaign that is stopped has results
(actors: at the end, since only the end shows whether the run survived). The exit code is 1 if anything was lost.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from e3b_gym.command import answer, read_options
from e3b_gym.options import Positive, Seed
from experiments.provenance import provenance
from tests.reliability.kills import Keep, actors, kills, soak
from tests.reliability.writes import TINY, failing_writes

PARTS = ("kills", "actors", "writes", "soak")


def run(part: str, folder: Path, short: bool, minutes: float, seed: int, keep: Keep) -> dict[str, Any]:
    """One part of the campaign."""
    if part == "kills":
        return kills(folder, 6 if short else 100, seed, keep=keep)
    if part == "actors":
        return actors(folder, *((6, 1) if short else (200, 20)), seed)
    if part == "writes":
        return failing_writes(folder, ["impala"] if short else list(TINY), every=8 if short else 1, keep=keep)
    return soak(folder, 1.0 if short else minutes, seed, keep)


def main(arguments: list[str] | None = None) -> int:
    parts = (Sequence[Literal[tuple(PARTS)]], PARTS)
    options = {"MINUTES": (Positive, 120.0), "SEED": (Seed, 0), "SHORT": (bool, False), "OUT": (Path | None, None)}
    return answer(
        arguments,
        __doc__ or "",
        lambda given: partial(run_all, read_options(given, PARTS=parts, **options)),
        needs_options=False,
    )


def run_all(given: SimpleNamespace) -> int:
    lost, origin = 0, provenance()
    for part in given.parts:

        def keep(found: dict[str, Any], part: str = part) -> None:
            if given.out is not None:
                given.out.mkdir(parents=True, exist_ok=True)
                content = {**found, "seed": given.seed, "provenance": origin}
                (given.out / f"{part}.json").write_text(json.dumps(content, indent=1) + "\n")

        with tempfile.TemporaryDirectory(prefix="campaign", ignore_cleanup_errors=True) as folder:
            found = run(part, Path(folder), given.short, given.minutes, given.seed, keep)
        keep(found)
        print(f"{part}: tried {found['tried']}, survived {found['survived']}, lost {len(found['lost'])}", flush=True)
        for problem in found["lost"][:20]:
            print(f"  {problem}", flush=True)
        lost += len(found["lost"])
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
