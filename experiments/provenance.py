"""The provenance of a result: commit, command, machine and versions, stored with it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

_PACKAGES = ("numpy", "torch", "numba", "gymnasium", "stable-baselines3", "sb3-contrib")


def provenance() -> dict[str, Any]:
    """The data that is needed to run the same command again."""
    module = sys.modules["__main__"].__spec__
    command = ["python", "-m", module.name, *sys.argv[1:]] if module is not None else sys.argv
    return {
        "command": " ".join(command),
        "commit": commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, no GPU used",
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
    }


@cache
def _version(package: str) -> str:
    return version(package)  # reads the package's files


def commit() -> str:
    """The checkout's commit, with a + where files differ from it; "unknown" outside a checkout.

    A virtual environment may lie inside a git repository of the user's, whose commit says nothing about this library.
    """
    here = Path(__file__).resolve().parent

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True, check=True).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != here.parent:
            return "unknown"
        return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
