"""95 % intervals of repeated measurements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Interval of a share (Wilson 1927); its coverage is right near 0 and 1, too."""
    from scipy.stats import binomtest  # type: ignore[import-untyped]  # takes a second to import

    interval = binomtest(successes, trials).proportion_ci(method="wilson")
    share = successes / trials
    return min(max(float(interval.low), 0.0), share), max(min(float(interval.high), 1.0), share)  # rounding


def bootstrap(values: Sequence[float], draws: int = 10_000) -> tuple[float, float]:
    """Interval of a mean (percentile bootstrap; seeded, so that a report is reproducible)."""
    from scipy.stats import bootstrap as resample

    sample = np.asarray(values, dtype=float)
    if len(np.unique(sample)) == 1:  # nothing to resample
        return float(sample[0]), float(sample[0])
    generator = np.random.default_rng(0)
    interval = resample(
        (sample,), np.mean, n_resamples=draws, method="percentile", vectorized=True, batch=1000, rng=generator
    ).confidence_interval
    return float(interval.low), float(interval.high)
