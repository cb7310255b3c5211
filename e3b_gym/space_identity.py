"""The identity of a space for a saved wrapper: kind, shape, dtype and bounds, as plain values.

Spaces are not compared by `str`, which depends on numpy's print options and leaves out most values of large arrays.
"""

from __future__ import annotations

import hashlib
from typing import Any

import gymnasium as gym
import numpy as np


def space_identity(space: gym.Space[Any]) -> dict[str, Any]:
    """Plain values that are equal for equal spaces, and differ for spaces that differ in a bound."""
    kind = type(space).__name__
    if isinstance(space, gym.spaces.Dict):
        return {"kind": kind, "parts": {str(name): space_identity(part) for name, part in sorted(space.items())}}
    if isinstance(space, gym.spaces.Tuple):
        return {"kind": kind, "parts": [space_identity(part) for part in space.spaces]}
    if isinstance(space, gym.spaces.Box):
        return {"kind": kind, **_array_identity(space), "bounds": _digest(space.low, space.high)}
    if isinstance(space, gym.spaces.Discrete):
        return {"kind": kind, "n": int(space.n), "start": int(space.start)}
    if isinstance(space, gym.spaces.MultiDiscrete):
        return {"kind": kind, **_array_identity(space), "bounds": _digest(space.nvec, space.start)}
    if isinstance(space, gym.spaces.MultiBinary):
        return {"kind": kind, **_array_identity(space)}
    return {"kind": kind, "text": repr(space)}


def _array_identity(space: gym.Space[Any]) -> dict[str, Any]:
    return {"shape": [int(size) for size in space.shape or ()], "dtype": str(space.dtype)}


def _digest(*arrays: Any) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
