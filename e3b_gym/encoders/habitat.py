"""The observation networks of Habitat, for the policy (before its LSTM) and for the bonus's encoder phi.

trunk = [visual(rgb / 255, depth), embed(gps), embed(cos compass, sin compass)];  phi = MLP(trunk), no recurrence

| | `paper` (Henaff et al. 2022, appendix; Wijmans et al. 2020) | `fast`, for CPUs |
|---|---|---|
| picture | any side, 2x average pool | averaged to 32x32 in one pass over the bytes (`shrink`) |
| visual | ResNet50 with GroupNorm, 32 base planes, compressed to 2048 (`resnet`), linear 512, ReLU | 4x4 convolution with stride 4, 32 filters; 3x3 with stride 2, 32 filters; ReLU |
| GPS, compass | 32 features each, linear, metres as they are | 32 each, ReLU, metres / 5 |
| policy's trunk | the 576 features | linear 256, ReLU |
| LSTM | 2 x 512 | 256 |
| phi | linear 512, ReLU, linear 512, ReLU, linear 512 | linear 256, ReLU, linear 128, LayerNorm |
| multiplications per frame, size 256 / 64 | 370 million | 0.46 million |

The compass enters as cosine and sine in both, so that -pi and pi are one heading. Metres / 5 puts most of a home within
[-2, 2], where the biases of that layer place its kinks.

`paper` is DD-PPO's network, half as wide as the ResNet50 of He et al. 2016, since that is what "the same policy network
as in DD-PPO" means. Left out: DD-PPO's embedding of the previous action (the paper counts four inputs without it) and
its running mean and variance of colours (an embedding here is a function of the observation and the weights alone).
`fast` is ours. RGB may come with its channels in front, as Stable-Baselines3 turns it.
"""  # noqa: E501 (a table row is one line)

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from e3b_gym.encoders.generic import Encoder, seeded_init
from e3b_gym.encoders.resnet import ResNet50
from e3b_gym.encoders.shrink import shrink
from e3b_gym.unroll import Tree

VARIANTS = ("paper", "fast")
SIZES = {"paper": 256, "fast": 64}
"""Sides of the pictures that the networks are meant for; any multiple of 32 works."""
CHANNELS = 4  # red, green, blue, depth
EMBEDDED = 32  # features of GPS and of the compass
FAST_SIDE = 32
FAST_FILTERS = 32
METRES = 5.0


def env_options(variant: str) -> dict[str, Any]:
    """The options of `e3b_gym.envs.make` and `make_vec` that give a variant what it reads."""
    return {"size": SIZES[_known(variant)]}


def habitat_network(
    observation_space: spaces.Space[Any], variant: str = "fast", *, phi: bool = False, seed: int | None = None
) -> HabitatNetwork:
    """Builds a network for observations of `e3b_gym.envs.make("Habitat-...")`.

    Args:
        observation_space: Of one environment; it may hold more than the network reads.
        variant: "paper" or "fast".
        phi: The encoder of the bonus; else what the policy's LSTM reads.
        seed: With a seed the weights depend on it alone; without one they come from torch's global generator.

    Raises:
        ValueError: The space lacks something that the network reads.
    """
    _known(variant)
    side = picture_side(observation_space)
    with seeded_init(seed):
        return PaperNetwork(side, phi) if variant == "paper" else FastNetwork(side, phi)


class HabitatNetwork(Encoder):
    """Observations by key -> [rows, dim]; build it with `habitat_network`.

    Args:
        side: of the pictures.
        metres: GPS is divided by it.
    """

    def __init__(self, side: int, metres: float) -> None:
        super().__init__()
        self.side, self.metres = side, metres
        self.gps, self.compass = nn.Linear(2, EMBEDDED), nn.Linear(2, EMBEDDED)

    def place(self, obs: Tree) -> Tensor:
        """GPS and compass, embedded: [rows, 64]."""
        kind = self.gps.weight.dtype
        angle = obs["compass"].to(kind)  # [rows, 1]
        heading = torch.cat([angle.cos(), angle.sin()], 1)
        return torch.cat([self.gps(obs["gps"].to(kind) / self.metres), self.compass(heading)], 1)

    def picture(self, obs: Tree, factor: int) -> Tensor:
        """RGB and depth, `factor` times smaller: [rows, 4, side / factor, side / factor]."""
        rgb, depth = obs["rgb"], obs["depth"]
        rgb = rgb.permute(0, 2, 3, 1) if rgb.shape[1] == 3 else rgb  # no picture is 3 pixels high
        wanted = (self.side, self.side)
        if rgb.shape[1:] != (*wanted, 3) or depth.shape[1:] != (*wanted, 1):
            raise ValueError(
                f"expected rgb [rows, {self.side}, {self.side}, 3] and depth [rows, {self.side}, {self.side}, 1], got "
                f"{list(obs['rgb'].shape)} and {list(depth.shape)}; build the network from the environment's own space"
            )
        return shrink(rgb, depth, factor, self.gps.weight.dtype)


