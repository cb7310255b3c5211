"""It learns: the paper's argument in a few minutes. With a clock in the observation every state is new, so counting
whole observations says nothing, and a bonus on what the agent controls still leads through the rooms.
"""

import pytest

from experiments.catalogue import STUDIES
from experiments.reproduce import main
from experiments.results import read_results


@pytest.mark.slow
def test_under_a_clock_e3b_finds_the_goal_and_counting_does_not(tmp_path):
    assert main(["FIGURE=demo", f"RUNS={tmp_path}", "CORES=2"]) == 0
    success = {result.run.method.name: result.score for result in read_results(STUDIES["demo"], "home", tmp_path)}
    assert success["e3b"] >= 0.8
    assert success["first-visit"] <= 0.2
    assert success["none"] <= 0.2
