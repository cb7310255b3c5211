"""The networks of a run's policy and bonus. A suite may define its own; otherwise the generic networks are used.

suite      net     trunk of the policy           LSTM       phi
MiniHack   paper   four trunks, 1024             1024       the same, no LSTM
MiniHack   fast    crop 16x16, message, 256      128        the same, with LayerNorm
MiniHack   moves   that of fast, and move scores 128        that of fast
VizDoom            four convolutions             2 x 256    the same and a linear layer
Habitat    paper   ResNet50, GPS, compass, 576   2 x 512    the same and an MLP
Habitat    fast    two convolutions, ..., 256    256        the same and a linear layer, with LayerNorm
others             `make_encoder`, 256           256        the same, `dim` wide
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
from torch import nn

from e3b_gym.encoders.generic import make_encoder

Factory = Callable[[gym.Space[Any]], nn.Module]


@dataclass(frozen=True)
class Networks:
    """The networks of a run."""

    trunk: Factory
    """Observation space -> the policy's network below its LSTM, with `dim`."""
    phi: Factory
    """Observation space -> the encoder of the bonus, with `dim`."""
    lstm: int = 256
    """Units of the policy's LSTM."""
    lstm_layers: int = 1
    """Number of its layers."""
    action_scores: Callable[[gym.Space[Any], int, int], nn.Module] | None = None
    """Observation space, number of actions, units of the LSTM -> a module that adds to the logits of IMPALA's policy.

    It gets the observations, tree of [T, B, ...], and the LSTM's outputs [T, B, H], and returns [T, B, A].
    """
    env_options: dict[str, Any] = field(default_factory=dict)
    """Options that the environment must be made with."""


def generic_networks(dim: int = 256) -> Networks:
    """Networks for any observation space; phi is `dim` wide."""
    return Networks(
        trunk=lambda space: make_encoder(space, 256, phi=False),
        phi=lambda space: make_encoder(space, dim),
    )
