"""The study of homes in the real habitat-lab: it trains, measures and reports; a second call does not train again."""

import re

import yaml
from tiny_runs import FRAMES, TINY

from experiments import habitat


def test_a_study_trains_what_is_missing_and_reports_all(tmp_path, capfd):
    out, runs = tmp_path / "results", tmp_path / "runs"
    arguments = ["--methods", "e3b", "--steps", str(FRAMES), "--episodes", "2", "--out", str(out), "--runs", str(runs)]
    arguments += [*TINY["impala"].split(), "env.size=32", "env.max_steps=5"]
    habitat.main(arguments)
    config = yaml.safe_load((out / "runs" / "e3b" / "config.yaml").read_text())["config"]
    assert (config["method"], config["steps"], config["bonus"]["extrinsic"]) == ("e3b", FRAMES, 0.0)
    text = (out / "README.md").read_text()
    assert re.search(r"\| E3B \| 0\.00M \| 0 \| 0\.\d{3} \[0\.\d{3}, 0\.\d{3}\] \|", text)
    assert re.search(r"\| Random, forward 0\.8 \| 0\.00M \|  \| 0\.\d{3} \[", text)
    assert {"coverage.png", "trajectories.png", "coverage.json", "README.md", "runs"} == {p.name for p in out.iterdir()}
    before = (runs / "e3b" / "progress.csv").stat().st_mtime_ns
    habitat.main(arguments)
    assert (runs / "e3b" / "progress.csv").stat().st_mtime_ns == before
    assert (out / "README.md").read_text() == text
