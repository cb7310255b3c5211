"""Appearance of surfaces: a bank of gray patterns, and materials that colour them.

A material mixes two colours by a pattern: all homes share one small bank (0.3 MB), and each surface takes a few bytes.
Patterns have four levels of detail, each with twice the grain of the one before, for distant surfaces. All random
numbers come from fixed seeds.
"""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from e3b_gym.envs.habitat.dice import Dice

SIDE = 64
"""Height and width of a pattern in texels; patterns repeat."""
LEVELS = 4
TONES = 16
"""Steps from the base colour to the accent."""

PLAIN, STRIPES, PLANKS, TILES, CARPET, CHECKS, DOTS, BRICKS, DIAMONDS, GRAIN, OUTDOORS, BOOKS = range(12)
FIRST_PAINTING, PAINTINGS = 12, 6
WALLS = (PLAIN, PLAIN, STRIPES, DOTS, BRICKS, DIAMONDS, CHECKS, TILES)
FLOORS = (PLANKS, PLANKS, TILES, CARPET, CHECKS, GRAIN, DIAMONDS)

Colour = tuple[int, int, int]
WHITE: Colour = (236, 234, 228)
CREAM: Colour = (214, 208, 196)


class Material(NamedTuple):
    """Two colours mixed by a pattern."""

    pattern: int
    base: Colour
    accent: Colour
    density: int
    """Texels per metre."""
    glows: bool = False
    """Brightness does not depend on the distance, as for a window."""


def tones(each: Sequence[Material]) -> NDArray[np.uint8]:
    """Returns the colours [M, TONES, 3] of materials from base to accent."""
    base, accent = (
        np.array(colours, np.float64)[:, None] for colours in zip(*((m.base, m.accent) for m in each), strict=True)
    )
    share = np.linspace(0, 1, TONES)[:, None]
    mixed: NDArray[np.uint8] = np.rint((1 - share) * base + share * accent).astype(np.uint8)
    return mixed


def colour(hue: float, saturation: float, value: float) -> Colour:
    """Converts HSV in [0, 1] to RGB; the hue wraps around."""
    red, green, blue = colorsys.hsv_to_rgb(hue % 1.0, min(saturation, 1.0), min(value, 1.0))
    return round(255 * red), round(255 * green), round(255 * blue)


def random_wall(dice: Dice) -> Material:
    """Returns a paint or wallpaper, from pale to strong colours."""
    hue, saturation, value = dice.uniform(), dice.uniform(0.12, 0.6), dice.uniform(0.6, 0.95)
    accent = colour(hue + dice.uniform(-0.12, 0.12), saturation * 1.3, value * dice.uniform(0.55, 0.8))
    return Material(dice.choice(WALLS), colour(hue, saturation, value), accent, dice.choice((24, 32, 48)))


def random_floor(dice: Dice) -> Material:
    """Returns mostly wood or stone, sometimes a colourful carpet."""
    if dice.uniform() < 0.55:
        hue, saturation, value = dice.uniform(0.04, 0.12), dice.uniform(0.25, 0.7), dice.uniform(0.35, 0.8)
    else:
        hue, saturation, value = dice.uniform(), dice.uniform(0.05, 0.5), dice.uniform(0.3, 0.85)
    accent = colour(hue + dice.uniform(-0.05, 0.05), saturation, value * dice.uniform(0.45, 0.75))
    return Material(dice.choice(FLOORS), colour(hue, saturation, value), accent, dice.choice((24, 32, 40)))


def random_furniture(dice: Dice) -> Material:
    """Returns wood, cloth or lacquer, in stronger colours than walls."""
    hue, saturation, value = dice.uniform(), dice.uniform(0.3, 0.95), dice.uniform(0.25, 0.9)
    accent = colour(hue + dice.uniform(-0.08, 0.08), saturation, value * dice.uniform(0.5, 0.75))
    pattern = dice.choice((PLAIN, GRAIN, GRAIN, CARPET, STRIPES))
    return Material(pattern, colour(hue, saturation, value), accent, 48)


def _blurred(pattern: NDArray[np.float64], grain: int) -> NDArray[np.float64]:
    """Averages over squares of `grain` texels; the size stays the same."""
    small = pattern.reshape(SIDE // grain, grain, SIDE // grain, grain).mean(axis=(1, 3))
    return np.asarray(small.repeat(grain, axis=0).repeat(grain, axis=1))


def _bricks(y: Any, x: Any, height: int, width: int, joint: int) -> NDArray[np.float64]:
    shifted = x + (width // 2) * ((y // height) % 2)
    return np.asarray((y % height < joint) | (shifted % width < joint), np.float64)


def _painting(rng: np.random.Generator, y: Any, x: Any) -> NDArray[np.float64]:
    """Returns soft blobs in five tones."""
    canvas = np.zeros((SIDE, SIDE))
    for _ in range(6):
        cy, cx, size = rng.uniform(0, SIDE, 2).tolist() + [rng.uniform(4, 18)]
        canvas += rng.uniform(-1, 1) * np.exp(-((y - cy) ** 2 + (x - cx) ** 2) / size**2)
    scaled = (canvas - canvas.min()) / np.ptp(canvas)
    return np.asarray(np.floor(scaled * 4.999) / 4)


def _bank() -> NDArray[np.uint8]:
    rng = np.random.default_rng(2022)
    y, x = np.mgrid[:SIDE, :SIDE]
    noise = _blurred(rng.uniform(size=(SIDE, SIDE)), 2)
    plank_tone = rng.uniform(0, 0.6, (8, 2))[(y // 8), ((x + 16 * ((y // 8) % 2)) // 32) % 2]
    shelf_tone = rng.uniform(0, 1, (4, SIDE // 4))[y // 16, x // 4]
    sharp = {
        PLAIN: np.zeros((SIDE, SIDE)),
        STRIPES: (x % 16 < 7).astype(float),
        PLANKS: np.maximum(plank_tone, (y % 8 == 0).astype(float)),
        TILES: ((y % 16 < 2) | (x % 16 < 2)).astype(float),
        CARPET: noise,
        CHECKS: ((y // 16 + x // 16) % 2).astype(float),
        DOTS: (((y % 16 - 8) ** 2 + (x % 16 - 8) ** 2) < 14).astype(float),
        BRICKS: _bricks(y, x, 8, 16, 2),
        DIAMONDS: (((x + y) % 32 < 4) | ((x - y) % 32 < 4)).astype(float),
        GRAIN: 0.5 + 0.5 * np.sin(2 * np.pi * (y / 8 + np.sin(2 * np.pi * x / SIDE))),
        # Ground, a tree line and sky, by height above the floor.
        OUTDOORS: np.clip((y - 30 - 4 * np.sin(2 * np.pi * x / 16)) / 12, 0, 1),
        BOOKS: np.maximum(shelf_tone, (y % 16 < 2).astype(float)),
    }
    sharp |= {FIRST_PAINTING + i: _painting(rng, y, x) for i in range(PAINTINGS)}
    bank = np.empty((len(sharp), LEVELS, SIDE, SIDE), np.uint8)
    for pattern, image in sharp.items():
        rough = image if pattern >= OUTDOORS else 0.88 * image + 0.12 * noise  # no surface is perfectly even
        for level in range(LEVELS):
            bank[pattern, level] = np.rint((TONES - 1) * _blurred(rough, 2**level))
    return bank


BANK: NDArray[np.uint8] = _bank()
"""[pattern, level, y, x]: index of the tone."""
