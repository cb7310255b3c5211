"""What a count-based bonus counts: the whole observation, or the part of it that a researcher believes in.

The paper's variants count the full state, the agent's (x, y), the symbol image, or the message; on Habitat, where full
images are too many bytes to hash, every 1000th value of the image with GPS and compass. A key is one of these names, or
any function from an observation tree [rows, ...] to the tree of what counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import gymnasium as gym

from e3b_gym.unroll import Tree

Key: TypeAlias = Callable[[Tree], Tree]
KeyName: TypeAlias = Literal["full", "position", "image", "message", "subsampled"]

# Where each part lives in the observations of the suites, first match wins, and how many of its columns count (None:
# all). NetHack has the agent's x and y in front of blstats; MiniGrid and Rooms give them as "position" on request.
PARTS: dict[str, dict[str, int | None]] = {
    "position": {"position": None, "blstats": 2},
    "image": {"glyphs": None, "image": None, "view": None, "rgb": None},
    "message": {"message": None},
}
SUBSAMPLED_BY = 1000
BESIDE_SUBSAMPLED = ("gps", "compass")


@dataclass(frozen=True)
class Part:
    """Takes one entry of a Dict observation, or its first columns."""

    entry: str
    columns: int | None = None

    def __call__(self, obs: Tree) -> Tree:
        return obs[self.entry] if self.columns is None else obs[self.entry][:, : self.columns]


@dataclass(frozen=True)
class Subsampled:
    """Takes every 1000th value of one entry (row by row, the channels of a pixel side by side), others as they are."""

    entry: str
    beside: tuple[str, ...] = ()

    def __call__(self, obs: Tree) -> Tree:
        return {
            self.entry: obs[self.entry].flatten(1)[:, ::SUBSAMPLED_BY],
            **{name: obs[name] for name in self.beside},
        }


def full_observation(obs: Tree) -> Tree:
    """Everything counts."""
    return obs


def make_key(key: str | Key, observation_space: gym.Space[Any]) -> Key:
    """The function that takes from an observation what `key` says; raises if these observations have no such part."""
    if callable(key):
        return key
    if key == "full":
        return full_observation
    if key not in (*PARTS, "subsampled"):
        raise ValueError(
            f"unknown count key {key!r}; choose from full, {', '.join(PARTS)}, subsampled, or pass a function of the "
            "observation"
        )
    names = list(observation_space.spaces) if isinstance(observation_space, gym.spaces.Dict) else []
    part = "image" if key == "subsampled" else key
    for entry, columns in PARTS[part].items():
        if entry in names and key == "subsampled":
            return Subsampled(entry, tuple(name for name in BESIDE_SUBSAMPLED if name in names))
        if entry in names:
            return Part(entry, columns)
    raise ValueError(
        f"there is no {part} to count in this observation space ({', '.join(names) or observation_space}); the {key} "
        f"key looks for a Dict entry named {' or '.join(PARTS[part])}. Pass key=<a function of the observation tree>"
    )
