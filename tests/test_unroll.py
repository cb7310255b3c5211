"""Unroll: the overlap, episode ends, and cutting."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from e3b_gym.unroll import Unroll, tree_leaves, tree_map


def numbered(done, known=None, starts=None, slots=None) -> Unroll:
    """An unroll whose observation at (t, b) is 100 t + b, and whose terminal observations are -(100 t + b)."""
    done = torch.tensor(done, dtype=torch.bool)
    steps, envs = done.shape
    known = done if known is None else torch.tensor(known, dtype=torch.bool)
    t, b = torch.meshgrid(torch.arange(steps + 1), torch.arange(envs), indexing="ij")
    obs = {"x": (100 * t + b).float()[..., None], "pair": (t, b)}
    last = tree_map(lambda leaf: -leaf[:-1][known], obs)
    return Unroll(
        obs=obs,
        action=(100 * t + b)[:-1],
        done=done,
        starts=torch.zeros(envs, dtype=torch.bool) if starts is None else torch.tensor(starts),
        terminal_obs=last,
        terminal_known=known,
        slots=slots,
    )


def test_next_obs_is_the_row_below_except_where_an_episode_ended():
    unroll = numbered([[0, 1], [0, 0], [1, 0]])
    assert unroll.next_obs["x"][..., 0].tolist() == [[100, -1], [200, 201], [-200, 301]]


def test_first_marks_the_step_after_an_end():
    unroll = numbered([[0, 1], [0, 0], [1, 0]], starts=[True, False])
    assert unroll.first.tolist() == [[True, False], [False, True], [False, False]]


def test_a_done_step_without_its_last_observation_is_not_valid():
    unroll = numbered([[1, 1], [0, 0]], known=[[1, 0], [0, 0]])
    assert unroll.valid.tolist() == [[True, False], [True, True]]
    assert unroll.mean(torch.tensor([[3.0, 99.0], [0.0, 3.0]])) == 2.0


def test_without_terminal_observations_no_end_is_known():
    unroll = Unroll(
        torch.zeros(3, 2, 4),
        torch.zeros(2, 2),
        torch.ones(2, 2, dtype=torch.bool),
        torch.zeros(2, dtype=torch.bool),
    )
    assert not unroll.valid.any()


flags = st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=8)


@settings(deadline=None)
@given(flags, flags, st.data())
def test_windows_put_together_give_the_whole(done, known, data):
    known = [[d and k for d, k in zip(a, b, strict=True)] for a, b in zip(done, known + [[True] * 3] * 8, strict=False)]
    unroll = numbered(done, known)
    cut = data.draw(st.integers(0, unroll.num_steps))
    parts = [unroll.window(0, cut), unroll.window(cut, unroll.num_steps)]
    for whole, one, two in zip(tree_leaves(unroll.next_obs), *(tree_leaves(p.next_obs) for p in parts), strict=True):
        assert torch.equal(whole, torch.cat([one, two]))
    assert torch.equal(unroll.first, torch.cat([part.first for part in parts]))
    assert torch.equal(unroll.valid, torch.cat([part.valid for part in parts]))


@settings(deadline=None)
@given(flags, st.permutations([0, 1, 2]), st.integers(1, 3))
def test_columns_take_their_terminal_observations_along(done, order, size):
    unroll = numbered(done, starts=[True, False, True], slots=torch.tensor([7, 8, 9]))
    index = torch.tensor(order[:size])
    part = unroll.columns(index)
    assert torch.equal(part.next_obs["x"], unroll.next_obs["x"][:, index])
    assert torch.equal(part.first, unroll.first[:, index])
    assert part.slots.tolist() == [[7, 8, 9][i] for i in order[:size]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"done": torch.zeros(2, 3)}, "done must be bool"),
        ({"starts": torch.zeros(2, dtype=torch.bool)}, r"starts must be bool \[3\]"),
        ({"obs": torch.zeros(2, 3, 1)}, r"every leaf of obs must be \[T\+1, B"),
        ({"action": torch.zeros(3, 3)}, r"action must be \[2, 3"),
        ({"slots": torch.arange(4)}, r"slots must be \[3\]"),
        ({"terminal_obs": torch.zeros(1, 1)}, "one row for each of the 2 known"),
        ({"terminal_known": torch.ones(2, 3, dtype=torch.bool)}, "must mark done steps only"),
        ({"terminal_known": torch.eye(2, 3, dtype=torch.bool)}, "terminal_obs is missing"),
    ],
)
def test_wrong_shapes_are_refused(change, message):
    good = {
        "obs": torch.zeros(3, 3, 1),
        "action": torch.zeros(2, 3),
        "done": torch.eye(2, 3, dtype=torch.bool),
        "starts": torch.zeros(3, dtype=torch.bool),
    }
    Unroll(**good)
    with pytest.raises(ValueError, match=message):
        Unroll(**(good | change))
