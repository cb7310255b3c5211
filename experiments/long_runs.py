"""Runs of `make train` as parts of a study: trained to the end, in several sittings if need be, kept as results."""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from experiments.curve import read_curve


def train(folder: Path, steps: int, words: Iterable[str]) -> None:
    """Trains to `steps`, from the start with the words of `make train`, or from where it stopped."""
    words = [*words, f"STEPS={steps}"]
    if (folder / "config.yaml").exists():
        words = ["RESUME=1"]
    if not _finished(folder, steps):
        command("train", f"RUN={folder}", *words)


def command(name: str, *words: str) -> None:
    """`python -m experiments.<name>`; raises ValueError if it fails."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-m", f"experiments.{name}", *words])
    if done.returncode:
        raise ValueError(f"experiments.{name} {shlex.join(words)} ended with code {done.returncode}; see above why")


def option(text: str) -> str:
    """The `type=` of an argument that is handed to `make train`."""
    if not text.partition("=")[1]:
        raise argparse.ArgumentTypeError(f"must be NAME=value; got {text!r}")
    return text


def keep(folder: Path, target: Path, files: Iterable[str]) -> None:
    """Copies what a reader needs; checkpoints and TensorBoard's events stay where they are."""
    target.mkdir(parents=True, exist_ok=True)
    for name in files:
        shutil.copy(folder / name, target / name)


def progress(folder: Path) -> list[dict[str, str]]:
    """The rows of a run's progress.csv."""
    return read_curve(folder / "progress.csv")[1]


def _finished(folder: Path, steps: int) -> bool:
    return (folder / "progress.csv").exists() and any(int(row["frames"]) >= steps for row in progress(folder))
