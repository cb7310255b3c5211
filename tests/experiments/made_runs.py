"""Folders of runs with scores that a test chooses, in the form that `make train` and `make evaluate` leave."""

import json
from pathlib import Path

import yaml

from experiments.results import CONFIG, CURVE, EVALUATION
from experiments.studies import Run

PROVENANCE = {"commit": "abc1234", "machine": "a machine", "command": "python -m experiments.train"}


def make_folder(root: Path, run: Run, score: float, frames: int = 1000, **config) -> Path:
    """A run that learned in a straight line from 0 to `score`, and was evaluated at its end."""
    folder = root / run.folder
    folder.mkdir(parents=True)
    settings = {"env": run.task.env, "method": run.method.method, "seed": run.seed, "steps": frames, **config}
    content = {"agent": run.agent, "preset": run.preset, "config": settings, "provenance": [PROVENANCE]}
    (folder / CONFIG).write_text(yaml.safe_dump(content))
    rows = [f"{frames * i // 4},{10 * i},{100 + i},{score * i / 4}" for i in range(1, 5)]
    (folder / CURVE).write_text("\n".join(["frames,seconds,fps,success", *rows]) + "\n")
    success = {"mean": score, "low": max(score - 0.1, 0), "high": min(score + 0.1, 1)}
    (folder / EVALUATION).write_text(json.dumps({"frames": frames, "episodes": 200, "success": success}))
    return folder
