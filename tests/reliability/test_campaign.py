"""The short form of the campaign of faults; `make campaign` is the long one."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # this folder is run as `python -m tests.reliability.campaign`, too

from tests.reliability.kills import actors, kills
from tests.reliability.writes import failing_writes


def test_a_write_that_fails_costs_no_run(tmp_path):
    found = failing_writes(tmp_path, ["impala"], every=13, first=4)
    assert found["lost"] == []
    assert found["tried"] == found["survived"] > 10


@pytest.mark.slow
def test_killed_runs_resume_without_loss(tmp_path):
    found = kills(tmp_path, 3)
    assert found["lost"] == []


@pytest.mark.slow
def test_a_run_whose_actors_are_killed_and_stopped_ends_at_its_full_frames(tmp_path):
    found = actors(tmp_path, killed=4, stopped=1)
    assert found["lost"] == []
    assert found["frames"] == found["steps"]
