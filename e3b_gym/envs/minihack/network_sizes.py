"""Sizes of the MiniHack networks and the observations that they need; `network.py` has the table and the reasons."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from gymnasium import spaces

MAP_SHAPE = (21, 79)


@dataclass(frozen=True)
class Sizes:
    """The differences between the variants; `network.py` has the table."""

    full_map: bool
    """Reads the whole map, 21x79, as well as the crop."""
    crop_side: int
    """Height and width of `glyphs_crop`."""
    filters: tuple[int, ...]
    """Filters of each 3x3 convolution over map and crop."""
    symlog_stats: bool
    """Compresses `blstats` by sign(x) log(1 + abs(x)); False reads them raw."""
    characters: int
    """Characters of the message that are read, of 256."""
    message_filters: int
    """Size of a character's embedding, and filters of each convolution over the message."""
    message_kernels: tuple[int, ...]
    """Kernel of each convolution over the message."""
    pool_after: tuple[int, ...]
    """Convolutions over the message, counted from 0, that are followed by max-pooling with kernel 3."""
    message_hidden: tuple[int, ...]
    """Sizes of the fully connected layers after the convolutions over the message."""
    hidden: int
    """Size of the hidden layer, and of the output."""
    keep_variance: bool
    """Initial weights by He et al. 2015; False uses PyTorch's default."""
    scores_moves: bool = False
    """IMPALA's policy adds scores of the eight moves to its logits (`moves.py`)."""


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
VARIANTS["moves"] = replace(VARIANTS["fast"], scores_moves=True)


def env_options(variant: str) -> dict[str, Any]:
    """Returns the options of `e3b_gym.envs.make` and `make_vec` for exactly the observations of a variant."""
    sizes = sizes_of(variant)
    keys = ("glyphs", "blstats", "message") if sizes.full_map else ("blstats", "message")
    return {"observation_keys": keys, "crop_size": sizes.crop_side}


def sizes_of(variant: str) -> Sizes:
    if variant not in VARIANTS:
        raise ValueError(f"unknown variant {variant!r} of the MiniHack network; choose from {', '.join(VARIANTS)}")
    return VARIANTS[variant]


def check_space(space: spaces.Space[Any], variant: str, sizes: Sizes) -> None:
    """Raises ValueError if a key is missing or has another shape; the message names the option that adds it."""
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


def num_glyphs(space: spaces.Space[Any], sizes: Sizes) -> int:
    """Returns the number of glyphs that the space allows, the rows of the embedding table."""
    keys = ("glyphs", "glyphs_crop") if sizes.full_map else ("glyphs_crop",)
    return 1 + max(int(space[key].high.max()) for key in keys)  # type: ignore[index]
