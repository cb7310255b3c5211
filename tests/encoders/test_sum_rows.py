"""Sums of table rows and their gradients are those of plain indexing."""

import pytest
import torch

from e3b_gym.encoders.sum_rows import add_rows_, sum_rows


@pytest.mark.parametrize("width", [1, 8, 12, 16, 32, 40, 256])
@pytest.mark.parametrize("picks", [1, 9])
def test_sums_and_gradients_are_those_of_indexing(width: int, picks: int) -> None:
    generator = torch.Generator().manual_seed(width)
    table = torch.randn(11, width, generator=generator, requires_grad=True)
    index = torch.randint(0, 11, (50, picks), generator=generator, dtype=torch.int32)
    d_out = torch.randn(width, 50, generator=generator).t()  # not contiguous
    out = sum_rows(table, index)
    (d_table,) = torch.autograd.grad(out, table, d_out)
    exact = table.detach().double().requires_grad_()
    expected = exact[index.long()].sum(1)
    (d_exact,) = torch.autograd.grad(expected, exact, d_out.double())
    torch.testing.assert_close(out.double(), expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(d_table.double(), d_exact, rtol=1e-5, atol=1e-5)


def test_rows_added_in_place_pass_their_gradient_to_both() -> None:
    rows = torch.randn(20, 24, requires_grad=True)
    table = torch.randn(3, 24, requires_grad=True)
    numbers = torch.randint(0, 3, (20,), dtype=torch.int32)
    d_out = torch.randn(20, 24)
    out = add_rows_(rows * 2, table, numbers)
    d_rows, d_table = torch.autograd.grad(out, (rows, table), d_out)
    torch.testing.assert_close(out, rows * 2 + table[numbers.long()])
    torch.testing.assert_close(d_rows, 2 * d_out)
    torch.testing.assert_close(d_table, torch.zeros(3, 24).index_add(0, numbers.long(), d_out))
