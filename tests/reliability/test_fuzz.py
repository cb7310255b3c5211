"""Malformed command lines and damaged runs: every case works, or is refused in one line and changes nothing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # this folder is run as `python -m tests.reliability.fuzz`, too

from tests.reliability.fuzz import fuzz

CASES = 40


def test_no_case_of_the_generator_breaks_a_promise():
    found = fuzz(CASES, seed=20_22, first=0, agents=("impala", "ppo"), habitat=False)
    assert found.failures == []
    assert found.outcomes["refused"] > CASES / 4
    assert found.outcomes["works"] > CASES / 10
