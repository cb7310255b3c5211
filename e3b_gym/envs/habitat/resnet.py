"""ResNet50 with GroupNorm at half width: the visual encoder of DD-PPO (Wijmans et al. 2020), which the paper uses.

He et al. 2016 start with 64 planes and BatchNorm, this network with 32 and GroupNorm (16 groups): batch statistics are
poor when the frames of a batch are consecutive, and an embedding must not depend on the rest of its batch. A 3x3
convolution compresses the last maps to about 2048 numbers, for any size of the image.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from e3b_gym.encoders.generic import he_init

BASE_PLANES = 32
GROUPS = 16
BLOCKS = (3, 4, 6, 3)
EXPANSION = 4
COMPRESSED = 2048


class Bottleneck(nn.Module):
    """relu(x + norm(1x1 relu(norm(3x3 relu(norm(1x1 x)))))), with a projection of x where shapes change."""

    def __init__(self, inputs: int, planes: int, stride: int) -> None:
        super().__init__()
        outputs = planes * EXPANSION
        self.residual = nn.Sequential(
            _convolution(inputs, planes, 1),
            nn.GroupNorm(GROUPS, planes),
            nn.ReLU(inplace=True),
            _convolution(planes, planes, 3, stride),
            nn.GroupNorm(GROUPS, planes),
            nn.ReLU(inplace=True),
            _convolution(planes, outputs, 1),
            nn.GroupNorm(GROUPS, outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(_convolution(inputs, outputs, 1, stride), nn.GroupNorm(GROUPS, outputs))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.shortcut(x) + self.residual(x))


class ResNet50(nn.Sequential):
    """Images [rows, channels, side, side] -> [rows, width] features, none negative.

    Args:
        channels: number of channels of the image.
        side: height and width of the image.

    Attributes:
        width: number of features, about 2048.
    """

    def __init__(self, channels: int, side: int) -> None:
        layers: list[nn.Module] = [
            _convolution(channels, BASE_PLANES, 7, 2),
            nn.GroupNorm(GROUPS, BASE_PLANES),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
        ]
        inputs = BASE_PLANES
        for stage, blocks in enumerate(BLOCKS):
            planes = BASE_PLANES * 2**stage
            for block in range(blocks):
                layers.append(Bottleneck(inputs, planes, 2 if stage and not block else 1))
                inputs = planes * EXPANSION
        last = -(-side // 32)  # five halvings, rounded up
        maps = round(COMPRESSED / last**2)
        layers += [_convolution(inputs, maps, 3), nn.GroupNorm(1, maps), nn.ReLU(inplace=True), nn.Flatten()]
        super().__init__(*layers)
        self.width = maps * last**2
        he_init(self)


def _convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)
