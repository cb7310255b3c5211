"""The code of a worker process of Ray.

`fill` and `close` run one after the other; calls that must not wait for an unroll to be finished run in a second
thread.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import ray
import torch
from numpy.typing import NDArray

from agents.impala.actor import Actor, EnvMaker
from agents.impala.config import Config
from agents.impala.engines.layout import RolloutLayout
from agents.impala.engines.watch import STAGES, Watch
from agents.ray_cluster import require_code


class StopRequested(Exception):
    """The learner asked the actor to stop."""


class RemoteActor:
    """An actor. It is created with its first unroll, so that the first heartbeat is quick.

    Args:
        config, number, make, restarts: arguments of `Actor`.
        code: the learner's version of this package.
    """

    def __init__(self, config: Config, number: int, make: EnvMaker, code: str, restarts: int) -> None:
        require_code(code, "the learner's machine")
        self._arguments = config, number, restarts, make
        self._actor: Actor | None = None
        self._watch = _StoppableWatch()
        self._arrived = threading.Condition()
        self._weights: tuple[dict[str, NDArray[Any]], int] = ({}, -1)
        self._ended = time.perf_counter()  # the last call

    @ray.method(concurrency_group="mail")
    def take(self, weights: dict[str, NDArray[Any]], version: int) -> None:
        """Stores the weights for the next unroll."""
        with self._arrived:
            self._weights = weights, version
            self._arrived.notify()

    @ray.method(concurrency_group="mail")
    def beat(self) -> int:
        """Returns the number of steps."""
        return int(self._watch.beat[0])

    @ray.method(concurrency_group="mail")
    def stop(self) -> None:
        """Ends the unroll that is being filled with an error, in its next step."""
        with self._arrived:
            self._watch.stopped = True
            self._arrived.notify()

    def fill(self, version: int) -> tuple[dict[str, Any], NDArray[np.float64]]:
        """Returns the next unroll, of weights `version` or newer, and the seconds spent since the last, by stage."""
        watch = self._watch
        if self._actor is None:
            torch.set_num_threads(1)
            self._actor = Actor(*self._arguments)
            self._rollout = RolloutLayout.of(
                self._arguments[0], self._actor.policy, self._actor.envs.single_observation_space
            )()
            watch.supervise(self._actor)
        with self._arrived:
            self._arrived.wait_for(lambda: self._weights[1] >= version or watch.stopped)
            weights, newest = self._weights
        watch.check()
        watch.add("wait", time.perf_counter() - self._ended)
        with watch.timed("load"):
            if newest != self._actor.version:
                # Ray's arrays cannot be written to, and torch would warn that its tensors could be.
                self._actor.load({name: torch.from_numpy(array.copy()) for name, array in weights.items()}, newest)
        watch.fill(self._actor, self._rollout)
        spent = watch.seconds.copy()
        watch.seconds[:] = 0.0
        self._ended = time.perf_counter()
        return self._rollout.packed(), spent

    def close(self) -> None:
        if self._actor is not None:
            self._actor.close()


class _StoppableWatch(Watch):
    def __init__(self) -> None:
        super().__init__(np.zeros(1, np.int64), np.zeros(len(STAGES)))
        self.stopped = False

    def check(self) -> None:
        super().check()
        if self.stopped:
            raise StopRequested
