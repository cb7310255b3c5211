"""Crops of the map around the hero, for a whole batch at once.

crop[n, i, j] = map[n, y[n] + i - h // 2, x[n] + j - w // 2], and `pad` outside the map: the hero stands in
the middle cell of an odd size and just right of and below the middle of an even one. MiniHack pads the whole
map for each crop (np.pad); this loop copies the h x w cells only.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from e3b_gym.compiling import cached_njit


@cached_njit()
def crop_into(maps: NDArray[Any], x: NDArray[Any], y: NDArray[Any], pad: int, out: NDArray[Any]) -> None:
    """Fills `out` [N, h, w]; maps [N, H, W], x and y [N]."""
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
