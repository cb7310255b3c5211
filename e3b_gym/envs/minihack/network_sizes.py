"""Sizes of the MiniHack networks and the observations that they need; `minihack.py` has the table and the reasons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gymnasium import spaces

MAP_SHAPE = (21, 79)


@dataclass(frozen=True)
class Sizes:
    """The differences between the variants; `minihack.py` has the table."""

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
