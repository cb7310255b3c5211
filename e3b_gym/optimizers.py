"""The state of an optimiser, checked against its weights before it is used.

`Optimizer.load_state_dict` of PyTorch compares the number of weights only. A moment of another shape fails in the next
step, or is read beyond its end by a compiled one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def load_optimizer(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Takes over `state`.

    Raises:
        ValueError: `state` does not fit the optimiser's weights or lacks a part; do not use the optimiser afterwards.
    """
    own = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict(dict(state))
    check_optimizer(optimizer, own)


def check_optimizer(optimizer: torch.optim.Optimizer, expected: list[dict[str, Any]]) -> None:
    """Raises ValueError if options have other types than in the groups `expected`, or moments do not fit weights."""
    for group, options in zip(optimizer.param_groups, expected, strict=True):
        for name, value in options.items():
            if name != "params" and not _alike(group.get(name, "missing"), value):
                raise ValueError(f"the optimiser's {name} is {group.get(name, 'missing')!r}")
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    states = {weight: state for weight in weights if (state := optimizer.state.get(weight))}
    names = {name for state in states.values() for name in state}
    for weight, state in states.items():
        if lacking := names - {*state}:
            raise ValueError(f"the optimiser's {', '.join(sorted(lacking))} of a weight is missing")
        for name, part in state.items():
            if not isinstance(part, Tensor) or part.shape not in (torch.Size(), weight.shape):
                raise ValueError(f"the optimiser's {name} does not fit a weight of shape {list(weight.shape)}")
            if (name == "step") != (part.dim() == 0) and weight.dim() > 0:
                raise ValueError(f"the optimiser's {name} has the shape {list(part.shape)}")


def _alike(value: Any, other: Any) -> bool:
    """Whether both are finite numbers, both flags (or unset), or both tuples of alike values."""
    if isinstance(other, (list, tuple)):
        fits = isinstance(value, (list, tuple)) and len(value) == len(other)
        return fits and all(map(_alike, value, other))
    if isinstance(other, (bool, type(None))):
        return isinstance(value, (bool, type(None)))
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value)
