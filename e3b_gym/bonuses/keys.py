"""What a count-based bonus counts: the whole observation, or the part of it that a researcher believes in.

The paper's variants count the full state, the agent's (x, y), the symbol image, or the message. A key is one of these
names, or any function from an observation tree [rows, ...] to the tree of what counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import gymnasium as gym

from e3b_gym.unroll import Tree

Key: TypeAlias = Callable[[Tree], Tree]

# Where each part lives in the observations of the suites, first match wins: NetHack has the agent's x and y as the
# first two of blstats; MiniGrid and Rooms give them as "position" on request.
PARTS: dict[str, dict[str, Callable[[Any], Any]]] = {
    "position": {"position": lambda leaf: leaf, "blstats": lambda leaf: leaf[:, :2]},
    "image": {name: lambda leaf: leaf for name in ("glyphs", "image", "view", "rgb")},
    "message": {"message": lambda leaf: leaf},
}


def make_key(key: str | Key, observation_space: gym.Space[Any]) -> Key:
    """The function that takes from an observation what `key` says; raises if these observations have no such part."""
    if callable(key):
        return key
    if key == "full":
        return lambda obs: obs
    if key not in PARTS:
        raise ValueError(
            f"unknown count key {key!r}; choose from full, {', '.join(PARTS)}, or pass a function of the observation"
        )
    names = list(observation_space.spaces) if isinstance(observation_space, gym.spaces.Dict) else []
    for name, take in PARTS[key].items():
        if name in names:
            return lambda obs: take(obs[name])
    raise ValueError(
        f"there is no {key} to count in this observation space ({', '.join(names) or observation_space}); the {key} key "
        f"looks for a Dict entry named {' or '.join(PARTS[key])}. Pass key=<a function of the observation tree> instead"
    )
