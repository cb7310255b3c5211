"""The library's generic encoder as the features extractor of a Stable-Baselines3 policy.

    PPO("MultiInputPolicy", venv, policy_kwargs=ENCODER_POLICY)

SB3 flattens boards of symbols such as MiniGrid's into raw numbers; this embeds them (`e3b_gym.encoders`).
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from gymnasium import spaces
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor

from e3b_gym.encoders import make_encoder
from e3b_gym.unroll import Tree


class EncoderExtractor(BaseFeaturesExtractor):
    """A network for any observation space that the library's encoders support; use it through ENCODER_POLICY.

    Args:
        observation_space: observation space of the environment.
        features_dim: size of the features.
    """

    def __init__(self, observation_space: gym.Space[Any], features_dim: int = 128) -> None:
        super().__init__(observation_space, features_dim)
        self._space = observation_space
        self.encoder = make_encoder(observation_space, features_dim, phi=False)

    def forward(self, observations: Tree) -> Tensor:
        features: Tensor = self.encoder(_as_observed(observations, self._space))
        return features


# Keyword arguments of a policy: SB3 must leave pictures in 0..255, as the encoder scales them itself.
ENCODER_POLICY = {"features_extractor_class": EncoderExtractor, "normalize_images": False}


def _as_observed(values: Tree, space: gym.Space[Any]) -> Tree:
    """Undoes SB3's preprocessing of observations: Discrete ones arrive as one-hot vectors."""
    if isinstance(space, spaces.Dict):
        return {name: _as_observed(values[name], part) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Discrete):
        return values.argmax(dim=-1).flatten() + int(space.start)  # from [rows, n], or [rows, 1, n] in a buffer
    if isinstance(space, spaces.MultiDiscrete):
        parts = torch.split(values, space.nvec.flatten().tolist(), dim=-1)
        chosen = torch.stack([part.argmax(dim=-1) for part in parts], dim=-1)
        return chosen.reshape(-1, *space.shape) + torch.as_tensor(space.start, device=values.device)
    return values
