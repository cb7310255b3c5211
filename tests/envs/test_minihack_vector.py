"""The inline vector environment: the episodes of single ones, SAME_STEP autoreset, true final observations."""

import functools
import gc

import numpy as np
import pytest
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from stable_baselines3.common.vec_env import SubprocVecEnv

from e3b_gym.envs import minihack

FREEZE, LAVA = "MiniHack-Freeze-Random-Restricted-v0", "MiniHack-MultiRoom-N6-Lava-v0"


@pytest.fixture
def make_vec():
    """`minihack.make_vec`, closing everything after the test."""
    made = []

    def make(*args, **options):
        made.append(minihack.make_vec(*args, **options))
        return made[-1]

    yield make
    for env in made:
        env.close()


def assert_same(ours, theirs):
    """Equality of observations, arrays and nested infos."""
    if isinstance(theirs, dict):
        assert set(ours) == set(theirs)
        for key in theirs:
            assert_same(ours[key], theirs[key])
    elif isinstance(theirs, np.ndarray) and theirs.dtype == object:
        for our, their in zip(ours, theirs, strict=True):
            assert_same(our, their)
    else:
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("id", "limit"),
    [(LAVA, 30), (FREEZE, 9), ("MiniHack-LavaCross-Restricted-v0", 25), ("MiniHack-MultiRoom-N2-v0", 40)],
)
@pytest.mark.parametrize("seed", [7, [40, 2, 9]])
def test_it_is_gymnasiums_sync_vector_env_of_single_envs(id, limit, seed, make_vec):
    ours = make_vec(id, 3, max_episode_steps=limit)
    maker = functools.partial(minihack.make, id, max_episode_steps=limit)
    theirs = SyncVectorEnv([maker] * 3, autoreset_mode=AutoresetMode.SAME_STEP)
    rng = np.random.default_rng(0)
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert_same(ours.reset(seed=seed)[0], theirs.reset(seed=seed)[0])
    finals = 0
    for _ in range(60):
        actions = rng.integers(ours.single_action_space.n, size=3)
        our_step, their_step = ours.step(actions), theirs.step(actions)
        for our_part, their_part in zip(our_step, their_step, strict=True):
            assert_same(our_part, their_part)
        finals += "final_obs" in our_step[4]
    assert finals > 0
    assert ours.metadata["autoreset_mode"] == theirs.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
    theirs.close()


def test_death_is_flagged_in_the_final_info(make_vec):
    env = make_vec(LAVA, 4)
    env.reset(seed=0)
    for _ in range(60):
        observations, _, terminated, _, infos = env.step(np.zeros(4, int))
        if terminated.any():
            break
    (i, *_) = np.flatnonzero(terminated)
    assert not infos["final_info"]["final_observation_valid"][i]
    assert infos["final_info"]["_final_observation_valid"][i]
    assert not infos["final_obs"][i]["blstats"].any()
    assert observations["blstats"][i].any()


def test_returned_batches_and_final_observations_belong_to_the_caller(make_vec):
    env = make_vec(FREEZE, 3, max_episode_steps=4)
    kept = [env.reset(seed=0)[0]]
    finals = []
    for step in range(4):
        observations, *_, infos = env.step(np.full(3, step))
        kept.append(observations)
        finals += list(infos.get("final_obs", []))
    copies = [{key: array.copy() for key, array in batch.items()} for batch in kept + finals]
    for step in range(6):
        env.step(np.full(3, step))
    assert len(finals) == 3
    for batch, copy in zip(kept + finals, copies, strict=True):
        assert_same(batch, copy)


def test_without_copies_the_batch_is_the_same_memory_every_step(make_vec):
    views, copies = make_vec(FREEZE, 3, copy=False), make_vec(FREEZE, 3)
    first = views.reset(seed=0)[0]
    copies.reset(seed=0)
    for step in range(12):
        ours, theirs = views.step(np.full(3, step)), copies.step(np.full(3, step))
        assert_same(ours[0], theirs[0])
        assert all(np.shares_memory(ours[0][key], first[key]) for key in first)


def test_a_list_of_seeds_may_leave_games_running_on(make_vec):
    env, reference = make_vec(FREEZE, 2), make_vec(FREEZE, 2)
    env.reset(seed=[1, 2])
    reference.reset(seed=[1, 2])
    again, _ = env.reset(seed=[1, None])
    following, _ = reference.reset()
    np.testing.assert_array_equal(again["glyphs"][1], following["glyphs"][1])
    assert (again["glyphs"][0] != following["glyphs"][0]).any()


