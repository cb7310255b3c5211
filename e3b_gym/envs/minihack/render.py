"""Renders NetHack's terminal: as coloured text, or as RGB arrays drawn with a monospace font."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

CELL_HEIGHT, CELL_WIDTH, FONT_SIZE = 16, 9, 14

PALETTE = np.array(
    [
        (70, 70, 90),  # NetHack's "black" must stay readable on black
        (190, 40, 40),
        (40, 170, 60),
        (170, 120, 40),
        (70, 90, 230),
        (180, 60, 180),
        (40, 170, 180),
        (190, 190, 190),
        (120, 120, 120),
        (255, 130, 60),
        (100, 255, 110),
        (255, 245, 90),
        (130, 150, 255),
        (255, 120, 255),
        (110, 250, 255),
        (255, 255, 255),
    ],
    dtype=np.uint8,
)
"""RGB of the sixteen terminal colours."""


def ansi(chars: NDArray[np.uint8], colors: NDArray[np.int8]) -> str:  # [24, 80] each
    """The terminal as text with ANSI colour codes, one escape sequence per run of equal colour."""
    lines = []
    visible = np.where(chars == ord(" "), 7, colors & 15)  # the colour of a blank cell would only split runs
    for char_row, color_row in zip(chars, visible, strict=True):
        starts = np.flatnonzero(np.diff(color_row, prepend=-1))
        ends = [*starts[1:], len(color_row)]
        line = ""
        for start, end in zip(starts, ends, strict=True):
            color = int(color_row[start])
            text = char_row[start:end].tobytes().decode("latin-1")
            line += f"\033[{color // 8};3{color % 8}m{text}"
        lines.append(line)
    return "\n".join(lines) + "\033[0m"


def rgb_array(chars: NDArray[np.uint8], colors: NDArray[np.int8]) -> NDArray[np.uint8]:
    """The terminal as a picture of [24 * CELL_HEIGHT, 80 * CELL_WIDTH, 3] bytes."""
    rows, columns = chars.shape
    ink = _font()[chars].astype(np.uint16)  # [24, 80, h, w], 0..255
    picture = ink[..., None] * PALETTE[colors & 15][:, :, None, None, :] // 255  # [24, 80, h, w, 3]
    canvas = np.empty((rows, CELL_HEIGHT, columns, CELL_WIDTH, 3), dtype=np.uint8)
    canvas[...] = picture.transpose(0, 2, 1, 3, 4)
    return canvas.reshape(rows * CELL_HEIGHT, columns * CELL_WIDTH, 3)


@functools.cache
def _font() -> NDArray[np.uint8]:  # [256, h, w]
    """Draws the 256 characters once, in the monospace font that ships with matplotlib."""
    from matplotlib import get_data_path
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.truetype(f"{get_data_path()}/fonts/ttf/DejaVuSansMono.ttf", FONT_SIZE)
    cells = np.zeros((256, CELL_HEIGHT, CELL_WIDTH), dtype=np.uint8)
    for code in range(33, 127):
        image = Image.new("L", (CELL_WIDTH, CELL_HEIGHT))
        ImageDraw.Draw(image).text((0, 0), chr(code), fill=255, font=font)
        cells[code] = np.asarray(image)
    return cells
