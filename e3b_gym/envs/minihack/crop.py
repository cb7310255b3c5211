"""The map around the hero, cut for a whole batch at once.

crop[n, i, j] = map[n, y[n] + i - h // 2, x[n] + j - w // 2], and `pad` outside the map: the hero stands in
the middle cell of an odd size and just right of and below the middle of an even one. MiniHack pads the whole
map for each crop (np.pad); numba copies the h x w cells only, and without numba one fancy index over a padded
batch does the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

CropInto = Callable[[NDArray[Any], NDArray[Any], NDArray[Any], int, NDArray[Any]], None]


def crop_with_numpy(
    maps: NDArray[Any], x: NDArray[Any], y: NDArray[Any], pad: int, out: NDArray[Any]
) -> None:  # [N, H, W], [N], [N], out [N, h, w]
    """Cuts crops in plain numpy."""
    height, width = out.shape[1:]
    rows = y[:, None] + np.arange(height) - height // 2  # [N, h]
    columns = x[:, None] + np.arange(width) - width // 2  # [N, w]
    inside_rows = (rows >= 0) & (rows < maps.shape[1])
    inside_columns = (columns >= 0) & (columns < maps.shape[2])
    batch = np.arange(len(maps))[:, None, None]
    cells = maps[batch, np.where(inside_rows, rows, 0)[:, :, None], np.where(inside_columns, columns, 0)[:, None, :]]
    out[...] = np.where(inside_rows[:, :, None] & inside_columns[:, None, :], cells, pad)


def _crop_loops(maps: NDArray[Any], x: NDArray[Any], y: NDArray[Any], pad: int, out: NDArray[Any]) -> None:
    height, width = out.shape[1], out.shape[2]
    for n in range(len(maps)):
        top, left = y[n] - height // 2, x[n] - width // 2
        for i in range(height):
            row = top + i
            for j in range(width):
                column = left + j
                if 0 <= row < maps.shape[1] and 0 <= column < maps.shape[2]:
                    out[n, i, j] = maps[n, row, column]
                else:
                    out[n, i, j] = pad


def _fastest() -> CropInto:
    try:
        from e3b_gym.compiling import cached_njit
    except ImportError:
        return crop_with_numpy
    compiled: CropInto = cached_njit()(_crop_loops)
    return compiled


crop_into = _fastest()
"""`crop_into(maps [N, H, W], x [N], y [N], pad, out [N, h, w])` fills `out`; the fastest implementation at hand."""
