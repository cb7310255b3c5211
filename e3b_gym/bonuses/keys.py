"""Keys: the part of the observation that a count-based bonus counts.

The paper's variants count the full observation, the agent's (x, y), the symbol image, or the message. On Habitat, where
full images have too many bytes to hash, they count every 1000th value of the image, with GPS and compass. A key is one
of these names, or any function from an observation tree [rows, ...] to the tree that is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import gymnasium as gym

from e3b_gym.unroll import Tree

Key: TypeAlias = Callable[[Tree], Tree]
KeyName: TypeAlias = Literal["full", "position", "image", "message", "subsampled"]

# For each key the Dict entries that hold this part, the first match is used, and how many of its columns are counted
# (None: all). In NetHack the agent's x and y are the first columns of blstats; MiniGrid and Rooms have an optional
# entry "position".
PARTS: dict[str, dict[str, int | None]] = {
    "position": {"position": None, "blstats": 2},
    "image": {"glyphs": None, "image": None, "view": None, "rgb": None},
    "message": {"message": None},
}
SUBSAMPLED_BY = 1000
COUNTED_WITH_SUBSAMPLED = ("gps", "compass")


@dataclass(frozen=True)
class Part:
    """Selects one entry of a Dict observation, or its first columns."""

    entry: str
    columns: int | None = None

    def __call__(self, obs: Tree) -> Tree:
        return obs[self.entry] if self.columns is None else obs[self.entry][:, : self.columns]


@dataclass(frozen=True)
class Subsampled:
    """Selects every 1000th value of one entry, flattened in C order, and all values of the `complete` entries."""

    entry: str
    complete: tuple[str, ...] = ()

    def __call__(self, obs: Tree) -> Tree:
        return {
            self.entry: obs[self.entry].flatten(1)[:, ::SUBSAMPLED_BY],
            **{name: obs[name] for name in self.complete},
        }


def full_observation(obs: Tree) -> Tree:
    """Selects the whole observation."""
    return obs


def make_key(key: str | Key, observation_space: gym.Space[Any]) -> Key:
    """Returns the function that selects the part of an observation named by `key`.

    Raises:
        ValueError: the key is unknown, or the observation space has no such part.
    """
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
            return Subsampled(entry, tuple(name for name in COUNTED_WITH_SUBSAMPLED if name in names))
        if entry in names:
            return Part(entry, columns)
    raise ValueError(
        f"the observation space has no {part} to count; it has {', '.join(names) or observation_space}. The {key} key "
        f"reads a Dict entry named {' or '.join(PARTS[part])}. Pass key=<a function of the observation tree>"
    )
