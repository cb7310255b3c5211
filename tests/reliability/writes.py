"""No space, read-only and EIO at every write of a run, one after the other, and from each write on.

Training continues, or stops and says so; then the disk works again, and the run must resume to its end from its last
good state, with a curve without gaps or doubled rows.
"""

from __future__ import annotations

import contextlib
import errno
import io
import shutil
import warnings
from pathlib import Path
from typing import Any

from experiments.curve import read_curve
from experiments.train import main as train
from tests.reliability.disk import FailingDisk
from tests.reliability.kills import Keep, forget

CODES = {"no space": errno.ENOSPC, "read-only": errno.EROFS, "EIO": errno.EIO}
FRAMES, UPDATES = 32, 3
TINY = {
    "impala": "engine=inline lstm=8",
    "ppo": "n_epochs=1 hidden=8",
    "recurrent_ppo": "n_epochs=1 hidden=8 lstm=8",
}


def options(agent: str, run: Path) -> list[str]:
    """A run of three updates with a checkpoint and a row after each."""
    common = (
        "ENV=Rooms-K3-v0 env.max_steps=6 n_envs=4 n_steps=8 batch_size=16 dim=8 log_seconds=0 checkpoint_minutes=1e-9"
    )
    return [*common.split(), f"AGENT={agent}", *TINY[agent].split(), f"STEPS={FRAMES * UPDATES}", f"RUN={run}"]


def failing_writes(
    folder: Path, agents: list[str], every: int = 1, first: int = 1, keep: Keep = forget
) -> dict[str, Any]:
    """Tries every `every`-th write of a run of each agent; returns tried, survived and what was lost."""
    found: dict[str, Any] = {"tried": 0, "survived": 0, "continued": 0, "stopped": 0, "refused": 0, "lost": []}
    for agent in agents:
        with FailingDisk(folder / "count") as disk, quiet():
            train(options(agent, folder / "count"))
        shutil.rmtree(folder / "count")
        found[f"writes of {agent}"] = disk.writes
        cases = [
            (k, code, lasting) for k in range(first, disk.writes + 1, every) for code in CODES for lasting in (0, 1)
        ]
        for number, code, lasting in cases:
            problem, ending = try_write(folder / "run", agent, number, CODES[code], bool(lasting))
            found["tried"] += 1
            found[ending] += 1
            found["survived"] += not problem
            if found["tried"] % 20 == 0:
                print(f"{agent}: write {number} of {disk.writes}, {len(found['lost'])} lost", flush=True)
            if problem:
                print(f"{agent}, write {number}, {code}, {lasting}: {problem}", flush=True)
                found["lost"].append([agent, number, code, "from then on" if lasting else "once", problem])
            keep(found)
    return found


def try_write(run: Path, agent: str, number: int, code: int, lasting: bool) -> tuple[str, str]:
    """Runs with a failing write and resumes without; returns what went wrong, and how the first part ended."""
    shutil.rmtree(run, ignore_errors=True)
    problem = ""
    try:
        with quiet() as said, FailingDisk(run, number, code, lasting=lasting) as disk:
            ended = train(options(agent, run))
    except Exception as error:  # noqa: BLE001  # that is the question
        return f"{disk.failed[:1]}: {error!r}", "stopped"
    ending = {0: "continued", 1: "stopped", 2: "refused"}.get(ended, "stopped")
    if ended not in (0, 1, 2):
        problem = f"{disk.failed[:1]}: code {ended}"
    harmless = all(what.startswith("mkdir") for what in disk.failed)  # of a folder that is there already
    if ended == 0 and not said.getvalue() and not harmless:
        problem = f"{disk.failed[:1]}: nothing was said"
    if ended == 1 and ("intact; to resume:" not in said.getvalue() and "to start over:" not in said.getvalue()):
        problem = f"{disk.failed[:1]}: the line with the command to resume is missing"
    if ended == 2 and said.getvalue().count("error: ") != 1:
        problem = f"{disk.failed[:1]}: {said.getvalue()!r}"
    with quiet() as said:
        if not (run / "config.yaml").exists():
            again = train(options(agent, run))
        else:
            again = train([f"RUN={run}", "RESUME=1"]) if ended else 0
            if f"is at frame {FRAMES * UPDATES}, and STEPS is" in said.getvalue():
                again = 0  # the last checkpoint was there when the disk failed to confirm it
        rows = [int(row["frames"]) for row in read_curve(run / "progress.csv")[1]] if again == 0 else []
    expected = [FRAMES * k for k in range(1, UPDATES + 1)]
    if not problem and again != 0:
        problem = f"{disk.failed[:1]}: the run did not resume: {said.getvalue()!r}"
    if not problem and rows != expected and not (lasting and ended == 0):  # a disk that stayed full has no curve
        problem = f"{disk.failed[:1]}: rows {rows}"
    if list(run.rglob("*.part")) and not lasting:
        problem = problem or f"{disk.failed[:1]}: left {[file.name for file in run.rglob('*.part')]}"
    return problem, ending


@contextlib.contextmanager
def quiet() -> Any:
    """Gives what is written to stderr."""
    errors = io.StringIO()
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(errors),
        warnings.catch_warnings(record=True) as warned,
    ):
        warnings.simplefilter("always")
        yield errors
    errors.writelines(f"warning: {one.message}\n" for one in warned)
