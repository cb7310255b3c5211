"""Encoders that read only some entries of a Dict observation.

An entry that the encoder does not read cannot contribute to the bonus. This excludes entries that stay novel without
progress, such as a clock or moved objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from e3b_gym.encoders.generic import Encoder
from e3b_gym.unroll import Tree, tree_map


class PartialEncoder(Encoder):
    """An encoder that gets zeros in place of the entries not in `keys`; build it with `show_only`."""

    def __init__(self, encoder: Encoder, keys: frozenset[str]) -> None:
        super().__init__()
        self.encoder, self.keys, self.dim = encoder, keys, encoder.dim

    def forward(self, obs: Tree) -> Tensor:
        shown = {key: part if key in self.keys else tree_map(torch.zeros_like, part) for key, part in obs.items()}
        return self.encoder(shown)  # type: ignore[no-any-return]


def show_only(encoder: Encoder, observation_space: spaces.Space[Any], keys: str | Sequence[str]) -> Encoder:
    """Returns the encoder restricted to these entries of a Dict observation; it gets zeros in place of the others."""
    known = list(observation_space.spaces) if isinstance(observation_space, spaces.Dict) else []
    wanted: list[Any] = list(keys) if isinstance(keys, (list, tuple)) else [keys]
    if not wanted or any(key not in known for key in wanted):
        there = f"its entries are {', '.join(map(str, known))}" if known else "this observation is not a Dict"
        raise ValueError(f"sees={keys!r} must be an entry of a Dict observation, or a list of entries; {there}")
    return PartialEncoder(encoder, frozenset(wanted))
