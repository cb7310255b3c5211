"""Counters of an actor for its learner: steps, and seconds by stage.

"wait" for something to do, "load" weights, "act" (the policy), and step the "env".
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper
from numpy.typing import NDArray

from agents.impala.actor import Actor
from agents.impala.rollout import Rollout

STAGES = ("wait", "load", "act", "env")


class Watch:
    """A step counter and seconds by stage.

    Args:
        beat: int64 [1], counts the steps.
        seconds: float64 [stages], in the order of `STAGES`.
    """

    def __init__(self, beat: NDArray[np.int64], seconds: NDArray[np.float64]) -> None:
        self.beat, self.seconds = beat, seconds

    def check(self) -> None:
        """Called at every step; raises an error if the actor should stop."""
        self.beat[0] += 1

    def add(self, stage: str, seconds: float) -> None:
        self.seconds[STAGES.index(stage)] += seconds

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.add(stage, time.perf_counter() - start)

    def supervise(self, actor: Actor) -> None:
        """Counts each step of the actor's environments from now on."""
        actor.envs = _SupervisedEnvs(actor.envs, self)

    def fill(self, actor: Actor, rollout: Rollout) -> None:
        """`actor.fill`; measures the seconds of policy and environments separately."""
        env = STAGES.index("env")
        before = float(self.seconds[env])
        with self.timed("act"):
            actor.fill(rollout)
        self.add("act", before - float(self.seconds[env]))


class _SupervisedEnvs(VectorWrapper):
    """An actor's environments; each step counts as a sign that the actor runs."""

    def __init__(self, envs: VectorEnv[Any, Any, Any], watch: Watch) -> None:
        super().__init__(envs)
        self._watch = watch

    def reset(self, *args: Any, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        self._watch.check()
        with self._watch.timed("env"):
            return self.env.reset(*args, **kwargs)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self._watch.check()
        with self._watch.timed("env"):
            return self.env.step(actions)
