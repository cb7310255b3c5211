"""What `make train` says about stored runs with the same settings."""

from __future__ import annotations

import json

import pytest

from experiments.expected import expected
from experiments.results import EVALUATION
from experiments.runs import RunFolder
from experiments.settings import resolve
from experiments.train import main

ENV = "Rooms-K3-v0"
TINY = {"n_envs": "2", "n_steps": "4", "batch_size": "8", "engine": "inline"}


@pytest.fixture
def stored(tmp_path):
    """Two seeds of a run, evaluated."""
    for seed in (1, 2):
        folder = RunFolder(tmp_path / "home" / ENV / f"e3b-seed{seed}")
        folder.save(resolve("impala", "home", {"env": ENV, "seed": str(seed), **TINY}))
        success = {"mean": 0.9 + seed / 100, "low": 0.8, "high": 1.0}
        found = {"success": success, "episodes": 200, "frames": 2_000_000}
        (folder.path / EVALUATION).write_text(json.dumps(found))
    return tmp_path


def settings(**given):
    return resolve("impala", "home", {"env": ENV, **TINY, **given})


def test_runs_with_the_same_settings_are_reported_with_frames_and_seeds(stored):
    line = expected(settings(seed="7", steps="100"), stored)
    assert line == (
        "measured with these settings: success 0.910, 0.920 in 200 new episodes after 2.0M frames (2 seeds; "
        f"results/runs/home/{ENV})"
    )


@pytest.mark.parametrize("given", [{"beta": "0.5"}, {"learning_rate": "1e-2"}, {"ridge": "0.7"}, {"method": "none"}])
def test_a_run_with_other_settings_has_no_expected_result(stored, given):
    assert expected(settings(**given), stored) is None


def test_a_run_with_another_option_of_the_environment_has_no_expected_result(stored):
    assert expected(settings(**{"env.clock": "true"}), stored) is None


def test_a_stored_run_that_cannot_be_read_is_left_out(stored):
    (stored / "home" / ENV / "e3b-seed1" / "config.yaml").write_text("agent: [")
    assert "0.920 in 200 new episodes after 2.0M frames (1 seed;" in expected(settings(), stored)


def test_an_option_that_is_newer_than_the_stored_run_has_its_default(stored):
    file = stored / "home" / ENV / "e3b-seed1" / "config.yaml"
    file.write_text("".join(line for line in file.read_text().splitlines(True) if "ellipse:" not in line))
    assert "(2 seeds" in expected(settings(), stored)
    assert expected(settings(ellipse="solve"), stored) is None


def test_train_prints_it_at_the_start_and_at_the_end(stored, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("experiments.expected.STORED", stored)
    given = [f"ENV={ENV}", f"RUN={tmp_path}/new", "STEPS=16", "log_seconds=0", *(f"{n}={v}" for n, v in TINY.items())]
    assert main(given) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("measured with these settings: success 0.910, 0.920") for line in lines) == 2
    assert lines[-3].startswith("measured with these settings")
