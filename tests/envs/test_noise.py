"""Noise on demand: the counter counts, the bits are fair and seeded, and what was there stays as it was."""

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from e3b_gym.envs import NoisyObservation, NoisyVectorObservation, make, make_vec

CARTPOLE, GRID = "CartPole-v1", "MiniGrid-Empty-5x5-v0"


@settings(max_examples=20, deadline=None)
@given(bits=st.integers(1, 12), steps=st.integers(0, 40))
def test_the_clock_counts_the_steps_of_the_episode_in_binary(bits: int, steps: int) -> None:
    env = make(GRID, clock=bits)
    env.reset(seed=0)
    observation, _ = env.reset()
    for _ in range(steps):
        observation, *_ = env.step(0)
    assert env.observation_space.contains(observation)
    assert int(observation["clock"] @ (1 << np.arange(bits))) == steps % 2**bits


def test_the_clock_can_be_a_number_and_true_means_ten_bits() -> None:
    env = make(CARTPOLE, clock="scalar")
    env.reset(seed=0)
    assert env.step(0)[0]["clock"] == np.float32(1)
    assert make(CARTPOLE, clock=True).observation_space["clock"] == spaces.MultiBinary(10)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), noise=st.integers(1, 70), clock=st.integers(0, 12))
def test_what_was_seen_before_stays_as_it_was(seed: int, noise: int, clock: int) -> None:
    plain, noisy = make(CARTPOLE), make(CARTPOLE, noise=noise, clock=clock)
    before, after = plain.reset(seed=seed)[0], noisy.reset(seed=seed)[0]
    for action in (0, 1, 1, 0):
        assert np.array_equal(after["observation"], before)
        assert after["noise"].shape == (noise,)
        before, after = plain.step(action)[0], noisy.step(action)[0]


def test_a_dict_observation_keeps_its_entries() -> None:
    assert set(make(GRID, noise=3, clock=2).observation_space) == {"image", "direction", "clock", "noise"}


def test_the_bits_are_fair_and_differ_between_steps_and_bits() -> None:
    env = make(GRID, noise=50)
    env.reset(seed=0)
    drawn = np.array([env.step(0)[0]["noise"] for _ in range(90)])  # [90, 50]
    assert abs(drawn.mean() - 0.5) < 4 * 0.5 / np.sqrt(drawn.size)
    assert len(np.unique(drawn, axis=0)) == 90
    assert len(np.unique(drawn.T, axis=0)) == 50


def test_the_action_does_not_move_the_noise() -> None:
    drawn = []
    for action in (0, 1):
        env = make(GRID, noise=20, clock=4)
        env.reset(seed=7)
        drawn.append([env.step(action)[0] for _ in range(5)])
    for left, right in zip(*drawn, strict=True):
        assert np.array_equal(left["noise"], right["noise"])
        assert np.array_equal(left["clock"], right["clock"])


def test_a_batch_can_be_wrapped_as_a_whole() -> None:
    """The vector wrapper around a plain batch equals a batch of wrapped environments, final observations included."""
    wrapped = NoisyVectorObservation(make_vec(GRID, 3, max_steps=4), clock=3, noise=5)
    each = make_vec(GRID, 3, max_steps=4, clock=3, noise=5)
    assert wrapped.observation_space == each.observation_space
    (a, _), (b, _) = wrapped.reset(seed=1), each.reset(seed=1)
    for t in range(10):
        for key in a:
            assert np.array_equal(a[key], b[key]), (t, key)
        a, *_, a_info = wrapped.step([0, 1, 0])
        b, *_, b_info = each.step([0, 1, 0])
        assert ("final_obs" in a_info) == ("final_obs" in b_info)
        for mine, theirs in zip(a_info.get("final_obs", ()), b_info.get("final_obs", ()), strict=True):
            assert all(np.array_equal(mine[key], theirs[key]) for key in theirs)
            assert int(mine["clock"] @ [1, 2, 4]) == 4


def test_seeds_may_be_given_one_by_one() -> None:
    envs = NoisyVectorObservation(make_vec(GRID, 2), noise=30)
    one = envs.reset(seed=[4, 9])[0]["noise"]
    other = envs.reset(seed=[9, 4])[0]["noise"]
    assert np.array_equal(one, other[::-1])
    assert not np.array_equal(one[0], one[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clock": "binary"}, "clock must be true or false or a number of bits from 0 to 63 or 'scalar'; got 'binary'"),
        ({"clock": 64}, "clock must be .* a number of bits from 0 to 63 .*; got 64"),
        ({"clock": 2.5}, "clock must be .*; got 2.5"),
        ({"clock": None, "noise": 3}, "clock must be .*; got None"),
        ({"noise": -1}, "noise must be a whole number, 0 or more; got -1"),
        ({"noise": "abc"}, "noise must be a whole number, 0 or more; got 'abc'"),
        ({"noise": 2.5}, "noise must be a whole number, 0 or more; got 2.5"),
        ({}, "nothing to add"),
    ],
)
def test_wrong_settings_are_named(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NoisyObservation(make(CARTPOLE), **options)


def test_clock_and_noise_may_be_numpy_numbers() -> None:
    space = NoisyObservation(make(CARTPOLE), clock=np.bool_(True), noise=np.int64(3)).observation_space
    assert (space["clock"], space["noise"]) == (spaces.MultiBinary(10), spaces.MultiBinary(3))


def test_noise_is_not_added_twice() -> None:
    with pytest.raises(ValueError, match="already has noise"):
        NoisyObservation(make(CARTPOLE, noise=3), noise=3)


def test_a_batch_that_resets_later_is_refused() -> None:
    with pytest.raises(ValueError, match="SAME_STEP"):
        NoisyVectorObservation(SyncVectorEnv([lambda: make(CARTPOLE)]), noise=3)


@pytest.mark.parametrize("seed", [0, 5])
def test_a_numpy_integer_seeds_a_batch_like_an_int(seed: int) -> None:
    envs = NoisyVectorObservation(make_vec(CARTPOLE, 2), noise=30)
    expected = envs.reset(seed=seed)[0]
    for same in (np.int64(seed), np.int32(seed), np.array([seed, seed + 1]).tolist()):
        np.testing.assert_equal(envs.reset(seed=same)[0], expected)
    envs.close()
