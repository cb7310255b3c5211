"""The goal-only tasks of the study `wrapper`."""

from importlib.util import find_spec

import numpy as np
import pytest
from tiny_runs import FRAMES, rows, tiny

from e3b_gym.envs import make, make_vec
from experiments.train import main as train

GOALS = ("SparseMountainCar", "SparseMountainCarContinuous", "SparseAcrobot")


def drive(env, seed):
    """Pushes in the direction of movement, which swings a mountain car up."""
    obs, _ = env.reset(seed=seed)
    rewards, ended = [], False
    while not ended:
        push = obs[1] >= 0
        action = 2 * int(push) if env.action_space.shape == () else np.array([1.0 if push else -1.0], np.float32)
        obs, reward, terminated, truncated, info = env.step(action)
        rewards.append(reward)
        ended = terminated or truncated
    return rewards, terminated, info


@pytest.mark.parametrize("name", GOALS[:2])
def test_the_flag_is_worth_one_and_nothing_else_counts(name):
    rewards, terminated, info = drive(make(f"experiments.sparse:{name}-v0"), seed=0)
    assert terminated
    assert info["is_success"] is True
    assert rewards[-1] == 1.0
    assert not any(rewards[:-1])


@pytest.mark.parametrize("name", GOALS)
def test_the_time_limit_is_no_success(name):
    env = make(f"experiments.sparse:{name}-v0", max_steps=3)
    env.reset(seed=0)
    steps = [env.step(np.zeros(env.action_space.shape, env.action_space.dtype)) for _ in range(3)]
    _, reward, terminated, truncated, info = steps[-1]
    assert (reward, terminated, truncated, info["is_success"]) == (0.0, False, True, False)


def test_a_run_of_the_study_counts_successes(tmp_path):
    run = tmp_path / "run"
    options = ("METHOD=rnd", "env.max_steps=8")
    assert train(tiny(run, "experiments.sparse:SparseMountainCarContinuous-v0", "ppo", *options, steps=FRAMES)) == 0
    assert float(rows(run)[-1]["success"]) == 0.0


@pytest.mark.skipif(find_spec("ale_py") is None, reason="needs pip install '.[atari]'")
def test_freeway_counts_a_crossing_as_success():
    envs = make_vec("experiments.sparse:AtariFreeway-v0", 1, seed=0)
    obs, _ = envs.reset(seed=0)
    assert obs.shape == (1, 2, 42, 42)
    ended = False
    while not ended:
        _, _, terminated, truncated, infos = envs.step(np.array([1]))  # up
        ended = bool(terminated[0] or truncated[0])
    assert infos["final_info"]["is_success"][0]
    envs.close()
