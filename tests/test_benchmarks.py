"""The benchmarks run, and judge what they measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import impala, sb3, scale


def test_the_sb3_benchmark_measures_and_judges(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = sb3.main(["QUICK=1", f"JSON={tmp_path / 'sb3.json'}"])
    record = json.loads((tmp_path / "sb3.json").read_text())
    speed = record["frames_per_second"]["MiniGrid"]
    assert 0 < speed["PPO + E3B, ours"] < 2 * speed["PPO"]
    verdicts = [bar["verdict"] for bar in record["bars"]]
    assert code == ("FAIL" in verdicts)
    shown = capsys.readouterr().out
    assert ("rllte is not importable" in shown) == (not sb3.can_import_rllte())
    for bar in record["bars"]:
        assert any(bar["name"] in line and bar["verdict"] in line for line in shown.splitlines())


def test_bars_are_met_or_missed_at_their_number() -> None:
    assert [sb3.Bar("", ratio, 3.0).verdict for ratio in (None, 2.99, 3.0)] == ["not measured", "FAIL", "PASS"]


def test_impala_is_judged_by_its_bars() -> None:
    """Frames per second and their ratios, the bonus's cost, and scoring's share of the time worked."""
    speed = {impala.E3B_FAST: 7000.0, impala.NONE_FAST: 11_000.0, impala.AUTHORS_FAST: 281.0}
    ours = {"score": 7.0, "policy": 133.0, "rollout": 50.0, "actor_wait": 90.0}  # the last two are waiting
    stages = {impala.E3B_FAST: ours, impala.NONE_FAST: {}, impala.AUTHORS_FAST: {}}
    verdicts = {what: (value, holds) for what, value, _, holds in impala.bars(speed, stages)}
    assert verdicts[f"frames/s: {impala.E3B_FAST}"] == (7000.0, True)
    assert verdicts["ours / authors, fast"] == (pytest.approx(24.91, abs=0.01), False)
    assert verdicts["cost of E3B, fast"] == (pytest.approx(1.571, abs=0.01), True)
    assert verdicts["scoring's share of the time worked, fast"] == (pytest.approx(0.05), True)
    assert len(verdicts) == 4  # what was not measured is not judged


def test_impalas_benchmark_learns_from_every_frame_once() -> None:
    config = impala.E3B_FAST.config()
    assert (config.n_epochs, config.clip_range, config.engine) == (1, None, "process")


def test_impala_is_measured_on_a_real_run() -> None:
    small = {"actors": 1, "n_envs": 4, "batch_size": 32, "n_steps": 8}
    measured = impala.measure_ours(replace(impala.E3B_FAST.config(), **small), 0.5)
    assert measured.speed > 0
    assert {"embed", "score", "encoder", "policy", "actor_env", "actor_act"} <= set(measured.stages)


SPEED = {
    "inline": 1000.0,
    "process, 1 actor": 1500.0,
    "ray, 1 actor": 1275.0,
    "process, 2 actors": 2000.0,
    "ray, 2 actors": 1600.0,
    "learners=2, inline": 1600.0,
    scale.TWICE: 1700.0,
    scale.SIDE_BY_SIDE: 1900.0,
    scale.HALF: 850.0,
}


def test_scale_is_judged_by_its_bars() -> None:
    verdicts = [(bar.ratio, bar.verdict) for bar in scale.compare(SPEED)]
    assert verdicts == [(0.85, "PASS"), (0.8, "FAIL"), (1.6, "FAIL"), (1.7, "PASS")]
    assert scale.most_of_two_halves(SPEED) == pytest.approx(1.7)


def test_the_table_of_machines_names_what_limits_each_number() -> None:
    """100 us of learning, 500 of acting and 1,000 bytes per frame; a network of 1 MB/s."""
    transport = scale.Transport(100_000, 10.0, 50_000, 100_000, {"ray, 2 actors": 0.0})
    stages = {"ray, 2 actors": dict.fromkeys(scale.LEARNING, 20.0) | dict.fromkeys(scale.ACTING, 500 / 3)}
    actors, learners, runs = scale.extrapolate(SPEED, stages, transport, frames=100, batch=100, network=1e6)
    assert actors.frames_per_second == {
        1: pytest.approx(2000),
        8: pytest.approx(2000 / 7),
        64: pytest.approx(2000 / 63),
    }
    assert actors.limit == {1: "actors", 8: "network out", 64: "network out"}
    assert learners.frames_per_second == pytest.approx({1: 1700, 8: 8000, 64: 64_000})
    assert learners.limit == {1: "learners", 8: "network", 64: "network"}
    assert runs.frames_per_second == {1: 1900.0, 8: 15_200.0, 64: 121_600.0}


def test_every_contender_of_scale_is_a_run() -> None:
    configs = {name: scale.config_of(name) for name in scale.CONTENDERS}
    assert [config.engine for config in configs.values()] == [
        *["inline", "process", "ray", "process", "ray"],
        *["inline"] * 4,
    ]
    assert [config.actors for config in configs.values()] == [1, 1, 1, 2, 2, 1, 1, 1, 1]
    assert configs["learners=2, inline"].learners == 2
    each, alone = configs[scale.TWICE].part(1), configs["inline"]
    assert (each.n_envs, each.batch_size) == (alone.n_envs, alone.batch_size)
    divided, half = configs["learners=2, inline"].part(1), configs[scale.HALF]
    assert (divided.n_envs, divided.batch_size) == (half.n_envs, half.batch_size)
