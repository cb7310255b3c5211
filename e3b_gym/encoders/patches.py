"""Convolutions over maps of symbols, computed once per different patch instead of once per cell.

A 3x3 convolution over symbols u with embeddings h sums nine look-ups:

    h'(cell) = elu(b + sum_k T[k, u(cell + k)]),   T[k, u] = W_k h(u),   h(outside) = 0

Equal patches give equal results: the different patches are numbered, and these numbers are the symbols of the next
layer. Layer l sees patches of side 2 l + 1. A batch of MiniHack maps has few different patches (5,184 frames of a
random policy, 8.6 million cells, five layers: 3,145, 29,363, 82,779, 143,872 and 218,922).

The linear layer after them sums over tiles of the map; equal tiles are computed once, too:

    y(map) = sum_t Y_t[tile t of the map],   Y_t = X_t V_t'

Outputs and gradients equal those of the plain modules up to rounding. Patches are numbered by hashing with exact
comparison, and only near cells that differ from a map full of the most common symbol.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from e3b_gym.encoders import _kernels
from e3b_gym.encoders.sum_rows import add_to_rows, sum_rows

Array: TypeAlias = np.ndarray[Any, Any]

FEW_MAPS = 256  # with fewer maps, small tiles cost more in calls than they save
MOST_PATCHES = 2**20  # per layer, to bound the memory (600 MB with 16 filters); above, half the maps at a time


def embed_maps(
    maps: Tensor, embedding: Tensor, convolutions: Sequence[nn.Conv2d], weight: Tensor, tile: tuple[int, int]
) -> Tensor:
    """Embedding, 3x3 convolutions with ELU, and a linear layer without bias.

    Args:
        maps: Integers [M, H, W] on the CPU, preferably without repeated maps.
        embedding: [symbols, C].
        convolutions: Layers with kernel 3, stride 1, padding 1.
        weight: [D, W * H * channels], inputs in the order (column, row, channel).
        tile: Columns and rows of a tile. Tiles as high as the map need no reordering; smaller ones must divide it.
    """
    glyphs, symbols = _number_glyphs(maps, len(embedding))
    windows = np.empty((len(symbols), 4), np.int64)
    _kernels.find_windows(symbols, windows)
    most = max(MOST_PATCHES, 2 * symbols[0].size)  # one map and map 0 always pass
    h = _with_zero_row(F.embedding(torch.from_numpy(glyphs), embedding))  # [1 + symbols, C]
    for layer, convolution in enumerate(convolutions):
        cells = np.zeros_like(symbols)
        patches = _kernels.number_patches(symbols, windows, layer + 1, most, cells)
        if not len(patches):
            return torch.cat([embed_maps(half, embedding, convolutions, weight, tile) for half in maps.chunk(2)])
        index = np.empty((len(patches) - 1, 9), np.int32)
        _kernels.look_ups(patches, index)
        kernel = convolution.weight.permute(1, 3, 2, 0).flatten(1)  # [C, 9 C'], column before row
        table = (h @ kernel).view(-1, convolution.out_channels)  # [9 (1 + patches before), C']
        sums = sum_rows(table, torch.from_numpy(index)).add_(convolution.bias)  # type: ignore[arg-type]
        h = _with_zero_row(F.elu_(sums))  # [1 + patches, C']
        symbols = cells
    cells = np.ascontiguousarray(symbols[1:, 1:-1, 1:-1])  # [M, W, H]
    if len(maps) < FEW_MAPS and tile[1] < maps.shape[1]:
        tile = (maps.shape[2], maps.shape[1])
    if tile[1] < maps.shape[1]:
        weight, cells = _tile_by_tile(weight.view(len(weight), *cells.shape[1:], -1), cells, tile)
    out: Tensor = _Tiles.apply(h, weight, cells.reshape(len(maps), -1), tile[0] * tile[1])  # type: ignore[no-untyped-call]
    return out


def _number_glyphs(maps: Tensor, num_glyphs: int) -> tuple[Array, Array]:
    """Returns the glyphs that occur [symbols], and the maps as numbers of these from 1 on, [1 + M, W + 2, H + 2].

    The maps have a halo of 0. Map 0 is full of the most common glyph.
    """
    count, height, width = maps.shape
    symbols = np.zeros((1 + count, width + 2, height + 2), np.int32)
    numbers, cells = np.zeros((2, num_glyphs), np.int64)
    if _kernels.number_glyphs(maps.contiguous().numpy(), numbers, cells, symbols) < 0:
        low, high = int(maps.min()), int(maps.max())
        raise IndexError(
            f"glyphs must be 0 to {num_glyphs - 1}, got {low} to {high}; build the network from this space"
        )
    symbols[0, 1:-1, 1:-1] = numbers[cells.argmax()]
    present = np.flatnonzero(numbers)
    return present[numbers[present].argsort()], symbols


def _with_zero_row(h: Tensor) -> Tensor:
    """[n, C] -> [1 + n, C]: symbol 0, outside the map, is embedded as zeros."""
    return F.pad(h, (0, 0, 1, 0))


def _tile_by_tile(weight: Tensor, cells: Array, tile: tuple[int, int]) -> tuple[Tensor, Array]:
    """Reorders weight [D, W, H, C] and cells [M, W, H] so that the cells of a tile are contiguous."""
    columns, rows = tile
    width, height = cells.shape[1] // columns, cells.shape[2] // rows
    weight = weight.view(len(weight), width, columns, height, rows, -1).transpose(2, 3).flatten(1)
    return weight, cells.reshape(-1, width, columns, height, rows).swapaxes(2, 3)


class _Tiles(torch.autograd.Function):
    """The last layer: h [1 + patches, C], weight [D, n C], cells [M, n] -> [M, D]; a tile is `size` cells in a row."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, cells: Array, size: int) -> Tensor:
        numbers, first, starts = _number_tiles(cells, size)
        table = h.new_empty(len(first), len(weight))
        ctx.tiles = []
        for tile, (start, stop) in enumerate(pairwise(starts)):
            patches = torch.from_numpy(cells[first[start:stop], tile * size : (tile + 1) * size].ravel())
            x = h.index_select(0, patches).view(stop - start, -1)  # [different tiles, size C]
            inputs = slice(tile * size * h.shape[1], tile * size * h.shape[1] + x.shape[1])
            torch.mm(x, weight[:, inputs].t(), out=table[start:stop])
            ctx.tiles.append((x, patches.unsqueeze(1), inputs, slice(start, stop)))
        ctx.save_for_backward(h, weight, numbers)
        return F.embedding_bag(numbers, table, mode="sum")

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor, Tensor, None, None]:
        h, weight, numbers = ctx.saved_tensors
        d_table = h.new_zeros(ctx.tiles[-1][-1].stop, len(weight))
        add_to_rows(d_table, numbers, d_out.contiguous())
        d_h, d_weight = torch.zeros_like(h), torch.empty_like(weight)
        for x, patches, inputs, different in ctx.tiles:
            d_tile = d_table[different]
            if len(x) == 1:  # a tile that is the same in all maps; `mm` is slow for an outer product
                torch.mul(d_tile.t(), x, out=d_weight[:, inputs])
            else:
                torch.mm(d_tile.t(), x, out=d_weight[:, inputs])
            add_to_rows(d_h, patches, (d_tile @ weight[:, inputs]).view(-1, h.shape[1]))
        return d_h, d_weight, None, None


def _number_tiles(cells: Array, size: int) -> tuple[Tensor, Array, list[int]]:
    """Returns the numbers of each map's tiles [M, tiles], a map that has each tile [P], and where positions start."""
    maps = len(cells)
    tiles = -(-cells.shape[1] // size)
    slots = 1 << (2 * maps).bit_length()
    numbers, first = np.empty((maps, tiles), np.int32), np.empty(maps * tiles, np.int64)
    starts = np.empty(tiles + 1, np.int64)
    work = (_kernels.new_keys(size), np.empty(slots, np.int32), np.empty(slots, np.uint64))
    _kernels.number_tiles(cells, size, *work, numbers, first, starts)
    return torch.from_numpy(numbers), first[: starts[-1]], starts.tolist()
