"""The MiniHack study on real NetHack: it trains, evaluates and reports, and a second call only reports."""

import json
import re

import yaml

from experiments import minihack
from experiments.settings import resolve

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


def test_words_of_the_bonus_are_for_those_who_have_one():
    task = minihack.TASKS["MiniHack-LavaCross-Restricted-v0"]
    assert set(task.words_for("none")) < set(task.words_for("e3b"))
    for method in ("e3b", "none"):
        given = dict(word.split("=") for word in task.words_for(method))
        resolve("impala", "home", {"env": "MiniHack-LavaCross-Restricted-v0", "method": method, **given})
