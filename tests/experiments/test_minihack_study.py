"""The MiniHack study on real NetHack: it trains, evaluates and reports, and a second call only reports."""

import json
import re
from dataclasses import asdict

import pytest
import yaml

from experiments import minihack
from experiments.settings import resolve
from experiments.study import Point

OTHER = "MiniHack-MultiRoom-N6-Lava-v0"
TASK = "MiniHack-MultiRoom-N6-v0"


def test_a_study_trains_what_is_missing_and_reports_what_is_there(tmp_path):
    out, runs = tmp_path / "results", tmp_path / "runs"
    words = ["--tasks", TASK, "--methods", "none", "random", "--seeds", "1", "--steps", "16384", "--episodes", "2"]
    words += ["--out", str(out), "--runs", str(runs)]
    minihack.main(words)
    kept = out / "runs" / "MultiRoom-N6-none-seed0"
    assert sorted(file.name for file in kept.iterdir()) == sorted(minihack.KEPT)
    config = yaml.safe_load((kept / "config.yaml").read_text())["config"]
    assert (config["env"], config["method"], config["seed"], config["steps"]) == (TASK, "none", 0, 16384)
    success = json.loads((kept / minihack.EVALUATION).read_text())["success"]["mean"]
    report = (out / "README.md").read_text()
    assert re.search(rf"\| {TASK} \| no bonus \|  \| 0 \| 0.02M \| \d+ \| 2 \| {success:.3f} \[", report)
    assert re.search(rf"\| {TASK} \| random policy \|  \|  \|  \|  \| 10 \| \d.\d+ \[", report)
    assert (out / "curves.png").stat().st_size > 1000
    before = (kept / "progress.csv").stat().st_mtime_ns
    (out / "README.md").unlink()
    minihack.main(words)
    assert (out / "README.md").read_text() == report
    assert (kept / "progress.csv").stat().st_mtime_ns == before


@pytest.mark.parametrize("task", minihack.TASKS)
def test_the_home_preset_knows_the_tasks_that_were_measured(task):
    own, usual = (resolve("impala", "home", {"env": env}).config.steps for env in (task, OTHER))
    assert own < usual


@pytest.mark.parametrize(
    ("task", "given", "changes"),
    [
        ("MiniHack-LavaCross-Restricted-v0", {}, "ent_coef=0.04 beta=0.03 ridge=0.01 sees=message"),
        ("MiniHack-LavaCross-Restricted-v0", {"method": "none"}, "ent_coef=0.04"),
        (TASK, {"engine": "inline"}, ""),
        (TASK, {"beta": "0.5", "gae_lambda": "0.9"}, "gae_lambda=0.9 beta=0.5"),
    ],
)
def test_the_report_names_what_a_run_had_for_itself(task, given, changes):
    config = asdict(resolve("impala", "home", {"env": task, **given}).config)
    found = {"frames": 10, "episodes": 2, "success": {"mean": 0.5, "low": 0.1, "high": 0.9}}
    assert f"| {changes} | 0 |" in minihack._row(config, [Point(10, 60.0, 0.5, 3.0)], found)


def test_a_stored_run_with_a_field_that_is_gone_is_reported():
    config = asdict(resolve("impala", "home", {"env": TASK}).config)
    assert minihack._changes(config | {"momentum": 0.5}) == "momentum=0.5"
