"""A random generator for many small decisions: NumPy's generator, drawn in blocks (20 times faster than one by one)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")


class Dice:
    """Random decisions that depend on the seeds only."""

    def __init__(self, *seeds: int) -> None:
        self._draws = self._stream(np.random.default_rng(seeds))

    @staticmethod
    def _stream(rng: np.random.Generator) -> Iterator[float]:
        while True:
            yield from rng.random(1024).tolist()

    def uniform(self, low: float = 0.0, high: float = 1.0) -> float:
        """Returns a float in [low, high)."""
        return low + (high - low) * next(self._draws)

    def integer(self, low: int, high: int) -> int:
        """Returns an integer from low to high - 1."""
        return low + int((high - low) * next(self._draws))

    def choice(self, options: Sequence[T]) -> T:
        return options[self.integer(0, len(options))]
