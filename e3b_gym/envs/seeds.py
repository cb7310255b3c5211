"""Seeds of the environments of a vector environment, by Gymnasium's rule."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def seeds_for(seed: int | Sequence[int | None] | None, num_envs: int) -> Sequence[int | None]:
    """Returns one seed per environment: seed + i for an int, None for each without a seed, a sequence as it is."""
    if seed is None:
        return [None] * num_envs
    if isinstance(seed, int | np.integer):
        return [int(seed) + i for i in range(num_envs)]
    if len(seed) != num_envs:
        raise ValueError(f"got {len(seed)} seeds for {num_envs} environments; pass one int or a seed for each")
    return seed
