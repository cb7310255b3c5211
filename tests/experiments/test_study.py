"""Studies: runs are reproducible, spread over processes, saved one by one, and reported from their files."""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from experiments.intervals import bootstrap
from experiments.plots import markdown_table, steps_to, success_at
from experiments.provenance import provenance
from experiments.rooms import PPO_SETTINGS, WORLDS, make_run, sparkline
from experiments.study import Point, Run, run_all, train_run
from experiments.table import COLUMNS, Study, World

TINY = {**PPO_SETTINGS, "n_steps": 16, "batch_size": 64, "n_epochs": 1}


def tiny(method="e3b", world=None, seed=0, steps=256) -> Run:
    return Run(method, "Rooms-K3-v0", seed, steps, world={"flat": True, **(world or {})}, ppo=TINY, num_envs=8)


def test_the_same_seed_gives_the_same_curve_and_another_seed_another():
    curves = [[(p.steps, p.success, p.length) for p in train_run(tiny(seed=s, steps=2048))] for s in (0, 0, 1)]
    assert curves[0] == curves[1] != curves[2]


def test_runs_in_processes_report_every_point_and_their_end():
    seen = {0: [], 1: []}
    for number, point in run_all([tiny(), tiny("none")], workers=2):
        seen[number].append(point)
    for points in seen.values():
        assert [point.steps for point in points[:-1]] == [128, 256]
        assert points[-1] is None


def test_a_run_that_fails_says_why():
    with pytest.raises(RuntimeError, match="unknown method 'e4b'"):
        list(run_all([tiny("e4b")]))


def test_a_table_trains_what_is_missing_and_reports_from_the_files(tmp_path, capsys):
    study = Study("rooms", WORLDS, ("e3b", "none"), seeds=2, make_run=lambda m, w, s: tiny(m, w.options, s))
    parser = argparse.ArgumentParser()
    study.add_arguments(parser)
    arguments = parser.parse_args(["--out", str(tmp_path), "--worlds", "clock"])
    study.train(arguments)
    assert "0 of 4 runs are in" in capsys.readouterr().out
    record = json.loads((tmp_path / "runs" / "clock-e3b-seed1.json").read_text())
    assert record["run"]["seed"] == 1
    assert record["provenance"]["commit"]
    assert len(record["curve"]) == 2
    table = (tmp_path / "README.md").read_text()
    assert "| E3B | " in table
    assert "(n=2)" in table
    assert (tmp_path / "curves.png").stat().st_size > 1000
    (tmp_path / "runs" / "clock-none-seed0.json").unlink()
    study.train(arguments)
    assert "3 of 4 runs are in" in capsys.readouterr().out


def test_another_beta_is_a_study_of_its_own(tmp_path):
    study = Study("rooms", WORLDS, ("e3b",), seeds=1, make_run=lambda m, w, s: tiny(m, w.options, s))
    parser = argparse.ArgumentParser()
    study.add_arguments(parser)
    with pytest.raises(SystemExit, match="say where it goes with --out"):
        study.train(parser.parse_args(["--beta", "0.5"]))
    (tmp_path / "findings.md").write_text("Nothing.")
    study.train(parser.parse_args(["--beta", "0.5", "--out", str(tmp_path), "--worlds", "clock"]))
    record = json.loads((tmp_path / "runs" / "clock-e3b-seed0.json").read_text())
    assert record["run"]["bonus"]["beta"] == 0.5
    assert "(findings.md)" in (tmp_path / "README.md").read_text()


def test_a_run_that_went_on_beyond_the_budget_counts_up_to_it(tmp_path):
    world = World("Rooms-K3-v0", 200)
    study = Study("rooms", {"small": world}, ("none",), seeds=1, make_run=lambda m, w, s: tiny(m, w.options, s))
    run = {"env": world.env, "method": "none", "steps": 500}
    record = {"provenance": provenance(), "world": "small", "run": run, "columns": COLUMNS}
    record["curve"] = [[128, 1.0, 0.25, 9.0], [256, 2.0, 0.5, 9.0], [384, 3.0, 0.75, 9.0]]
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "small-none-seed0.json").write_text(json.dumps(record))
    study.report(tmp_path)
    table = (tmp_path / "README.md").read_text()
    assert "small: Rooms-K3-v0, 0.0002M steps" in table
    assert "| no bonus | 0.50 " in table


def test_a_killed_study_leaves_no_process_behind(tmp_path):
    code = (
        "from experiments.rooms import make_run\nfrom experiments.study import run_all\n"
        "from experiments.table import World\n"
        "if __name__ == '__main__':\n"
        "    for number, point in run_all([make_run('none', World('Rooms-K3-v0', 10**9), 0)]):\n"
        "        print(point, flush=True)\n"
    )
    root = Path(__file__).parents[2]
    script = tmp_path / "endless.py"
    script.write_text(code)
    environment = {**os.environ, "PYTHONPATH": str(root)}
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, env=environment)
    assert b"Point" in parent.stdout.readline()  # it trains
    children = psutil.Process(parent.pid).children(recursive=True)
    assert children
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 60
    while any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children):
        assert time.monotonic() < deadline, "a worker outlived its parent"
        time.sleep(0.2)


def curve(*success):
    return [Point(1000 * (i + 1), 1.0, value, 10.0) for i, value in enumerate(success)]


def test_the_table_says_mean_interval_and_first_arrival():
    e3b = [curve(0.1, 0.9), curve(0.0, 0.7), curve(0.0, 0.8)]
    text = markdown_table({"clock": {"E3B": e3b, "no bonus": [curve(0.0, 0.0)]}})
    assert "| E3B | 0.80 [0.70, 0.90] (n=3); 0.8 after 0.00M, 0.00M |" in text
    assert "| no bonus | 0.00 too few seeds for an interval (n=1) |" in text


def test_intervals_cover_and_arrivals_are_found():
    low, high = bootstrap([0.0, 1.0, 0.5, 0.5])
    assert 0.0 <= low < 0.5 < high <= 1.0
    assert steps_to(curve(0.1, 0.85, 0.2)) == 2000
    assert steps_to(curve(0.1, 0.2)) is None


def test_runs_that_logged_at_other_steps_are_compared_at_the_same_ones():
    run = [Point(100, 1.0, 0.0, 5.0), Point(300, 2.0, 0.8, 5.0)]
    assert success_at(np.array([100, 200, 300]), run) == pytest.approx([0.0, 0.4, 0.8])


def test_the_sparkline_has_one_cell_per_share_of_the_budget():
    assert sparkline(curve(0.0, 0.5, 1.0), steps=4000, width=4) == " ▁▅█"


def test_the_methods_of_the_study_share_everything_but_the_bonus():
    one, two = (make_run(method, WORLDS["clock"], 3) for method in ("e3b", "none"))
    assert (one.ppo, one.world, one.seed, one.num_envs) == (two.ppo, two.world, two.seed, two.num_envs)
