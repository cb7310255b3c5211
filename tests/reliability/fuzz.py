"""Malformed command lines, config files, curves and checkpoints for every command, from one seed.

    make fuzz N=2000                  or: python -m tests.reliability.fuzz CASES=2000 SEED=0 [OUT=FOLDER]

Each case calls a command's `main(arguments)` in this process and checks: it works; or it prints one line that starts
with "error: ", returns 2, and every file that existed before is byte for byte what it was. A payload that a file
carries must not run. Case k of a seed can be repeated alone: SEED=S FIRST=k CASES=1.
"""

from __future__ import annotations

import io
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from e3b_gym.command import answer, read_options
from e3b_gym.envs.__main__ import main as envs
from e3b_gym.options import Count, Seed, WholeNumber
from experiments.coverage import main as coverage
from experiments.doctor import main as doctor
from experiments.evaluate import main as evaluate
from experiments.export import main as export
from experiments.provenance import provenance
from experiments.train import main as train
from experiments.trained import main as trained_agents
from experiments.watch import main as watch
from tests.reliability.damage import damaged_agent, damaged_checkpoint, damaged_config, damaged_curve
from tests.reliability.mistakes import coverage_line, envs_line, garbled, look_line, train_line
from tests.reliability.sandbox import StillRunning, quiet, short_training, time_limit

COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "train": train,
    "evaluate": evaluate,
    "watch": watch,
    "coverage": coverage,
    "envs": envs,
    "doctor": doctor,
    "export": export,
    "agents": trained_agents,
}
READERS = {"train": 3, "evaluate": 3, "watch": 3, "export": 3, "doctor": 1}
"""Commands that read a damaged run, and their weights; `doctor` draws a picture, which takes ten times as long."""
MEMORY = 6 << 30
"""Bytes of address space on top of those in use; so that absurd sizes fail at once."""


@dataclass
class Case:
    """One call of a command."""

    number: int
    kind: str
    command: str
    arguments: list[str]
    folder: str = "."


@dataclass
class Found:
    """How cases ended: by outcome, by kind of case; and those that failed."""

    outcomes: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    failures: list[dict[str, object]] = field(default_factory=list)


