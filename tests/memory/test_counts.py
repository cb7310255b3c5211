"""Counts and the hashing under them."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from e3b_gym.memory import CountMemory, hash_rows

small_rows = st.integers(1, 6).flatmap(
    lambda width: st.lists(st.lists(st.integers(0, 2), min_size=width, max_size=width), min_size=1, max_size=20)
)


@settings(deadline=None)
@given(small_rows)
def test_rows_share_a_key_exactly_when_they_are_equal(rows):
    keys = hash_rows(torch.tensor(rows, dtype=torch.uint8))
    for i, one in enumerate(rows):
        for j, other in enumerate(rows):
            assert (keys[i] == keys[j]) == (one == other)


def test_every_leaf_of_a_tree_counts():
    tree = {
        "a": torch.tensor([[1], [1], [1]]),
        "b": (torch.tensor([1.0, 1.0, 2.0]), torch.tensor([True, False, True])),
    }
    assert len(set(hash_rows(tree).tolist())) == 3


def test_the_sign_of_zero_does_not_count():
    assert len(set(hash_rows(torch.tensor([[0.0], [-0.0]])).tolist())) == 1


def test_keys_do_not_depend_on_the_layout_in_memory():
    rows = torch.arange(12).reshape(3, 4)
    assert np.array_equal(hash_rows(rows), hash_rows(rows.T.contiguous().T))


def visit(memory, keys, first, slots=None, opening=None):
    keys, first = np.asarray(keys), torch.tensor(first, dtype=torch.bool)
    opening = np.full(int(first.sum()), -1) if opening is None else np.asarray(opening)
    return memory.visit(keys, first, torch.ones_like(first), opening, slots)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=30))
def test_episodic_counts_equal_a_counter_that_is_cleared(steps):
    memory, counter = CountMemory(1), Counter()
    for key, first in steps:
        if first:
            counter.clear()
            counter[-1] += 1
        counter[key] += 1
        assert visit(memory, [[key]], [[first]]).item() == counter[key]


def test_the_episodes_first_observation_is_a_visit():
    assert visit(CountMemory(1), [[5], [5]], [[1], [0]], opening=[5]).flatten().tolist() == [2, 3]


def test_the_global_table_counts_all_environments_and_never_forgets():
    memory = CountMemory(2, episodic=False)
    assert visit(memory, [[5, 5]], [[1, 1]]).tolist() == [[2, 2]]
    assert visit(memory, [[5, 6]], [[1, 1]]).tolist() == [[3, 1]]


def test_slots_choose_the_tables():
    memory = CountMemory(3)
    visit(memory, [[5, 5, 5]], [[0, 0, 0]])
    assert visit(memory, [[5, 6]], [[0, 1]], slots=torch.tensor([2, 0])).tolist() == [[2, 1]]
    assert visit(memory, [[5]], [[0]], slots=torch.tensor([0])).tolist() == [[1]]


def test_unknown_arrivals_are_not_counted():
    memory = CountMemory(1)
    known = torch.tensor([[False], [True]])
    counts = memory.visit(np.array([[5], [5]]), torch.zeros(2, 1, dtype=torch.bool), known, np.empty(0, np.int64))
    assert counts.tolist() == [[0], [1]]


@pytest.mark.parametrize("episodic", [True, False])
def test_saved_counts_continue(episodic):
    memory, loaded = CountMemory(2, episodic), CountMemory(2, episodic)
    visit(memory, [[5, 2**62], [5, -7]], [[1, 1], [0, 0]])
    loaded.load_state_dict(memory.state_dict())
    again = ([[5, -7]], [[0, 0]])
    assert torch.equal(visit(memory, *again), visit(loaded, *again))


def test_wrong_sizes_are_refused():
    with pytest.raises(ValueError, match="num_envs must be at least 1"):
        CountMemory(0)
    with pytest.raises(ValueError, match="num_envs=2, episodic=True"):
        CountMemory(3).load_state_dict(CountMemory(2).state_dict())
    with pytest.raises(ValueError, match=r"slots must be 1 of the 2 environments"):
        visit(CountMemory(2), [[5]], [[0]], slots=torch.tensor([2]))
