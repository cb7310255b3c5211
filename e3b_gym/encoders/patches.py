"""Convolutions over maps of symbols, computed once for every different patch instead of once for every cell.

A 3x3 convolution over symbols u with embeddings h sums nine look-ups:

    h'(cell) = elu(b + sum_k T[k, u(cell + k)]),   T[k, u] = W_k h(u),   h(outside) = 0

and equal patches give equal results: number the different patches, call the numbers symbols, and the next layer is of
the same kind. Layer l sees patches of side 2 l + 1. A batch of MiniHack maps repeats them a lot (5,184 frames of random
play, 8.6 million cells, five layers: 3,145, 29,363, 82,779, 143,872 and 218,922 different patches).

The linear layer behind sums over strips of the map, `STRIP` columns each, and again equal strips are computed once:

    y(map) = sum_s Y_s[strip s of the map],   Y_s = X_s V_s'

The function and its gradients are those of the plain modules up to rounding. Numbers are found by hashing with exact
comparison, near the cells that differ from a map full of the commonest symbol.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from e3b_gym.encoders import _kernels
from e3b_gym.encoders.sum_rows import add_to_rows, sum_rows

STRIP = 4


def embed_maps(maps: Tensor, embedding: Tensor, convolutions: Sequence[nn.Conv2d], weight: Tensor) -> Tensor:
    """Embedding, 3x3 convolutions with ELU, and a linear layer without bias.

    Args:
        maps: Integers [M, H, W] on the CPU, best without repeated maps.
        embedding: [symbols, C].
        convolutions: Kernel 3, stride 1, padding 1.
        weight: [D, W * H * channels], its inputs in the order (column, row, channel).
    """
    glyphs, symbols = _number_glyphs(maps, len(embedding))
    windows = np.empty((len(symbols), 4), np.int64)
    _kernels.find_windows(symbols, windows)
    h = _with_zero_row(F.embedding(torch.from_numpy(glyphs), embedding))  # [1 + symbols, C]
    for layer, convolution in enumerate(convolutions):
        cells = np.zeros_like(symbols)
        patches = _kernels.number_patches(symbols, windows, layer + 1, cells)
        index = torch.from_numpy(patches[1:] * 9 + np.arange(9, dtype=np.int32))  # [patches, 9]
        kernel = convolution.weight.permute(1, 3, 2, 0).flatten(1)  # [C, 9 C'], column before row
        table = (h @ kernel).view(-1, convolution.out_channels)  # [9 (1 + patches before), C']
        h = _with_zero_row(F.elu_(sum_rows(table, index).add_(convolution.bias)))  # [1 + patches, C']
        symbols = cells
    out: Tensor = _Strips.apply(h, weight, symbols[1:])  # type: ignore[no-untyped-call]
    return out


def _number_glyphs(maps: Tensor, num_glyphs: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The glyphs present [symbols], and the maps as their numbers from 1 on, [1 + M, W + 2, H + 2] with a halo of 0.

    Map 0 is full of the commonest glyph.
    """
    count, height, width = maps.shape
    symbols = np.zeros((1 + count, width + 2, height + 2), np.int32)
    numbers, cells = np.zeros((2, num_glyphs), np.int64)
    if _kernels.number_glyphs(maps.contiguous().numpy(), numbers, cells, symbols) < 0:
        low, high = int(maps.min()), int(maps.max())
        raise IndexError(f"glyphs must be 0 to {num_glyphs - 1}, got {low} to {high}; the space says what is possible")
    symbols[0, 1:-1, 1:-1] = numbers[cells.argmax()]
    present = np.flatnonzero(numbers)
    return present[numbers[present].argsort()], symbols


def _with_zero_row(h: Tensor) -> Tensor:
    """[n, C] -> [1 + n, C]: symbol 0, outside the map, is embedded as zeros."""
    return F.pad(h, (0, 0, 1, 0))


class _Strips(torch.autograd.Function):
    """The last layer: h [1 + patches, C], weight [D, W * H * C], cells [M, W + 2, H + 2] -> [M, D]."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, cells: np.ndarray[Any, Any]) -> Tensor:
        numbers, first, starts = _number_strips(cells)
        table = h.new_empty(len(first), len(weight))
        ctx.inputs = []
        for strip, (columns, patches) in enumerate(_strips(cells, first, starts, h.shape[1])):
            x = h.index_select(0, patches.view(-1)).view(len(patches), -1)  # [different strips, cells C]
            torch.mm(x, weight[:, columns].t(), out=table[starts[strip] : starts[strip + 1]])
            ctx.inputs.append((x, columns, patches.view(-1, 1)))
        ctx.save_for_backward(h, weight)
        ctx.numbers, ctx.starts = numbers, starts
        return F.embedding_bag(numbers, table, mode="sum")

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor, Tensor, None]:
        h, weight = ctx.saved_tensors
        d_table = h.new_zeros(ctx.starts[-1], len(weight))
        add_to_rows(d_table, ctx.numbers, d_out.contiguous())
        d_h, d_weight = torch.zeros_like(h), torch.empty_like(weight)
        for strip, (x, columns, patches) in enumerate(ctx.inputs):
            d_strip = d_table[ctx.starts[strip] : ctx.starts[strip + 1]]
            torch.mm(d_strip.t(), x, out=d_weight[:, columns])
            add_to_rows(d_h, patches, (d_strip @ weight[:, columns]).view(-1, h.shape[1]))
        return d_h, d_weight, None


def _number_strips(cells: np.ndarray[Any, Any]) -> tuple[Tensor, np.ndarray[Any, Any], list[int]]:
    """Which different strip each map has [M, strips], a map that has each [P], and where each strip's begin in P."""
    maps, rows, columns = cells.shape
    strips = -(-(rows - 2) // STRIP)
    slots = 1 << (2 * maps).bit_length()
    numbers, first = np.empty((maps, strips), np.int32), np.empty(maps * strips, np.int64)
    starts = np.empty(strips + 1, np.int64)
    work = (_kernels.new_keys(STRIP * columns), np.empty(slots, np.int32), np.empty(slots, np.uint64))
    _kernels.number_strips(cells, STRIP, *work, numbers, first, starts)
    return torch.from_numpy(numbers), first[: starts[-1]], starts.tolist()


def _strips(
    cells: np.ndarray[Any, Any], first: np.ndarray[Any, Any], starts: list[int], channels: int
) -> list[tuple[slice, Tensor]]:
    """For each strip the columns of the weight it meets, and the patches of its different ones [P, cells]."""
    rows, columns = cells.shape[1] - 2, cells.shape[2] - 2
    parts = []
    for strip, (start, stop) in enumerate(zip(starts[:-1], starts[1:], strict=True)):
        top, bottom = strip * STRIP, min(strip * STRIP + STRIP, rows)
        patches = cells[first[start:stop], 1 + top : 1 + bottom, 1:-1].reshape(stop - start, -1)
        parts.append((slice(top * columns * channels, bottom * columns * channels), torch.from_numpy(patches)))
    return parts