class Fuzz:
    """Makes cases and runs them in a separate folder.

    Args:
        folder: for the runs; removed by the caller.
        seed: seed of all cases.
        agents: whose runs are damaged.
        habitat: whether there is a run for `coverage` (needs habitat-lab).
    """

    def __init__(self, folder: Path, seed: int, agents: Sequence[str], habitat: bool = True) -> None:
        self.folder, self.seed, self.agents = folder, seed, tuple(agents)
        self.runs = folder / "originals"
        made = [[*_tiny(agent), f"RUN={self.runs / agent}", "STEPS=64", "checkpoint_minutes=1e-9"] for agent in agents]
        if habitat:
            made.append(["ENV=Habitat-FloorPlan-v0", "AGENT=random", "env.size=32", f"RUN={self.runs / 'homes'}"])
        for arguments in made:
            said = io.StringIO()
            with quiet(said):
                code = train(arguments)
            if code != 0:
                raise RuntimeError(f"a run that cases start from ended with code {code}: {said.getvalue()}")
        self.payload = folder / "payload"
        with quiet(said := io.StringIO()):
            code = export([f"RUN={self.runs / self.agents[0]}", f"OUT={self.runs / 'exported'}", "EPISODES=1"])
        if code != 0:
            raise RuntimeError(f"the agent that cases start from was not exported: {said.getvalue()}")

    def case(self, number: int) -> Case:
        """Case `number`, with its files in place."""
        draw = random.Random(f"{self.seed}-{number}")
        place = self.folder / "case"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        kinds = {
            "options": 32,
            "config": 16,
            "curve": 12,
            "checkpoint": 16,
            "look": 12,
            "envs": 9,
            "coverage": 3,
            "agent": 6,
        }
        kind = draw.choices(list(kinds), list(kinds.values()))[0]
        if kind == "envs":
            return Case(number, kind, "envs", garbled(draw, envs_line(draw, place)))
        if kind == "coverage":
            return Case(number, kind, "coverage", garbled(draw, coverage_line(draw, self.runs, place)))
        if kind == "agent":
            trained = place / "trained"
            shutil.copytree(self.runs / "exported", trained / "Rooms-K3-v0")
            damaged_agent(draw, trained / "Rooms-K3-v0", self.payload)
            command = draw.choice(["agents", "evaluate", "watch", "doctor", "export"])
            line = [f"RUN={trained / 'Rooms-K3-v0'}", "EPISODES=1"]
            return Case(number, kind, command, [] if command == "agents" else line, str(place))
        agent = draw.choice(self.agents)
        if kind == "options":
            return Case(number, kind, "train", garbled(draw, train_line(draw, agent, _tiny(agent), place)))
        run = place / "run"
        shutil.copytree(self.runs / agent, run)
        if kind == "look":
            command = draw.choice(["evaluate", "watch"])
            return Case(number, kind, command, garbled(draw, look_line(draw, command, run, place)))
        {"config": damaged_config, "curve": damaged_curve, "checkpoint": damaged_checkpoint}[kind](
            draw, run, self.payload
        )
        command = "train" if kind == "curve" else draw.choices(list(READERS), list(READERS.values()))[0]
        more = ["RESUME=1", "STEPS=96"] if command == "train" else ["EPISODES=1"]
        more += [f"OUT={place / 'out'}"] if command == "export" else []
        return Case(number, kind, command, [f"RUN={run}", *more])

    def run(self, case: Case, found: Found) -> None:
        """Calls the command and checks what came of it."""
        before = snapshot(self.folder)
        outcome, said = call(case)
        after = snapshot(self.folder)
        found.kinds[case.kind] += 1
        problem = ""
        errors = [line for line in said.splitlines() if not line.startswith("warning: ")]
        if outcome.startswith("exception"):
            problem = "traceback"
        elif outcome == "refused":
            changed = [name for name, content in before.items() if after.get(name) != content]
            if changed:
                problem = f"changed {', '.join(changed)}"
            elif len(errors) != 1 or not errors[0].startswith("error: ") or len(errors[0]) < 20:
                problem = f"{len(errors)} lines in place of one"
        elif outcome == "works (diverged)" and not all(part in said for part in ("diverged at frame", "RESUME=1")):
            problem = "code 1 without the command to resume"
        if self.payload.exists():
            problem = "the payload ran"
            self.payload.rmdir()
        found.outcomes[(problem and "failed") or outcome] += 1
        if problem:
            entry = {"case": case.number, "kind": case.kind, "command": case.command, "arguments": case.arguments}
            found.failures.append({**entry, "problem": problem, "outcome": outcome, "stderr": said[-2000:]})


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file of the case, but for locks, which hold the number of a process."""
    files = (file for file in (folder / "case").rglob("*") if file.name != ".lock" and file.is_file())
    return {str(file): file.read_bytes() for file in files}


def call(case: Case) -> tuple[str, str]:
    """The outcome of a case, and what it wrote to stderr."""
    errors = io.StringIO()
    try:
        agents = mock.patch("experiments.trained.TRAINED", Path(case.folder) / "trained")
        with quiet(errors), short_training(), time_limit(), agents:
            code = COMMANDS[case.command](case.arguments)
    except StillRunning:
        return "works (stopped)", errors.getvalue()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except Exception:  # noqa: BLE001  # that is the question
        return "exception", errors.getvalue() + traceback.format_exc()
    if code in (0, 1, 2):
        return ("works", "works (diverged)", "refused")[code], errors.getvalue()
    return f"exception: code {code}", errors.getvalue()


def _tiny(agent: str) -> list[str]:
    common = ["ENV=Rooms-K3-v0", f"AGENT={agent}", "env.max_steps=6", "n_envs=4", "n_steps=8", "batch_size=16", "dim=8"]
    own = {"impala": "engine=inline lstm=8", "ppo": "n_epochs=1 hidden=8"}
    return [*common, "log_seconds=0", *own.get(agent, "n_epochs=1 hidden=8 lstm=8").split()]


def fuzz(
    cases: int,
    seed: int,
    first: int,
    agents: Sequence[str],
    habitat: bool,
    keep: Callable[[Found], None] | None = None,
) -> Found:
    """Runs so many cases from number `first` on; where there is `keep`, prints and keeps what was found so far."""
    found, start = Found(), time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="fuzz"))
    here = Path.cwd()
    try:
        maker = Fuzz(folder, seed, agents, habitat)
        os.chdir(folder / "originals")  # a run without RUN= goes below the working directory
        for number in range(first, first + cases):
            case = maker.case(number)
            if keep:  # so that a crash of the interpreter has a name
                Path(tempfile.gettempdir(), "fuzz-case.txt").write_text(f"{case}\n", errors="backslashreplace")
            before = len(found.failures)
            maker.run(case, found)
            for failure in found.failures[before:] if keep else []:
                print(json.dumps(failure, indent=1), flush=True)
            if keep and (number + 1) % 100 == 0:
                keep(found)
                pace = (number + 1 - first) / (time.monotonic() - start)
                print(f"{number + 1 - first} cases, {pace:.1f}/s, {dict(found.outcomes)}", flush=True)
    finally:
        os.chdir(here)
        shutil.rmtree(folder, ignore_errors=True)
    return found


def main(arguments: list[str] | None = None) -> int:
    options = {"CASES": (Count, 2000), "SEED": (Seed, 0), "FIRST": (WholeNumber, 0), "OUT": (Path | None, None)}
    return answer(
        arguments, __doc__ or "", lambda given: partial(run_all, read_options(given, **options)), needs_options=False
    )


def run_all(given: SimpleNamespace) -> int:
    out = given.out and given.out.resolve()  # the cases run in another folder
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() if os.name == "posix" else 0
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))
    origin = {"cases": given.cases, "seed": given.seed, "first": given.first, "provenance": provenance()}

    def keep(found: Found) -> None:
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            counts = {"outcomes": dict(found.outcomes), "kinds": dict(found.kinds), "failures": found.failures}
            (out / "fuzz.json").write_text(json.dumps({**origin, **counts}, indent=1) + "\n")

    found = fuzz(given.cases, given.seed, given.first, ("impala", "ppo", "recurrent_ppo"), True, keep)
    keep(found)
    print({**found.outcomes})
    return 1 if found.failures else 0


if __name__ == "__main__":
    sys.exit(main())
