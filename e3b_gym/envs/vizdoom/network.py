"""The observation network of VizDoom, for the policy (before its LSTM) and for the encoder phi of the bonus.

phi(s) = W flatten(elu(conv(elu(conv(elu(conv(elu(conv(s / 255)))))))))

Four 3x3 convolutions of 32 filters, stride 2, padding 1 (Henaff et al. 2022, appendix, after RIDE). The policy reads
the 288 flattened features; phi has a linear layer in place of the LSTM. The authors' code has no such layer, and
permutes pixels by a wrong reshape; this follows the paper. The initial weights are those of He et al. 2015, which keep
the variance of the image up to the last layer (PyTorch's default shrinks it in each).
"""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from e3b_gym.encoders.generic import Encoder, he_init, seeded_init
from e3b_gym.encoders.networks import Networks
from e3b_gym.unroll import Tree

FILTERS, LAYERS = 32, 4
PHI_DIM = 256


def networks() -> Networks:
    """The networks of a run; there is one kind."""
    return Networks(
        trunk=lambda space: vizdoom_network(space, None),
        phi=lambda space: vizdoom_network(space),
        lstm_layers=2,
    )


def vizdoom_network(
    observation_space: spaces.Space[Any],
    dim: int | None = PHI_DIM,
    *,
    layer_norm: bool = False,
    seed: int | None = None,
) -> PixelNetwork:
    """Builds the network for images uint8 [channels, height, width], as `e3b_gym.envs.make("Vizdoom...")` returns.

    Args:
        observation_space: Space of one environment.
        dim: Length of phi; None: the flattened features of the convolutions, which the policy's LSTM reads.
        layer_norm: Apply LayerNorm to the embedding.
        seed: Seed of the initial weights; None: they are drawn from torch's global generator.

    Raises:
        ValueError: The space is not such an image.
    """
    space = observation_space
    picture = isinstance(space, spaces.Box) and space.dtype == "uint8"
    if not picture or len(space.shape or ()) != 3 or space.shape[0] >= space.shape[2]:  # type: ignore[index]
        raise ValueError(
            f"the VizDoom network reads uint8 images [channels, height, width], got {space}; "
            'make the environment with e3b_gym.envs.make("VizdoomMyWayHomeSparse-v0"), or put the channels first'
        )
    if dim is not None and dim < 1:
        raise ValueError(f"dim must be at least 1, or None for the features of the convolutions; got {dim}")
    with seeded_init(seed):
        return PixelNetwork(space.shape, dim, layer_norm)  # type: ignore[arg-type]


class PixelNetwork(Encoder):
    """Images uint8 [rows, channels, height, width] -> [rows, dim]; build it with `vizdoom_network`."""

    def __init__(self, shape: tuple[int, int, int], dim: int | None, layer_norm: bool) -> None:
        super().__init__()
        channels, height, width = shape
        layers: list[nn.Module] = []
        for inputs in (channels, *[FILTERS] * (LAYERS - 1)):
            convolution = nn.Conv2d(inputs, FILTERS, 3, stride=2, padding=1)
            he_init(convolution)
            layers += [convolution, nn.ELU(inplace=True)]
            height, width = (height + 1) // 2, (width + 1) // 2
        self.convolutions = nn.Sequential(*layers, nn.Flatten())
        features = FILTERS * height * width
        self.head = nn.Identity() if dim is None else nn.Linear(features, dim)
        self.dim = features if dim is None else dim
        self.norm = nn.LayerNorm(self.dim) if layer_norm else nn.Identity()
        self.shape = shape

    def forward(self, obs: Tree) -> Tensor:
        if not isinstance(obs, Tensor) or obs.shape[1:] != self.shape:
            got = list(obs.shape) if isinstance(obs, Tensor) else type(obs).__name__
            raise ValueError(f"expected one tensor {['rows', *self.shape]}, got {got}")
        weight: Tensor = self.convolutions[0].weight  # type: ignore[assignment]
        picture = torch.mul(obs, torch.tensor(1 / 255, dtype=weight.dtype, device=weight.device))
        return self.norm(self.head(self.convolutions(picture)))  # type: ignore[no-any-return]
