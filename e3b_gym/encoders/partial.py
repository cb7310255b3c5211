"""Encoders that are shown some entries of a Dict observation only.

What the bonus cannot see cannot be new. Where something harmless stays new for ever, such as a clock or things thrown
about, pay for the rest.
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
    """An encoder behind `show_only`."""

    def __init__(self, encoder: Encoder, keys: frozenset[str]) -> None:
        super().__init__()
        self.encoder, self.keys, self.dim = encoder, keys, encoder.dim

    def forward(self, obs: Tree) -> Tensor:
        shown = {key: part if key in self.keys else tree_map(torch.zeros_like, part) for key, part in obs.items()}
        return self.encoder(shown)  # type: ignore[no-any-return]


def show_only(encoder: Encoder, observation_space: spaces.Space[Any], keys: str | Sequence[str]) -> Encoder:
    """The encoder, shown only these entries of a Dict observation; in place of the others it gets zeros."""
    known = list(observation_space.spaces) if isinstance(observation_space, spaces.Dict) else []
    wanted: list[Any] = list(keys) if isinstance(keys, (list, tuple)) else [keys]
    if not wanted or any(key not in known for key in wanted):
        there = f"its entries are {', '.join(map(str, known))}" if known else "this is no Dict"
        raise ValueError(f"sees={keys!r} must name one or a list of a Dict observation's entries; {there}")
    return PartialEncoder(encoder, frozenset(wanted))