def test_without_seeds_games_differ(make_vec):
    observations, _ = make_vec("MiniHack-MultiRoom-N6-v0", 4).reset()
    assert len({glyphs.tobytes() for glyphs in observations["glyphs"]}) == 4


def test_each_game_is_drawn(make_vec):
    env = make_vec(FREEZE, 2, render_mode="rgb_array")
    with pytest.raises(ResetNeeded, match="reset"):
        env.render()
    env.reset(seed=0)
    first, second = env.render()
    assert first.shape == second.shape == (384, 720, 3)
    assert (first != second).any()
    assert make_vec(FREEZE, 1).reset(seed=0)


@pytest.mark.parametrize(
    ("actions", "complaint"),
    [(np.array([0, 12]), r"0\.\.11"), (np.array([-1, 0]), r"0\.\.11"), (np.array([0]), r"shape \(1,\)")],
)
def test_bad_actions_are_refused(actions, complaint, make_vec):
    env = make_vec(FREEZE, 2)
    with pytest.raises(ResetNeeded, match="call reset"):
        env.step(np.zeros(2, int))
    env.reset(seed=0)
    with pytest.raises(ValueError, match=complaint):
        env.step(actions)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"num_envs": 0}, "num_envs must be a whole number of at least 1; got 0"),
        ({"num_envs": "2"}, "num_envs must be a whole number of at least 1; got '2'"),
        ({"copy": "no"}, "copy must be true or false; got 'no'"),
        ({"copy": 0}, "copy must be true or false; got 0"),
    ],
)
def test_an_argument_of_the_wrong_type_is_named(arguments, complaint, make_vec):
    with pytest.raises(ValueError, match=f"^{complaint}$"):
        make_vec(FREEZE, **{"num_envs": 2, **arguments})


def test_arguments_may_be_numpy_numbers(make_vec):
    env = make_vec(FREEZE, np.int64(2), copy=np.bool_(False))
    assert (env.num_envs, env.copy) == (2, False)


def test_bad_arguments_are_refused(make_vec):
    with pytest.raises(ValueError, match="crop_size=-1"):
        make_vec(FREEZE, 2, crop_size=-1)
    with pytest.raises(ValueError, match="3 seeds for 2"):
        make_vec(FREEZE, 2).reset(seed=[1, 2, 3])


def test_closing_twice_is_fine_and_a_closed_one_says_so(make_vec):
    env = make_vec(FREEZE, 2)
    env.reset(seed=0)
    env.close()
    env.close()
    with pytest.raises(ClosedEnvironmentError, match="closed"):
        env.step(np.zeros(2, int))
    with pytest.raises(ClosedEnvironmentError, match="closed"):
        env.reset()


@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])  # loads torch twice
def test_single_envs_run_in_gymnasiums_worker_processes(context):
    gc.collect()
    local = minihack.make(FREEZE)  # its files must survive the workers
    local.reset(seed=3)
    workers = AsyncVectorEnv([functools.partial(minihack.make, FREEZE)] * 2, context=context)
    observations, _ = workers.reset(seed=3)
    workers.step(np.array([0, 1]))
    workers.close()
    np.testing.assert_array_equal(observations["glyphs"][0], local.reset(seed=3)[0]["glyphs"])
    local.close()


@pytest.mark.parametrize("method", ["fork", pytest.param("forkserver", marks=pytest.mark.slow)])  # loads torch twice
def test_single_envs_run_in_sb3s_worker_processes(method):
    workers = SubprocVecEnv([functools.partial(minihack.make, FREEZE, max_episode_steps=2)] * 2, start_method=method)
    workers.seed(3)
    first = workers.reset()
    workers.step(np.array([0, 1]))
    _, _, dones, infos = workers.step(np.array([0, 1]))
    workers.close()
    assert dones.all()
    assert infos[0]["TimeLimit.truncated"]
    assert infos[0]["final_observation_valid"]
    local = minihack.make(FREEZE)
    np.testing.assert_array_equal(first["glyphs"][0], local.reset(seed=3)[0]["glyphs"])
    local.close()
