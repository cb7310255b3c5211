"""What the tests of engines share: a small run, and comparisons of what its actors deliver."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import psutil

from agents.impala.config import Config
from agents.impala.engines import Engine
from agents.impala.rollout import Rollout
from e3b_gym.config import BonusConfig
from e3b_gym.unroll import tree_leaves, tree_map

PATIENCE = 120.0  # seconds; a busy machine is no failure


def small(method: str = "e3b", **options: Any) -> Config:
    sizes = {"engine": "process", "n_envs": 4, "n_steps": 6, "batch_size": None, "lstm": 8, "dim": 8}
    rooms = {"env": "Rooms-K4-v0", "env_options": {"flat": True, "max_steps": 9}}
    return Config(**{**rooms, **sizes, "bonus": BonusConfig.of(method, "paper"), **options})


def taken(engine: Engine) -> Rollout:
    """A copy of the next rollout."""
    with engine.rollout() as rollout:
        return copy.deepcopy(rollout)


def until(holds: Callable[[], bool], engine: Engine) -> Iterator[Rollout]:
    """Rollouts, until something holds."""
    while not holds():
        yield taken(engine)


def alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE  # orphans are not buried everywhere
    return False


def eventually(holds: Callable[[], bool], seconds: float = PATIENCE) -> bool:
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
    return holds()


def same(one: Rollout, other: Rollout) -> bool:
    """Equal; what was computed in floats up to rounding, since a matrix product may depend on where its arrays lie.

    Terminal observations are compared where they are known; the other rows hold what an earlier unroll left there.
    """

    def read(rollout: Rollout) -> list[Any]:
        known = tree_map(lambda leaf: leaf[rollout.terminal_known], rollout.terminal_obs)
        return tree_leaves({**vars(rollout), "terminal_obs": known})

    pairs = zip(read(one), read(other), strict=True)
    return all(np.allclose(a, b, 1e-5, 1e-6) if a.dtype.kind == "f" else np.array_equal(a, b) for a, b in pairs)


def continues(before: Rollout, after: Rollout) -> bool:
    """Whether an unroll begins where another one of the same actor ended."""
    pairs = zip(tree_leaves(before.obs), tree_leaves(after.obs), strict=True)
    return all(np.array_equal(a[-1], b[0]) for a, b in pairs) and np.array_equal(before.done[-1], after.starts)
