"""It learns: the paper's argument in a few minutes. With a clock in the observation every state is new, so counting
whole observations says nothing, and a bonus on what the agent controls still leads through the rooms.
"""

import pytest

from experiments.rooms import WORLDS, make_run
from experiments.study import run_all


@pytest.mark.slow
def test_under_a_clock_e3b_finds_the_goal_and_counting_does_not():
    methods = ("e3b", "first-visit", "none")
    success = {}
    for number, point in run_all([make_run(method, WORLDS["clock"], 0) for method in methods]):
        if point is not None:
            success[methods[number]] = point.success
    assert success["e3b"] >= 0.8
    assert success["first-visit"] <= 0.2
    assert success["none"] <= 0.2
