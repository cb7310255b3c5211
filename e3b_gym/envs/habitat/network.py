"""The observation networks of Habitat, for the policy (before its LSTM) and for the encoder phi of the bonus.

trunk = [visual(rgb / 255, depth), embed(gps), embed(cos compass, sin compass)];  phi = MLP(trunk), no recurrence

| | `paper` (Henaff et al. 2022, appendix; Wijmans et al. 2020) | `fast`, for CPUs |
|---|---|---|
| image | any side, 2x average pool | averaged to 32x32 in one pass over the bytes (`shrink`) |
| visual | ResNet50 with GroupNorm, 32 base planes, compressed to 2048 (`resnet`), linear 512, ReLU | 4x4 convolution with stride 4, 32 filters; 3x3 with stride 2, 32 filters; ReLU |
| GPS, compass | 32 features each, linear, metres unscaled | 32 each, ReLU, metres / 5 |
| policy's trunk | the 576 features | linear 256, ReLU |
| LSTM | 2 x 512 | 256 |
| phi | linear 512, ReLU, linear 512, ReLU, linear 512 | linear 256, ReLU, linear 128, LayerNorm |
| multiplications per frame, size 256 / 64 | 370 million | 0.46 million |

Both encode the compass as cosine and sine, so that -pi and pi are the same heading. Metres / 5 puts most of a home
within [-2, 2], where the initial biases of that layer place its kinks.

`paper` is DD-PPO's network, half as wide as the ResNet50 of He et al. 2016, since that is what "the same policy network
as in DD-PPO" means. Left out: DD-PPO's embedding of the previous action (the paper counts four inputs without it) and
its running mean and variance of colours (here an embedding depends on the observation and the weights only). `fast` was
designed for this library. RGB may have its channels first, as Stable-Baselines3 transposes it.
"""  # noqa: E501 (a table row is one line)

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from e3b_gym.encoders.generic import Encoder, he_init, seeded_init
from e3b_gym.encoders.networks import Networks
from e3b_gym.envs.habitat.resnet import ResNet50
from e3b_gym.envs.habitat.shrink import shrink
from e3b_gym.unroll import Tree

VARIANTS = ("paper", "fast")
SIZES = {"paper": 256, "fast": 64}
"""Side of the images that each network was designed for; any multiple of 32 works."""
CHANNELS = 4  # red, green, blue, depth
EMBEDDED = 32  # features of GPS, and as many of the compass
FAST_SIDE = 32
FAST_FILTERS = 32
METRES = 5.0


def networks(net: str) -> Networks:
    """The networks of a run: "paper" or "fast"."""
    fast = net == "fast"
    return Networks(
        trunk=lambda space: habitat_network(space, net),
        phi=lambda space: habitat_network(space, net, phi=True),
        lstm=256 if fast else 512,
        lstm_layers=1 if fast else 2,
        env_options=env_options(net),
    )


def env_options(variant: str) -> dict[str, Any]:
    """Returns the options of `e3b_gym.envs.make` and `make_vec` for the observations of a variant."""
    return {"size": SIZES[_known(variant)]}


def habitat_network(
    observation_space: spaces.Space[Any], variant: str = "fast", *, phi: bool = False, seed: int | None = None
) -> HabitatNetwork:
    """Builds a network for observations of `e3b_gym.envs.make("Habitat-...")`.

    Args:
        observation_space: Space of one environment; it may have entries that the network does not read.
        variant: "paper" or "fast".
        phi: True: the encoder of the bonus; False: the features that the policy's LSTM reads.
        seed: Seed of the initial weights; None: they are drawn from torch's global generator.

    Raises:
        ValueError: The space lacks an entry that the network reads.
    """
    _known(variant)
    side = picture_side(observation_space)
    with seeded_init(seed):
        return PaperNetwork(side, phi) if variant == "paper" else FastNetwork(side, phi)


class HabitatNetwork(Encoder):
    """Observations by key -> [rows, dim]; build it with `habitat_network`.

    Args:
        side: height and width of the images.
        metres: GPS coordinates are divided by this.
    """

    def __init__(self, side: int, metres: float) -> None:
        super().__init__()
        self.side, self.metres = side, metres
        self.gps, self.compass = nn.Linear(2, EMBEDDED), nn.Linear(2, EMBEDDED)

    def place(self, obs: Tree) -> Tensor:
        """Returns the embeddings of GPS and compass, [rows, 64]."""
        kind = self.gps.weight.dtype
        angle = obs["compass"].to(kind)  # [rows, 1]
        heading = torch.cat([angle.cos(), angle.sin()], 1)
        return torch.cat([self.gps(obs["gps"].to(kind) / self.metres), self.compass(heading)], 1)

    def picture(self, obs: Tree, factor: int) -> Tensor:
        """Returns RGB and depth, `factor` times smaller: [rows, 4, side / factor, side / factor]."""
        rgb, depth = obs["rgb"], obs["depth"]
        rgb = rgb.permute(0, 2, 3, 1) if rgb.shape[1] == 3 else rgb  # no image is 3 pixels high
        wanted = (self.side, self.side)
        if rgb.shape[1:] != (*wanted, 3) or depth.shape[1:] != (*wanted, 1):
            raise ValueError(
                f"expected rgb [rows, {self.side}, {self.side}, 3] and depth [rows, {self.side}, {self.side}, 1], got "
                f"{list(obs['rgb'].shape)} and {list(depth.shape)}; build the network from this environment's space"
            )
        return shrink(rgb, depth, factor, self.gps.weight.dtype)


class PaperNetwork(HabitatNetwork):
    """ResNet50 and embeddings, followed by an MLP if it is phi."""

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
    """Two convolutions on a 32x32 image, embeddings, and one or two linear layers."""

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
        he_init(self.visual, self.hidden, zero_bias=False)

    def forward(self, obs: Tree) -> Tensor:
        seen = self.visual(self.picture(obs, self.side // FAST_SIDE))  # [rows, 512]
        features = torch.cat([seen, torch.relu_(self.place(obs))], 1)
        return self.head(torch.relu_(self.hidden(features)))  # type: ignore[no-any-return]


def picture_side(space: spaces.Space[Any]) -> int:
    """Returns the side of the images; raises ValueError if an entry that the networks read is missing or wrong."""
    parts = space.spaces if isinstance(space, spaces.Dict) else {}
    shape = parts["rgb"].shape if "rgb" in parts else None
    side = (
        0 if shape is None or len(shape) != 3 else shape[1]
    )  # the middle dimension is a side whether channels are first or last
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
            f"the Habitat networks read images whose side is a multiple of {FAST_SIDE}, got {side}; make the "
            "environment with e3b_gym.envs.make(id, size=64), or 128, or 256"
        )
    return side


def _known(variant: str) -> str:
    if variant not in VARIANTS:
        raise ValueError(f"unknown variant {variant!r} of the Habitat network; choose from {', '.join(VARIANTS)}")
    return variant