class PaperNetwork(HabitatNetwork):
    """ResNet50 and embeddings; behind them an MLP where it serves as phi."""

    def __init__(self, side: int, phi: bool) -> None:
        super().__init__(side, metres=1.0)
        backbone = ResNet50(CHANNELS, side // 2)
        self.visual = nn.Sequential(backbone, nn.Linear(backbone.width, 512), nn.ReLU(inplace=True))
        features = 512 + 2 * EMBEDDED
        self.head = nn.Sequential()
        if phi:
            self.head = nn.Sequential(
                nn.Linear(features, 512),
                nn.ReLU(inplace=True),
                nn.Linear(512, 512),
                nn.ReLU(inplace=True),
                nn.Linear(512, 512),
            )
        self.dim = 512 if phi else features

    def forward(self, obs: Tree) -> Tensor:
        seen = self.visual(self.picture(obs, 2))  # [rows, 512]
        return self.head(torch.cat([seen, self.place(obs)], 1))  # type: ignore[no-any-return]


class FastNetwork(HabitatNetwork):
    """Two convolutions on a 32x32 picture, embeddings, and one or two linear layers."""

    def __init__(self, side: int, phi: bool) -> None:
        super().__init__(side, METRES)
        self.visual = nn.Sequential(
            nn.Conv2d(CHANNELS, FAST_FILTERS, 4, stride=4),
            nn.ReLU(inplace=True),
            nn.Conv2d(FAST_FILTERS, FAST_FILTERS, 3, stride=2, padding=1),
            nn.ReLU(inplace=True),
            nn.Flatten(),
        )
        seen = FAST_FILTERS * (FAST_SIDE // 8) ** 2
        self.hidden = nn.Linear(seen + 2 * EMBEDDED, 256)
        self.head = nn.Sequential(nn.Linear(256, 128), nn.LayerNorm(128)) if phi else nn.Sequential()
        self.dim = 128 if phi else 256
        for layer in (*self.visual, self.hidden):
            if isinstance(layer, (nn.Conv2d, nn.Linear)):  # PyTorch's own start shrinks the contrast, layer by layer
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")

    def forward(self, obs: Tree) -> Tensor:
        seen = self.visual(self.picture(obs, self.side // FAST_SIDE))  # [rows, 512]
        features = torch.cat([seen, torch.relu_(self.place(obs))], 1)
        return self.head(torch.relu_(self.hidden(features)))  # type: ignore[no-any-return]


def picture_side(space: spaces.Space[Any]) -> int:
    """The side of the pictures; raises ValueError with what a network of Habitat would miss in the space."""
    parts = space.spaces if isinstance(space, spaces.Dict) else {}
    shape = parts["rgb"].shape if "rgb" in parts else None
    side = 0 if shape is None or len(shape) != 3 else shape[1]  # the middle one, wherever the channels are
    wanted: dict[str, tuple[list[tuple[int, ...]], str]] = {
        "rgb": ([(side, side, 3), (3, side, side)], "uint8"),
        "depth": ([(side, side, 1)], "float32"),
        "gps": ([(2,)], "float32"),
        "compass": ([(1,)], "float32"),
    }
    for key, (shapes, kind) in wanted.items():
        part = parts.get(key)
        if part is None or part.shape not in shapes or part.dtype != kind:
            needs = "side, side, 3" if key == "rgb" else ", ".join(map(str, shapes[0]))
            raise ValueError(
                f'the Habitat networks read "{key}" as {kind} [{needs}], but the observation space has '
                f'{part or f"no {key}"}; make the environment with e3b_gym.envs.make("Habitat-FloorPlan-v0")'
            )
    if side < FAST_SIDE or side % FAST_SIDE:
        raise ValueError(
            f"the Habitat networks read pictures whose side is a multiple of {FAST_SIDE}, got {side}; make the "
            "environment with e3b_gym.envs.make(id, size=64), or 128, or 256"
        )
    return side


def _known(variant: str) -> str:
    if variant not in VARIANTS:
        raise ValueError(f"unknown variant {variant!r} of the Habitat network; choose from {', '.join(VARIANTS)}")
    return variant
