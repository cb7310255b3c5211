"""AGENT=random and AGENT=random-forward: runs that learn nothing and are played like any other."""

import json
from collections import Counter

import numpy as np
import pytest
import yaml
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from agents.random_agent import RandomConfig, RandomForwardConfig, RandomPlayer
from experiments.evaluate import main as evaluate
from experiments.train import main as train
from experiments.watch import main as watch

LOOK = Box(0, 1, (2,))
EVERYBODY = np.zeros(50, bool)


CONFIGS = {"random": RandomConfig("Rooms-K3-v0"), "random-forward": RandomForwardConfig("Habitat-FloorPlan-v0")}


def player_of(agent, actions, seed):
    return RandomPlayer(CONFIGS[agent], None, "latest", (LOOK, actions), False, seed)


def shares(agent, actions):
    """How often each action came in 10,000 draws."""
    player = player_of(agent, actions, 0)
    counts = Counter(np.concatenate([player.act(None, EVERYBODY) for _ in range(200)]).tolist())
    return [counts[action] / 10_000 for action in range(int(actions.start + actions.n))]


@pytest.mark.parametrize(
    ("agent", "actions", "expected"),
    [
        ("random", Discrete(4), [0.25] * 4),
        ("random", Discrete(3), [1 / 3] * 3),
        ("random", Discrete(2, start=1), [0, 0.5, 0.5]),
        ("random-forward", Discrete(3), [0.8, 0.1, 0.1]),
        ("random-forward", Discrete(4), [0, 0.8, 0.1, 0.1]),  # without stop, which is the first
    ],
)
def test_actions_come_as_often_as_they_should(agent, actions, expected):
    np.testing.assert_allclose(shares(agent, actions), expected, atol=0.02)


@pytest.mark.parametrize("actions", [Box(-2.0, 1.0, (3,)), MultiDiscrete([2, 5]), Discrete(7)])
def test_the_seed_fixes_the_draws_and_the_environments_own_generator_is_left_alone(actions):
    def drawn(seed):
        return player_of("random", actions, seed).act(None, EVERYBODY)

    actions.seed(3)
    ahead = [actions.sample() for _ in range(5)]
    actions.seed(3)
    first = drawn(0)
    assert all(action in actions for action in first)
    assert len({str(action) for action in first}) > 1
    np.testing.assert_array_equal(first, drawn(0))
    assert (first != drawn(1)).any()
    np.testing.assert_array_equal([actions.sample() for _ in range(5)], ahead)


@pytest.mark.parametrize(
    ("env", "options"),
    [
        ("Rooms-K3-v0", ["env.max_steps=5"]),
        ("MiniGrid-MultiRoom-N2-S4-v0", ["env.max_steps=5", "env.position=true"]),
        ("MiniHack-LavaCross-Restricted-v0", ["env.max_steps=5", "env.level_pool=2"]),
        ("VizdoomMyWayHomeSparse-v0", ["env.max_steps=5"]),
        ("Pendulum-v1", []),
    ],
)
def test_it_is_a_run_in_every_suite(env, options, tmp_path, capsys):
    run = tmp_path / "run"
    assert train([f"ENV={env}", "AGENT=random", "SEED=4", f"RUN={run}", *options]) == 0
    output = capsys.readouterr().out
    assert "does not learn; the run is ready for evaluate and watch" in output
    assert f"next: make evaluate RUN={run}" in output
    saved = yaml.safe_load((run / "config.yaml").read_text())
    assert (saved["agent"], saved["config"]["seed"]) == ("random", 4)
    assert saved["provenance"][0]["commit"]
    assert evaluate([f"RUN={run}", "EPISODES=3"]) == 0
    assert f"{env}: random after 0 frames" in capsys.readouterr().out
    found = json.loads((run / "evaluation-latest-seed0.json").read_text())
    assert (found["episodes"], found["frames"]) == (3, 0)


@pytest.fixture
def rooms(tmp_path, capsys):
    run = tmp_path / "rooms"
    assert train(["ENV=Rooms-K3-v0", "AGENT=random", f"RUN={run}", "env.max_steps=5"]) == 0
    capsys.readouterr()
    return run


def test_it_can_be_watched_and_gets_no_bonus(rooms, capsys):
    assert watch([f"RUN={rooms}", "EPISODES=2"]) == 0
    out = capsys.readouterr().out
    assert out.count("time limit") == 2
    assert "█" not in out


def test_there_is_nothing_to_resume_and_nothing_most_probable(rooms, capsys):
    before = (rooms / "config.yaml").read_bytes()
    assert train([f"RUN={rooms}", "RESUME=1", "STEPS=1M"]) == 2
    assert "AGENT=random learns nothing, so there is nothing to resume" in capsys.readouterr().err
    assert evaluate([f"RUN={rooms}", "GREEDY=1"]) == 2
    assert "random has no policy" in capsys.readouterr().err
    assert train(["ENV=Rooms-K3-v0", "AGENT=random", f"RUN={rooms}"]) == 2
    assert "holds a run already" in capsys.readouterr().err
    assert (rooms / "config.yaml").read_bytes() == before


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["AGENT=random-forward"], "the last three actions of Rooms-K3-v0 are others"),
        (["AGENT=forward"], "did you mean random-forward?"),
        (["AGENT=xyz"], "random, random-forward, recurrent_ppo"),
        (["METHOD=random"], "METHOD=random is an agent; write AGENT=random"),
        (["AGENT=random", "env.colour=red"], "has no option env.colour"),
        (["AGENT=random", "ridge=0.1"], "bonus.ridge= has no effect: AGENT=random learns nothing"),
        (["AGENT=random", "STEPS=1M"], "steps= has no effect: AGENT=random learns nothing"),
        (["AGENT=random", "keep=5"], "keep= has no effect: AGENT=random learns nothing"),
        (["AGENT=random", "METHOD=e3b"], "method= has no effect: AGENT=random learns nothing"),
        (["AGENT=random", "learning_rate=1"], "error: random has no option 'learning_rate'"),
    ],
)
def test_mistakes_are_answered_in_one_line_and_nothing_is_written(options, reason, tmp_path, capsys):
    assert train(["ENV=Rooms-K3-v0", f"RUN={tmp_path / 'run'}", *options]) == 2
    error = capsys.readouterr().err
    assert reason in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_the_help_names_them(capsys):
    assert train([]) == 0
    output = capsys.readouterr().out
    assert all(agent in output for agent in CONFIGS)
