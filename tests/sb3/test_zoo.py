"""rl-zoo3's own train command runs the wrapper and the callback out of the YAML in examples/."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

ROOT = Path(__file__).parents[2]
SETTINGS = ROOT / "examples" / "rl_zoo3.yml"


def train(env: str, folder: Path, steps: int) -> tuple[Path, set[str], str]:
    """Runs the zoo; returns its folder of results, what went to TensorBoard, and what it printed."""
    command = [sys.executable, "-m", "rl_zoo3.train", "--algo", "ppo", "--env", env, "-conf", str(SETTINGS)]
    command += ["-n", str(steps), "--eval-freq", "256", "--eval-episodes", "1", "--n-eval-envs", "1", "--seed", "1"]
    command += ["--device", "cpu", "--log-folder", str(folder / "logs"), "--tensorboard-log", str(folder / "board")]
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": paths}
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500)
    assert run.returncode == 0, run.stderr[-3000:]
    events = EventAccumulator(str(next((folder / "board").rglob("events.*")))).Reload()
    return folder / "logs" / "ppo" / f"{env}_1", set(events.Tags()["scalars"]), run.stdout + run.stderr


@pytest.mark.parametrize(
    ("env", "steps", "worst", "best"),
    [("CartPole-v1", 512, 8, 500), pytest.param("MountainCar-v0", 4096, -200, -80, marks=pytest.mark.slow)],
)
def test_the_zoo_trains_with_the_bonus(env: str, steps: int, worst: float, best: float, tmp_path: Path) -> None:
    results, curves, printed = train(env, tmp_path, steps)
    assert (results / f"{env}.zip").exists()
    assert {"e3b/inverse_loss", "e3b/inverse_accuracy", "e3b/bonus_mean", "rollout/ep_rew_mean"} <= curves
    evaluated = np.load(results / "evaluations.npz")["results"]
    assert ((evaluated >= worst) & (evaluated <= best)).all()  # the environment's own reward
    assert "Warning" not in printed.replace("Gym has been unmaintained", "")


def test_the_settings_name_what_the_library_has() -> None:
    for settings in yaml.safe_load(SETTINGS.read_text().replace("!!float ", "")).values():
        assert "E3BRewardWrapper" in str(settings["vec_env_wrapper"])
        assert "EncoderUpdateCallback" in str(settings["callback"])
