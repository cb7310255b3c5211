"""What the report says of numbers inside and outside their healthy ranges."""

import json
from dataclasses import replace

import numpy as np
import pytest
from recorded import episode, falling

from e3b_gym.diagnosis import HEALTHY, Diagnosis, Setup, find

UNIFORM = np.full((40, 4), 0.25)
SURE = np.tile([0.97, 0.01, 0.01, 0.01], (40, 1))
MIXED = np.tile([0.6, 0.2, 0.1, 0.1], (40, 1))
PHI = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
SETUP = Setup("a run", beta=0.01, sigma=float(np.std(falling())), options={"ent_coef": 0.01, "vf_coef": 0.5})


def healthy(**fields):
    bonus = falling()
    known = {
        "probabilities": MIXED,
        "values": episode(bonus).returns((0.99,)),
        "phi": PHI,
        "inverse_right": np.ones(40),
    }
    return episode(bonus, **{**known, **fields})


def names(played, setup=SETUP):
    return [finding.name for finding in find([played], setup) if finding.is_problem]


def test_healthy_numbers_have_no_problem():
    diagnosis = Diagnosis.of([healthy()], SETUP)
    assert diagnosis.problems == []
    assert diagnosis.conclusion() == "Every number is healthy: train for longer."


@pytest.mark.parametrize(
    ("fields", "name", "verdict", "option"),
    [
        ({"inverse_right": np.zeros(40)}, "inverse_skill", "low", "train the encoder"),
        ({"phi": np.ones((40, 8), np.float32)}, "phi_rank", "low", "encoder_learning_rate"),
        ({"values": np.zeros((40, 1))}, "explained_variance", "low", "vf_coef=0.5"),
        ({"probabilities": SURE, "inverse_right": None}, "entropy", "low", "ent_coef=0.01"),
        ({"probabilities": UNIFORM}, "entropy", "high", "ent_coef=0.01"),
    ],
)
def test_one_number_outside_its_range_names_its_option(fields, name, verdict, option):
    diagnosis = Diagnosis.of([healthy(**fields)], SETUP)
    (problem,) = diagnosis.problems
    assert (problem.name, problem.verdict) == (name, verdict)
    assert option in problem.change
    assert problem.cause in diagnosis.conclusion()


@pytest.mark.parametrize(("factor", "change"), [(100.0, "lower beta=1 to"), (0.01, "raise beta=0.0001 to")])
def test_a_bonus_of_the_wrong_size_names_beta(factor, change):
    large = factor * falling()
    played = healthy(intrinsic=large, rewards=large[:, None], values=episode(large).returns((0.99,)))
    diagnosis = Diagnosis.of([played], replace(SETUP, beta=0.01 * factor))
    assert change in diagnosis["bonus_to_goal"].change


@pytest.mark.parametrize(
    ("worth", "ending", "said"), [(0.5, "time limit", False), (2.5, "time limit", True), (2.5, "success", False)]
)
def test_an_agent_that_may_stay_for_the_bonus_is_noticed(worth, ending, said):
    played = replace(healthy(), ending=ending, intrinsic=worth * falling() / falling().sum())
    assert ("stay for the bonus" in Diagnosis.of([played], SETUP)["bonus_to_goal"].detail) is said
    others = [played, replace(played, ending="failure")]  # one that ends early is enough against it
    assert "stay for the bonus" not in Diagnosis.of(others, SETUP)["bonus_to_goal"].detail


def test_an_action_that_is_hardly_tried_is_named():
    p = np.tile([0.4, 0.3, 0.2995, 0.0005], (40, 1))
    diagnosis = Diagnosis.of([healthy(probabilities=p)], replace(SETUP, action_names=("n", "e", "s", "fire")))
    (problem,) = diagnosis.problems
    assert problem.name == "improbable_share"
    assert "fire in 100% of states" in problem.cause


def test_a_certain_policy_that_solves_the_task_is_healthy():
    won = {"success": True, "extrinsic": np.eye(40)[-1]}
    assert names(replace(healthy(probabilities=SURE, inverse_right=None), **won)) == []


def test_predictable_actions_do_not_blame_the_encoder():
    played = healthy(probabilities=np.tile([0.9997, 0.0001, 0.0001, 0.0001], (40, 1)), inverse_right=np.zeros(40))
    assert names(played) == ["entropy", "improbable_share"]


def test_a_bonus_that_never_gets_stale_without_an_ellipse_is_not_blamed_on_the_ridge():
    constant = np.full(40, 0.01)
    problem = Diagnosis.of([healthy(intrinsic=constant)], replace(SETUP, sigma=0.001))["stale_share"]
    assert problem.verdict == "high"
    assert "ridge" not in problem.change


def test_without_a_bonus_there_are_no_findings_about_it():
    diagnosis = Diagnosis.of([healthy()], replace(SETUP, has_bonus=False))
    assert "bonus_first" not in diagnosis
    assert "method none" in diagnosis.conclusion()


def test_what_was_not_recorded_is_left_out():
    diagnosis = Diagnosis.of([episode(falling())], SETUP)
    for name in ("inverse_skill", "phi_rank", "explained_variance", "entropy", "improbable_share"):
        assert name not in diagnosis


def test_reward_free_runs_have_no_goal_to_compare_with():
    diagnosis = Diagnosis.of([healthy()], replace(SETUP, extrinsic=0.0))
    assert "bonus_to_goal" not in diagnosis
    assert "reward_share" not in diagnosis


def test_it_fits_on_one_screen_and_says_every_number():
    broken = healthy(probabilities=SURE, values=np.zeros((40, 1)), phi=np.ones((40, 8), np.float32))
    diagnosis = Diagnosis.of([broken, healthy()], replace(SETUP, clip=1.0))
    lines = str(diagnosis).splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 110
    for finding in diagnosis.findings:
        assert any(line.startswith(finding.label) for line in lines)
    assert {finding.name for finding in diagnosis.findings} >= set(HEALTHY)


def test_json_and_picture(tmp_path):
    diagnosis = Diagnosis.of([healthy(), healthy(values=np.zeros((40, 1)))], SETUP)
    data, picture = diagnosis.save(tmp_path / "new" / "doctor")
    read = json.loads(data.read_text())
    assert read["findings"][0]["name"] == "inverse_skill"
    assert read["endings"] == {"time limit": 1.0}
    assert read["problems"] == [problem.name for problem in diagnosis.problems]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_episodes_that_end_unseen_are_drawn_without_a_warning(tmp_path):
    last_unseen = np.arange(40) < 39
    Diagnosis.of([healthy(valid=last_unseen)], SETUP).save(tmp_path / "last")
    nothing_seen = Diagnosis.of([healthy(valid=np.zeros(40, dtype=bool))], SETUP)
    nothing_seen.save(tmp_path / "nothing")
    for name in ("bonus_first", "inverse_skill", "phi_rank"):
        assert name not in nothing_seen


def test_no_episodes_are_refused():
    with pytest.raises(ValueError, match="at least one recorded episode"):
        find([], SETUP)
