"""Different rows are found exactly, and a memo asks for each of them once."""

import copy

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from e3b_gym.encoders.unique_rows import RowMemo, unique_rows

few_values = st.integers(0, 2)
batches = st.sampled_from([np.int16, np.uint8, np.int64]).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=2, max_dims=3, max_side=12), elements=few_values)
)


class Doubling:
    """f(row) = its sum, twice; remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []

    def __call__(self, rows: Tensor) -> Tensor:
        self.asked += rows.flatten(1).tolist()
        return (2.0 * rows.flatten(1).sum(1, keepdim=True)).float()


@settings(deadline=None)
@given(batches)
def test_unique_rows_are_different_complete_and_in_order_of_appearance(batch: np.ndarray) -> None:
    rows = torch.from_numpy(batch)
    different, numbers = unique_rows(rows)
    assert torch.equal(different[numbers.long()], rows)
    assert len({tuple(row) for row in different.flatten(1).tolist()}) == len(different)
    firsts = [numbers.tolist().index(u) for u in range(len(different))]
    assert firsts == sorted(firsts)


@pytest.mark.parametrize("dtype", [torch.int16, torch.int64])
def test_rows_that_differ_in_one_number_are_different(dtype: torch.dtype) -> None:
    """Also where the hash cannot tell: it sees 32 bits of each number, times 2**31 of which only the parity counts."""
    numbers = torch.tensor([0, 1, -1, 2**14, 7], dtype=dtype)
    if dtype == torch.int64:
        numbers = torch.cat([numbers, torch.tensor([2**31, 2**32, 2**33, 2**40 + 1])])
    rows = torch.zeros(len(numbers) * 50, 50, dtype=dtype)
    for place in range(50):
        rows[place * len(numbers) : (place + 1) * len(numbers), place] = numbers
    different, inverse = unique_rows(rows)
    assert len(different) == 50 * (len(numbers) - 1) + 1
    assert torch.equal(different[inverse.long()], rows)


def test_a_batch_that_is_a_view_into_another_is_read_right() -> None:
    rows = torch.arange(60, dtype=torch.int16).view(10, 6)[::2, 1:4]
    different, numbers = unique_rows(rows)
    assert torch.equal(different, rows)
    assert numbers.tolist() == [0, 1, 2, 3, 4]


def look_up(memo: RowMemo, function: Doubling, rows: Tensor) -> Tensor:
    table, numbers = memo.look_up(function, rows)
    return table[numbers.long()]


@settings(deadline=None, max_examples=50)
@given(st.lists(hnp.arrays(np.uint8, st.tuples(st.integers(1, 6), st.just(3)), elements=few_values), max_size=6))
def test_a_memo_asks_for_every_row_once_until_it_forgets(parts: list[np.ndarray]) -> None:
    memo, function = RowMemo(), Doubling()
    for part in map(torch.from_numpy, parts):
        assert torch.equal(look_up(memo, function, part), Doubling()(part))
    asked = [tuple(row) for row in function.asked[1:]]  # the first is a sample that gives the width
    assert len(asked) == len(set(asked))
    if parts:
        memo.clear()
        before = len(function.asked)
        look_up(memo, function, torch.from_numpy(parts[0]))
        assert len(function.asked) > before


def test_a_full_memo_is_cleared_and_a_batch_that_is_too_large_is_not_stored() -> None:
    memo, function = RowMemo(max_bytes=10 * (4 * 8 + 4)), Doubling()  # ten rows of four int64 and one float32
    for start in range(0, 40, 4):
        rows = torch.arange(start, start + 4).view(4, 1).expand(4, 4)
        assert torch.equal(look_up(memo, function, rows), Doubling()(rows))
    large = torch.arange(100).view(25, 4)
    assert torch.equal(look_up(memo, function, large), Doubling()(large))


def test_a_copy_of_a_memo_is_empty() -> None:
    memo, function = RowMemo(), Doubling()
    rows = torch.arange(8).view(2, 4)
    look_up(memo, function, rows)
    copied, asked = copy.deepcopy(memo), len(function.asked)
    look_up(copied, function, rows)
    assert len(function.asked) > asked
