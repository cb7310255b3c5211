"""The benchmarks run, and judge what they measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import sb3


def test_the_sb3_benchmark_measures_and_judges(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = sb3.main(["--quick", "--json", str(tmp_path / "sb3.json")])
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
