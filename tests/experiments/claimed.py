"""A run that another process has claimed."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from experiments.scheduler import CLAIMS
from experiments.studies import Run

_HOLD = """
import fcntl, sys
lock = open(sys.argv[1], "w")
fcntl.lockf(lock, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def claimed_elsewhere(root: Path, run: Run) -> Iterator[None]:
    """Inside the block another process holds the run's claim, as a scheduler on another machine would."""
    lock = root / CLAIMS / run.folder / ".lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-S", "-c", _HOLD, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        yield
        other.kill()
