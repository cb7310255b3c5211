"""The observation networks of MiniHack, for the policy (before its LSTM) and for the bonus's encoder phi.

x = [map, crop, stats, message];  phi = relu(W2 relu(W1 x + b1) + b2), behind it LayerNorm if asked for.

| | `paper` (Henaff et al. 2022, appendix; Samvelyan et al. 2021) | `fast` (after the authors' later variant) |
|---|---|---|
| full map 21x79 | 5 convolutions 3x3, 16 filters, the last 8, ELU | none |
| crop | 9x9, 5 convolutions like the map's, weights of its own | 16x16, 2 convolutions, 16 and 8 filters, ELU |
| blstats | raw, 2 x 64 ReLU | symlog(x) = sign(x) log(1 + abs(x)), 2 x 64 ReLU |
| message | 256 characters, 6 convolutions of 64 (kernels 7, 7, 3, 3, 3, 3), max-pool 3 after the 1st, 2nd, 6th, 2 x 128 ReLU | 128 characters, 3 convolutions of 32 (kernels 7, 7, 3), max-pool 3 after each, 64 ReLU |
| hidden = dim | 1024 | 256 |
| start | PyTorch's | He et al. 2015: variance is kept through the ReLUs, which phi needs to learn early |

Glyph embeddings (64) are shared by map and crop. Where the paper and the authors' code disagree, `paper` follows the
paper: messages are embedded in 64 dimensions (the paper's "64 input feature maps"; the code has 32) and leave as 128
features (the code 64). Map features are ordered (row, column, channel), so that a cell's features lie side by side.
"""  # noqa: E501 (a table row is one line)

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from e3b_gym.encoders.generic import Encoder, seeded_init
from e3b_gym.unroll import Tree

GLYPH_WIDTH = 64
MAP_SHAPE = (21, 79)
NUM_CHARACTERS = 256


@dataclass(frozen=True)
class Sizes:
    """What differs between the variants; see the table above."""

    full_map: bool
    crop_side: int
    filters: tuple[int, ...]
    symlog_stats: bool
    characters: int
    message_filters: int
    message_kernels: tuple[int, ...]
    pool_after: tuple[int, ...]
    message_hidden: tuple[int, ...]
    hidden: int
    keep_variance: bool


VARIANTS = {
    "paper": Sizes(
        full_map=True,
        crop_side=9,
        filters=(16, 16, 16, 16, 8),
        symlog_stats=False,
        characters=256,
        message_filters=64,
        message_kernels=(7, 7, 3, 3, 3, 3),
        pool_after=(0, 1, 5),
        message_hidden=(128, 128),
        hidden=1024,
        keep_variance=False,
    ),
    "fast": Sizes(
        full_map=False,
        crop_side=16,
        filters=(16, 8),
        symlog_stats=True,
        characters=128,
        message_filters=32,
        message_kernels=(7, 7, 3),
        pool_after=(0, 1, 2),
        message_hidden=(64,),
        hidden=256,
        keep_variance=True,
    ),
}


def env_options(variant: str) -> dict[str, Any]:
    """The options of `e3b_gym.envs.make` and `make_vec` that give a variant what it reads, and nothing else."""
    sizes = _sizes(variant)
    keys = ("glyphs", "blstats", "message") if sizes.full_map else ("blstats", "message")
    return {"observation_keys": keys, "crop_size": sizes.crop_side}


def minihack_network(
    observation_space: spaces.Space[Any],
    variant: str = "fast",
    *,
    layer_norm: bool = False,
    accelerate: bool = True,
    seed: int | None = None,
) -> MiniHackNetwork:
    """Builds the network of a variant for environments made with `env_options(variant)`.

    Args:
        observation_space: Of one environment; it may hold more than the network reads.
        variant: "paper" or "fast".
        layer_norm: Whether the embedding is normalised (what the authors' later variant does to phi).
        accelerate: False takes PyTorch's plain modules; the function, its gradients and the parameters are the same.
        seed: With a seed the weights depend on it alone; without one they come from torch's global generator.

    Raises:
        ValueError: The space lacks something that the network reads.
    """
    sizes = _sizes(variant)
    _check_space(observation_space, variant, sizes)
    with seeded_init(seed):
        return MiniHackNetwork(sizes, _num_glyphs(observation_space, sizes), layer_norm, accelerate)


class MiniHackNetwork(Encoder):
    """Observations [rows, ...] by key -> [rows, dim]; build it with `minihack_network`."""

    def __init__(self, sizes: Sizes, num_glyphs: int, layer_norm: bool, accelerate: bool) -> None:
        super().__init__()
        self.dim, self.accelerate = sizes.hidden, accelerate
        self.glyphs = nn.Embedding(num_glyphs, GLYPH_WIDTH)
        self.map = GlyphTrunk(MAP_SHAPE, sizes.filters) if sizes.full_map else None
        self.crop = GlyphTrunk((sizes.crop_side, sizes.crop_side), sizes.filters)
        self.stats = StatsTrunk(sizes.symlog_stats)
        self.message = MessageTrunk(sizes)
        trunks = [self.map, self.crop, self.stats, self.message]
        self.widths = [0 if trunk is None else trunk.width for trunk in trunks]
        self.fc1 = nn.Linear(sum(self.widths), sizes.hidden)
        self.fc2 = nn.Linear(sizes.hidden, sizes.hidden)
        self.norm = nn.LayerNorm(sizes.hidden) if layer_norm else nn.Identity()
        if sizes.keep_variance:
            _start_wide(self)

    def forward(self, obs: Tree) -> Tensor:
        maps = [] if self.map is None else [self.map(self.glyphs(obs["glyphs"].int()))]
        crop = self.crop(self.glyphs(obs["glyphs_crop"].int()))
        features = torch.cat([*maps, crop, self.stats(obs["blstats"]), self.message(obs["message"])], 1)
        return self.norm(torch.relu(self.fc2(torch.relu(self.fc1(features)))))  # type: ignore[no-any-return]


