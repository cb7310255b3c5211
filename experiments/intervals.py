"""95 % intervals of what was measured a number of times."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

_Z = 1.959964  # 97.5 % of a normal distribution lies below


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Of a share (Wilson 1927); keeps its promise near 0 and 1 as well."""
    share = successes / trials
    centre = share + _Z**2 / (2 * trials)
    spread = _Z * math.sqrt(share * (1 - share) / trials + _Z**2 / (4 * trials**2))
    scale = 1 + _Z**2 / trials
    low, high = (centre - spread) / scale, (centre + spread) / scale
    return min(max(low, 0.0), share), max(min(high, 1.0), share)  # rounding leaves the share inside


def bootstrap(values: Sequence[float], draws: int = 10_000) -> tuple[float, float]:
    """Of a mean (percentile bootstrap; seeded, so that a report is reproducible)."""
    sample = np.asarray(values, dtype=float)
    means = np.random.default_rng(0).choice(sample, size=(draws, len(sample))).mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)
