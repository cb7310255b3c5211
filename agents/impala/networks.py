"""Which network sees the observations: the paper's, its fast variant, or a generic one, by suite.

suite      net     trunk of the policy           LSTM       phi
MiniHack   paper   four trunks, 1024             1024       the same, no LSTM
MiniHack   fast    crop 16x16, message, 256      128        the same, with LayerNorm
VizDoom    both    four convolutions             2 x 256    the same and a linear layer
Habitat    paper   ResNet50, GPS, compass, 576   2 x 512    the same and an MLP
Habitat    fast    two convolutions, ..., 256    256        the same and a linear layer, with LayerNorm
others     both    `e3b_gym.encoders` generic    256        the same, `dim` wide
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
from torch import nn

from agents.impala.config import Config
from e3b_gym.encoders import make_encoder
from e3b_gym.encoders.habitat import env_options as habitat_options
from e3b_gym.encoders.habitat import habitat_network
from e3b_gym.encoders.minihack import env_options, minihack_network
from e3b_gym.encoders.pixels import vizdoom_network

Factory = Callable[[gym.Space[Any]], nn.Module]


@dataclass(frozen=True)
class Networks:
    """What a run's networks are made of.

    Attributes:
        trunk: observation space -> the policy's network below its LSTM, with `dim`.
        phi: observation space -> the encoder of the bonus, with `dim`.
        lstm: units of the policy's LSTM.
        lstm_layers: how many.
        env_options: what the environment must be made with.
    """

    trunk: Factory
    phi: Factory
    lstm: int
    lstm_layers: int = 1
    env_options: dict[str, Any] = field(default_factory=dict)


def networks_for(config: Config) -> Networks:
    """The networks of a run."""
    if config.env.startswith("MiniHack-"):
        variant, fast = config.net, config.net == "fast"
        return Networks(
            trunk=lambda space: minihack_network(space, variant, layer_norm=False),
            phi=lambda space: minihack_network(space, variant, layer_norm=fast),
            lstm=config.lstm or (128 if fast else 1024),
            env_options=env_options(variant),
        )
    if config.env.startswith("Vizdoom"):
        return Networks(
            trunk=lambda space: vizdoom_network(space, None),
            phi=lambda space: vizdoom_network(space),
            lstm=config.lstm or 256,
            lstm_layers=2,
        )
    if config.env.startswith("Habitat-"):
        variant, fast = config.net, config.net == "fast"
        return Networks(
            trunk=lambda space: habitat_network(space, variant),
            phi=lambda space: habitat_network(space, variant, phi=True),
            lstm=config.lstm or (256 if fast else 512),
            lstm_layers=1 if fast else 2,
            env_options=habitat_options(variant),
        )
    return Networks(
        trunk=lambda space: make_encoder(space, 256, phi=False),
        phi=lambda space: make_encoder(space, config.dim),
        lstm=config.lstm or 256,
    )
