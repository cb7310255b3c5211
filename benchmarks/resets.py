"""The cost of a MiniHack reset, here and in another checkout, and whether it stays the same over many resets.

    python -m benchmarks.resets                                   milliseconds per reset, and per frame of a beginner
    python -m benchmarks.resets AGAINST=PATH                      the same, with the checkout at PATH in turns
    python -m benchmarks.resets DRIFT=1000000 GAMES=16            time, memory, files and processes over so many resets
    python -m benchmarks.resets AGAINST=PATH DRIFT=N JSON=FILE     both, into a file

Each checkout runs in its own process, and the two alternate, so that load on the machine affects both equally; times
are CPU time, medians over the rounds. Both get the same seeds and must return the same observations. A beginner takes
random actions and falls into the lava within some steps, so most of its time is resets and the ends of games.
A run of `DRIFT=` plays one step after each reset. It also reports the time of a fixed piece of work, since a busy
machine slows both down.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

TASK = "MiniHack-MultiRoom-N6-Lava-v0"
HERE = Path(__file__).resolve().parent.parent
RESETS_PER_ROUND, FRAMES_PER_ROUND = 50, 300
BLOCKS = 50
PROMISED = 1.6
"""How many times as fast as at commit a9d8162 a reset has to be."""
FLAT, GROWTH_MB = 1.2, 2.0
"""How many times as long a reset may take at the end of `DRIFT=` resets, and by how much the memory may grow."""


class Checkout:
    """A process that plays with the code of one checkout."""

    def __init__(self, path: Path, task: str) -> None:
        self.path = path
        environment = os.environ | {"PYTHONPATH": str(path), "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, __file__, f"WORKER={task}"],
            cwd=path,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        library = Path(self.ask("library"))
        if path.resolve() not in library.parents:
            self.close()
            raise RuntimeError(f"{path}: the process took the library from {library}; give the root of a checkout")

    def ask(self, *request: Any) -> Any:
        """Sends the process a request; returns its answer."""
        pipes = self._process.stdin, self._process.stdout
        if pipes[0] is None or pipes[1] is None:
            raise RuntimeError("the process has no pipes")
        print(json.dumps(request), file=pipes[0], flush=True)
        answer = pipes[1].readline()
        if not answer:
            raise RuntimeError(f"{self.path}: the process ended; its error stands above")
        return json.loads(answer)

    def close(self) -> None:
        self._process.communicate()


def compare(checkouts: dict[str, Checkout], rounds: int) -> dict[str, dict[str, float]]:
    """name -> {"reset_ms", "beginner_frame_us"}, medians; raises where checkouts show different observations."""
    resets: dict[str, list[float]] = {name: [] for name in checkouts}
    frames: dict[str, list[float]] = {name: [] for name in checkouts}
    for round in range(rounds + 1):
        shown = set()
        for name, checkout in checkouts.items():
            reset, digest = checkout.ask("resets", round, RESETS_PER_ROUND)
            frame, play_digest = checkout.ask("play", round, FRAMES_PER_ROUND)
            shown.add((digest, play_digest))
            if round:  # the first one starts simulators and compiles
                resets[name].append(reset)
                frames[name].append(frame)
        if len(shown) > 1:
            raise RuntimeError(f"the checkouts show different observations for seed {round}")
    return {
        name: {
            "reset_ms": round_to(1e3 * float(np.median(resets[name]))),
            "beginner_frame_us": round_to(1e6 * float(np.median(frames[name]))),
        }
        for name in checkouts
    }


def round_to(value: float, digits: int = 4) -> float:
    """Rounds to a number of significant digits."""
    return float(f"{value:.{digits}g}")


def serve(task: str) -> None:
    """The process of a checkout: answers requests, one line each."""
    from e3b_gym.envs import minihack

    env = minihack.make(task)
    for line in sys.stdin:
        what, *arguments = json.loads(line)
        if what == "library":
            answer: Any = str(Path(minihack.__file__).resolve())
        elif what == "resets":
            answer = _timed_resets(env, *arguments)
        else:
            answer = _timed_play(env, *arguments)
        print(json.dumps(answer), flush=True)
    env.close()


def _timed_resets(env: Any, seed: int, count: int) -> tuple[float, str]:
    """(CPU seconds per reset, digest of what they showed)."""
    digest = hashlib.sha1()
    env.reset(seed=seed)
    seconds = 0.0
    for _ in range(count):
        started = time.process_time()
        observation, _ = env.reset()
        seconds += time.process_time() - started
        _feed(digest, observation)
    return seconds / count, digest.hexdigest()


def _timed_play(env: Any, seed: int, count: int) -> tuple[float, str]:
    """(CPU seconds per frame of random play with its resets, digest of what it showed)."""
    digest = hashlib.sha1()
    observation, _ = env.reset(seed=seed)
    actions = np.random.default_rng(seed).integers(env.action_space.n, size=count).tolist()
    seconds = 0.0
    for action in actions:
        started = time.process_time()
        observation, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            observation, _ = env.reset()
        seconds += time.process_time() - started
        _feed(digest, observation)
    return seconds / count, digest.hexdigest()


def _feed(digest: Any, observation: dict[str, Any]) -> None:
    for key in sorted(observation):
        digest.update(observation[key].tobytes())


def drift(task: str, resets: int, games: int) -> Iterator[dict[str, float]]:
    """One row for each block of resets, `games` games taking turns in this process."""
    import psutil

    from e3b_gym.envs import minihack

    envs = [minihack.make(task) for _ in range(games)]
    for i, env in enumerate(envs):
        env.reset(seed=i)
    process, block, done = psutil.Process(), max(resets // BLOCKS, games), 0
    while done < resets:
        started = time.process_time()
        for i in range(block):
            env = envs[i % games]
            env.reset()
            env.step(i % 8)
        done += block
        yield {
            "resets": done,
            "reset_ms": round_to(1e3 * (time.process_time() - started) / block),
            "fixed_work_ms": round_to(1e3 * _fixed_work()),
            "resident_mb": round_to(process.memory_info().rss / 1e6, 6),
            "descriptors": process.num_fds(),
            "processes": 1 + len(process.children(recursive=True)),
            "threads": process.num_threads(),
            "file_kb": round_to(sum(_bytes_of(env._game._directory) for env in envs) / 1e3),
        }
    for env in envs:
        env.close()


def _fixed_work() -> float:
    """CPU seconds of a fixed computation, in and out of the cache."""
    data = bytes(4_000_000)
    started = time.process_time()
    for _ in range(10):
        hashlib.blake2b(data).digest()
    return time.process_time() - started


def _bytes_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("**/*") if path.is_file())


def drift_summary(rows: list[dict[str, float]]) -> dict[str, float]:
    """Compares the last tenth of the rows with the first one, without the very first row, which compiles."""
    rows = rows[1:]
    tenth = max(len(rows) // 10, 1)

    def median(name: str, part: list[dict[str, float]]) -> float:
        return float(np.median([row[name] for row in part]))

    first, last = rows[:tenth], rows[-tenth:]
    names = ("reset_ms", "fixed_work_ms", "resident_mb", "descriptors", "processes", "threads", "file_kb")
    summary = {}
    for name in names:
        summary[f"{name}_first"], summary[f"{name}_last"] = median(name, first), median(name, last)
    return summary | {"slower_by": round_to(summary["reset_ms_last"] / summary["reset_ms_first"])}


def drift_problems(summary: dict[str, float], games: int) -> list[str]:
    """What is not flat over the resets, one line each."""

    def grown(name: str) -> float:
        return summary[f"{name}_last"] - summary[f"{name}_first"]

    problems = []
    if summary["slower_by"] > FLAT:
        problems.append(f"a reset takes {summary['slower_by']:.2f} times as long at the end")
    if grown("resident_mb") > GROWTH_MB:
        problems.append(f"resident memory grew by {grown('resident_mb'):.1f} MB")
    if grown("descriptors") > games:
        problems.append(f"{grown('descriptors'):g} more files are open")
    problems += [f"{grown(name):g} more {name}" for name in ("processes", "threads") if grown(name) > 0]
    return problems


def origin(path: Path) -> dict[str, Any]:
    """The commit of a checkout and whether files differ from it."""

    def git(*command: str) -> str:
        return subprocess.run(["git", "-C", path, *command], capture_output=True, text=True).stdout.strip()

    return {"commit": git("rev-parse", "--short", "HEAD"), "changed": bool(git("status", "--porcelain", "e3b_gym"))}


def main(arguments: Sequence[str] | None = None) -> int:
    from benchmarks import command  # not in a worker, which takes the library from another checkout
    from e3b_gym.options import Count, WholeNumber

    return command(
        arguments,
        __doc__,
        run_all,
        TASK=(str, TASK),
        AGAINST=(Path | None, None),
        ROUNDS=(WholeNumber, 20),
        DRIFT=(WholeNumber, 0),
        GAMES=(Count, 16),
        JSON=(Path | None, None),
    )


def run_all(options: SimpleNamespace) -> int:
    """Prints what was measured; returns 1 where a reset is not PROMISED times as fast as in the other checkout, or
    where something grows over many resets."""
    machine = {"python": platform.python_version(), "system": platform.platform(), "cpus": os.cpu_count()}
    failed = False
    if options.rounds:
        failed = _report_cost(options, machine)
    if options.drift:
        failed |= _report_drift(options, machine)
    return int(failed)


def _report_cost(options: SimpleNamespace, machine: dict[str, Any]) -> bool:
    paths = {"now": HERE} | ({"other": options.against.resolve()} if options.against else {})
    checkouts = {name: Checkout(path, options.task) for name, path in paths.items()}
    measured = compare(checkouts, options.rounds)
    for checkout in checkouts.values():
        checkout.close()
    for name, path in paths.items():
        print(f"{name:6} {origin(path)['commit']:8} {measured[name]['reset_ms']:8.3f} ms a reset", end="")
        print(f" {measured[name]['beginner_frame_us']:8.1f} us a frame of a beginner")
    result: dict[str, Any] = {"task": options.task, "rounds": options.rounds, "machine": machine}
    result |= {name: origin(path) | measured[name] for name, path in paths.items()}
    failed = False
    if options.against:
        times = {key: round_to(measured["other"][key] / measured["now"][key]) for key in measured["now"]}
        failed = times["reset_ms"] < PROMISED
        print(f"{'FAIL' if failed else 'PASS'}  {times['reset_ms']:.2f}x as fast (promised {PROMISED}x); ", end="")
        print(f"a beginner's frame {times['beginner_frame_us']:.2f}x; the same observations")
        result["times_as_fast"] = times
    _store(options.json, "cost", result)
    return failed


def _report_drift(options: SimpleNamespace, machine: dict[str, Any]) -> bool:
    rows: list[dict[str, float]] = []
    result = {"task": options.task, "games": options.games, "machine": machine} | origin(HERE)
    for row in drift(options.task, options.drift, options.games):
        rows.append(row)
        print("  ".join(f"{name} {value:g}" for name, value in row.items()), flush=True)
        if len(rows) > 2:
            _store(options.json, "drift", result | {"summary": drift_summary(rows), "rows": rows})
    summary = drift_summary(rows)
    print(json.dumps(summary, indent=1))
    problems = drift_problems(summary, options.games)
    print(
        f"FAIL  {'; '.join(problems)}"
        if problems
        else f"PASS  time, memory, files and processes flat over {rows[-1]['resets']:,} resets"
    )
    return bool(problems)


def _store(path: Path | None, name: str, result: dict[str, Any]) -> None:
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(kept | {name: result}, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1].startswith("WORKER="):  # started by Checkout
        serve(sys.argv[1].removeprefix("WORKER="))
    else:
        sys.exit(main())
