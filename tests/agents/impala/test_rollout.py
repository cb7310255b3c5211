"""The arrays between actor and learner."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Text, Tuple

from agents.impala.rollout import Rollout

SPACE = Dict(
    {
        "wide": Box(0, 2**32 - 1, (2,), np.uint32),
        "bytes": Box(0, 255, (3,), np.uint8),
        "pair": Tuple((Discrete(5), MultiBinary(2))),
    }
)


def room(space: gym.Space = SPACE, steps=4, envs=3, **options) -> Rollout:
    return Rollout.allocate(space, 6, steps, envs, (1, 2), **options)


def test_shapes_and_types():
    rollout = room()
    assert rollout.obs["wide"].shape == (5, 3, 2)
    assert rollout.obs["wide"].dtype == np.int64
    assert rollout.obs["bytes"].dtype == np.uint8
    assert rollout.obs["pair"][0].shape == (5, 3)
    assert rollout.terminal_obs["pair"][1].shape == (4, 3, 2)
    assert rollout.logits.shape == (4, 3, 6)
    assert (rollout.steps, rollout.num_envs) == (4, 3)
    hidden, cell = rollout.lstm_state()
    assert hidden.shape == cell.shape == (1, 3, 2)


def test_wide_unsigned_numbers_arrive_whole():
    rollout = room()
    rollout.obs["wide"][1, 2] = np.array([2**32 - 1, 7], np.uint32)
    assert rollout.unroll().obs["wide"][1, 2].tolist() == [2**32 - 1, 7]


def test_terminal_rows_come_back_at_their_steps():
    rollout = room(Box(0, 100, (1,), np.float32))
    rollout.done[1, 2] = rollout.done[1, 0] = rollout.done[3, 1] = rollout.done[2, 2] = True
    rollout.terminal_known[:] = rollout.done
    rollout.terminal_known[2, 2] = False  # a death screen
    rollout.terminal_obs[:] = 99  # of an earlier filling
    rollout.terminal_obs[[1, 1, 3], [0, 2, 1], 0] = 10, 12, 31
    unroll = rollout.unroll()
    arrived = unroll.next_obs[..., 0]
    assert (arrived[1, 0], arrived[1, 2], arrived[3, 1]) == (10, 12, 31)
    assert 99 not in arrived
    assert not unroll.valid[2, 2]


def test_without_known_ends_there_are_no_terminal_rows():
    assert room().unroll().terminal_obs is None


def test_slots_count_through_the_actors():
    rollout = room()
    rollout.header[:] = 2, 17
    assert rollout.unroll().slots.tolist() == [6, 7, 8]
    assert (rollout.actor, rollout.version) == (2, 17)


def test_an_unroll_is_a_view():
    rollout = room()
    unroll = rollout.unroll()
    rollout.action[2, 1], rollout.obs["bytes"][4, 0, 1] = 5, 200
    assert unroll.action[2, 1] == 5
    assert unroll.obs["bytes"][4, 0, 1] == 200
    assert unroll.policy_logits.dtype == torch.float32


def test_episodes_are_those_that_ended():
    rollout = room()
    rollout.episode_return[:] = np.arange(12).reshape(4, 3)
    rollout.episode_length[:] = 100 + np.arange(12).reshape(4, 3)
    rollout.success[:] = -1
    rollout.done[1, 1] = rollout.done[3, 0] = rollout.done[3, 2] = True
    rollout.success[1, 1], rollout.success[3, 0] = 1, 0
    episodes = rollout.episodes()
    assert episodes.returns.tolist() == [4, 9, 11]
    assert episodes.lengths.tolist() == [104, 109, 111]
    np.testing.assert_array_equal(episodes.successes, [1, 0, np.nan])


def test_memory_comes_from_where_the_caller_says():
    made = []

    def zeros(shape, dtype):
        made.append(np.zeros(shape, dtype))
        return made[-1]

    rollout = room(zeros=zeros)
    leaves = [rollout.action, rollout.obs["bytes"], rollout.terminal_obs["pair"][0], rollout.header, rollout.state]
    assert all(any(leaf is array for array in made) for leaf in leaves)
    assert len(made) == 12 + 2 * 4


def test_an_observation_without_a_fixed_size_is_refused():
    with pytest.raises(ValueError, match="no fixed-size array"):
        room(Dict({"words": Text(5)}))
