"""`python -m benchmarks.resets`: compares checkouts by what they show and what they cost, and measures drift."""

import json
from pathlib import Path

import psutil
import pytest

from benchmarks import resets
from e3b_gym.envs import minihack

LAVA = "MiniHack-MultiRoom-N6-Lava-v0"


def test_a_checkout_against_itself_shows_the_same_and_costs_are_stored(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(resets, "PROMISED", 0.1)
    monkeypatch.setattr(resets, "FLAT", 10.0)  # 40 resets say nothing about time
    file = tmp_path / "new" / "resets.json"
    arguments = [f"AGAINST={resets.HERE}", "ROUNDS=1", "DRIFT=40", "GAMES=2", f"JSON={file}"]
    assert resets.main(arguments) == 0
    assert "the same observations" in capsys.readouterr().out
    stored = json.loads(file.read_text())
    assert set(stored) == {"cost", "drift"}
    assert stored["cost"]["now"]["reset_ms"] > 0
    assert stored["drift"]["rows"][-1]["resets"] >= 40
    assert stored["drift"]["summary"]["processes_first"] == stored["drift"]["summary"]["processes_last"]


class Recorded:
    """A checkout that shows and takes what it is given."""

    def __init__(self, seconds: float, digest: str) -> None:
        self.seconds, self.digest = seconds, digest

    def ask(self, *request: object) -> tuple[float, str]:
        return self.seconds, self.digest


def test_checkouts_that_show_different_levels_are_not_compared():
    with pytest.raises(RuntimeError, match="different observations"):
        resets.compare({"now": Recorded(1e-3, "a"), "other": Recorded(5e-3, "b")}, rounds=2)
    measured = resets.compare({"now": Recorded(1e-3, "a"), "other": Recorded(5e-3, "a")}, rounds=2)
    assert measured["other"]["reset_ms"] == 5 * measured["now"]["reset_ms"] == 5


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path):
    with pytest.raises(RuntimeError, match="root of a checkout"):
        resets.Checkout(tmp_path, LAVA)


def test_drift_compares_the_last_tenth_with_the_first_and_leaves_the_start_out():
    kept = {"fixed_work_ms": 1, "resident_mb": 1, "descriptors": 1, "processes": 1, "threads": 1, "file_kb": 1}
    rows = [{"resets": i, "reset_ms": 100 if i == 0 else 1 + i} | kept for i in range(21)]
    summary = resets.drift_summary(rows)
    assert (summary["reset_ms_first"], summary["reset_ms_last"]) == (2.5, 20.5)
    assert summary["slower_by"] == 8.2
    assert resets.drift_problems(summary, 2) == ["a reset takes 8.20 times as long at the end"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, None),
        ({"resident_mb_last": 16.0}, "resident memory grew by 6.0 MB"),
        ({"descriptors_last": 40.0}, "10 more files are open"),
        ({"processes_last": 3.0}, "1 more processes"),
        ({"threads_last": 4.0}, "2 more threads"),
    ],
)
def test_what_grows_over_many_resets_is_named(change, problem):
    flat = {"resident_mb": 10.0, "descriptors": 30.0, "processes": 2.0, "threads": 2.0}
    summary = {f"{name}_{end}": value for name, value in flat.items() for end in ("first", "last")}
    assert resets.drift_problems(summary | {"slower_by": 1.0} | change, games=4) == ([problem] if problem else [])


@pytest.mark.slow
def test_resets_take_as_long_after_many_as_at_first():
    env = minihack.make(LAVA)
    env.reset(seed=0)
    process, rows = psutil.Process(), list(resets.drift(LAVA, 20_000, 4))
    summary = resets.drift_summary(rows)
    assert resets.drift_problems(summary, games=4) == []
    assert process.num_threads() == summary["threads_last"]
    env.close()