class GlyphTrunk(nn.Module):
    """Embedded glyphs [rows, height, width, 64] -> 3x3 convolutions -> [rows, height * width * filters]."""

    def __init__(self, shape: tuple[int, int], filters: tuple[int, ...]) -> None:
        super().__init__()
        inputs = (GLYPH_WIDTH, *filters[:-1])
        self.convolutions = nn.ModuleList(nn.Conv2d(i, o, 3, padding=1) for i, o in zip(inputs, filters, strict=True))
        self.shape = shape
        self.width = shape[0] * shape[1] * filters[-1]

    def forward(self, symbols: Tensor) -> Tensor:
        x = symbols.permute(0, 3, 1, 2)  # [rows, C, H, W]
        for convolution in self.convolutions:
            x = nn.functional.elu(convolution(x))
        return x.permute(0, 2, 3, 1).flatten(1)  # [rows, H W C]


class StatsTrunk(nn.Module):
    """The bottom line's 27 numbers -> [rows, 64]."""

    width = 64

    def __init__(self, symlog: bool) -> None:
        super().__init__()
        self.symlog = symlog
        self.layers = nn.Sequential(nn.Linear(27, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())

    def forward(self, stats: Tensor) -> Tensor:
        x = stats.to(self.layers[0].weight.dtype)  # type: ignore[arg-type]
        if self.symlog:
            x = x.abs().log1p().copysign(x)
        return self.layers(x)  # type: ignore[no-any-return]


class MessageTrunk(nn.Module):
    """The message's characters [rows, 256] -> [rows, width]."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.characters = sizes.characters
        self.embedding = nn.Embedding(NUM_CHARACTERS, sizes.message_filters)
        layers: list[nn.Module] = []
        length = sizes.characters
        for layer, kernel in enumerate(sizes.message_kernels):
            layers += [nn.Conv1d(sizes.message_filters, sizes.message_filters, kernel), nn.ReLU()]
            length -= kernel - 1
            if layer in sizes.pool_after:
                layers.append(nn.MaxPool1d(3))
                length //= 3
        layers.append(nn.Flatten())
        self.width = length * sizes.message_filters
        for hidden in sizes.message_hidden:
            layers += [nn.Linear(self.width, hidden), nn.ReLU()]
            self.width = hidden
        self.layers = nn.Sequential(*layers)

    def forward(self, message: Tensor) -> Tensor:
        characters = self.embedding(message[:, : self.characters].int())  # [rows, L, C]
        return self.layers(characters.transpose(1, 2))  # type: ignore[no-any-return]


def _sizes(variant: str) -> Sizes:
    if variant not in VARIANTS:
        raise ValueError(f"unknown variant {variant!r} of the MiniHack network; choose from {', '.join(VARIANTS)}")
    return VARIANTS[variant]


def _start_wide(network: nn.Module) -> None:
    for layer in network.modules():
        if isinstance(layer, (nn.Linear, nn.Conv1d, nn.Conv2d)):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]


def _check_space(space: spaces.Space[Any], variant: str, sizes: Sizes) -> None:
    """Raises ValueError with the key that is missing or of another shape, and the option that gives it."""
    side, options = sizes.crop_side, env_options(variant)
    wanted = {
        "glyphs": (MAP_SHAPE, f"observation_keys={options['observation_keys']}") if sizes.full_map else None,
        "glyphs_crop": ((side, side), f"crop_size={side}"),
        "blstats": ((27,), f"observation_keys={options['observation_keys']}"),
        "message": ((256,), f"observation_keys={options['observation_keys']}"),
    }
    parts = space.spaces if isinstance(space, spaces.Dict) else {}
    for key, need in wanted.items():
        if need is None:
            continue
        shape, option = need
        got = parts[key].shape if key in parts else None
        if got != shape:
            found = "is missing from" if got is None else f"has shape {got} in"
            raise ValueError(
                f'the {variant} network reads "{key}" of shape {shape}, which {found} the observation space; '
                f"make the environment with e3b_gym.envs.make(id, {option})"
            )


def _num_glyphs(space: spaces.Space[Any], sizes: Sizes) -> int:
    """Rows of the embedding table: every value that the space allows."""
    keys = ("glyphs", "glyphs_crop") if sizes.full_map else ("glyphs_crop",)
    return 1 + max(int(space[key].high.max()) for key in keys)  # type: ignore[index]
