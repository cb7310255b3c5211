"""Sums of table rows: convolutions and linear layers over repeated content become look-ups.

out[r] = sum_j table[index[r, j]];   d table[p] = sum of d out[r] over all (r, j) with index[r, j] = p

`sum_rows` is `embedding_bag` in mode "sum" with a compiled gradient, because PyTorch's is slow on a CPU. `add_rows_` is
the case of one look-up per row, added in place.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from e3b_gym.encoders import _kernels

NARROW = 32  # up to this width a row fits into a few registers


def sum_rows(table: Tensor, index: Tensor) -> Tensor:
    """Returns the sums [R, D] of the rows of `table` [P, D] (float32 on the CPU) selected by `index` [R, J] (int32)."""
    out: Tensor = _SumRows.apply(table, index)  # type: ignore[no-untyped-call]
    return out


def add_rows_(rows: Tensor, table: Tensor, numbers: Tensor) -> Tensor:
    """rows[r] += table[numbers[r]], in place and with gradients; rows [R, D], table [P, D], numbers [R] in int32."""
    out: Tensor = _AddRows.apply(rows, table, numbers)  # type: ignore[no-untyped-call]
    return out


def add_to_rows(table: Tensor, index: Tensor, rows: Tensor) -> None:
    """table[index[r, j]] += rows[r], in place; table [P, D], index [R, J] in int32, rows [R, D], all contiguous."""
    narrow = table.shape[1] <= NARROW and table.shape[1] % _kernels.LANES == 0
    add = _kernels.add_to_narrow_rows if narrow else _kernels.add_to_wide_rows
    add(table.numpy(), index.numpy(), rows.numpy())


class _SumRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.rows = len(table)
        return F.embedding_bag(index, table, mode="sum")

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        d_table = d_out.new_zeros(ctx.rows, d_out.shape[1])
        add_to_rows(d_table, index, d_out.contiguous())
        return d_table, None


class _AddRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, table: Tensor, numbers: Tensor) -> Tensor:
        ctx.save_for_backward(numbers)
        ctx.mark_dirty(rows)
        ctx.rows = len(table)
        _kernels.add_from_rows(table.contiguous().numpy(), numbers.numpy(), rows.numpy())
        return rows

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor, Tensor, None]:
        (numbers,) = ctx.saved_tensors
        d_table = d_out.new_zeros(ctx.rows, d_out.shape[1])
        add_to_rows(d_table, numbers.unsqueeze(1), d_out.contiguous())
        return d_out, d_table, None
