"""Actors in processes, which fill rollouts in shared memory while the learner learns from others.

Each actor has a pipe: the learner sends the number of a rollout that is free, the actor sends it back filled. No lock
and no queue is shared, so an actor may die at any moment. Weights come through `SharedWeights`. Each of an actor's
rollouts is in one of four states:

    free       in `SupervisedEngine._free`; waits for the next weights
      | _assign_free (when new weights are published, or a rollout is asked for)
    assigned   in `_ActorProcess._assigned`; the actor fills it. If the actor dies it stays assigned: the process that
      |        replaces it fills it from the start, in newly seeded environments
      | the actor sends its number back; _receive
    filled     in `SupervisedEngine._filled`, in the order of arrival
      | rollout()
    read       in no list while the learner's `with` block runs; then free
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
import sys
import time
import warnings
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from typing import Any, Literal

import torch
import torch.multiprocessing  # teaches spawned processes to take over shared tensors

from agents.impala.actor import EnvMaker, make_envs
from agents.impala.config import Config
from agents.impala.engines.layout import describe
from agents.impala.engines.roster import SupervisedActor
from agents.impala.engines.shared import Shared, SharedWeights
from agents.impala.engines.supervised import SupervisedEngine
from agents.impala.engines.watch import STAGES
from agents.impala.engines.worker import ActorMemory, ActorMemoryLayout, Assignment, run_actor
from agents.impala.policy import Policy
from agents.impala.rollout import Rollout

_GRACE_SECONDS = 3.0  # for actors to close their environments


class ProcessEngine(SupervisedEngine["_ActorProcess", "_Slot", "_Slot"]):
    """`config.actors` processes.

    Args:
        config: the run.
        state: `state_dict` of the run that this one continues.
        make: makes the environments; called in the actors.
        hang_seconds: an actor that takes no step for so long is replaced.
        rollouts: per actor. Two let it act while the learner learns; more add policy lag.
        start_method: None for "fork" on Linux, "spawn" elsewhere.
    """

    def __init__(
        self,
        config: Config,
        state: Mapping[str, Any] | None = None,
        make: EnvMaker = make_envs,
        *,
        hang_seconds: float = 120.0,
        rollouts: int = 2,
        start_method: Literal["fork", "spawn"] | None = None,
    ) -> None:
        forks = sys.platform == "linux" and not torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # a fork would break the CUDA context
        method = start_method or ("fork" if forks else "spawn")
        rollout, spaces, weights = describe(config, make)
        layout = ActorMemoryLayout(rollout, rollouts)
        self._weights = SharedWeights(weights, inherited=method == "fork")

        def make_actor(number: int, starts: int) -> _ActorProcess:
            task, shared = Assignment(config, number, starts, os.getpid(), make), Shared(layout, method == "fork")
            return _ActorProcess(task, shared, self._weights, method, self._filled)

        super().__init__(config, state, spaces, hang_seconds, make_actor)
        self._free = [(actor, number) for number in range(rollouts) for actor in self.roster.actors]
        try:
            self.roster.start()
        except BaseException:  # such as a process that cannot be started: the others would wait forever
            self.close()
            raise

    @property
    def actor_seconds(self) -> list[dict[str, float]]:
        """Seconds of each actor by stage: "wait" for a free rollout, "load" weights, "act", and step the "env"."""
        return [dict(zip(STAGES, actor.memory.seconds.tolist(), strict=True)) for actor in self.roster.actors]

    @property
    def processes(self) -> list[int]:
        """The actors' process ids."""
        return [actor.pid for actor in self.roster.actors]

    def publish(self, policy: Policy, version: int) -> None:
        weights = policy.state_dict()
        while not self._weights.write(weights, version):
            self.roster.check()  # a reader that hangs must not block the learner
            time.sleep(0.001)
        self._has_published()

    @contextmanager
    def rollout(self) -> Iterator[Rollout]:
        actor, number = self._next_filled()
        try:
            yield actor.memory.rollouts[number]
        finally:
            self._free.append((actor, number))

    def _assign(self, free: _Slot) -> None:
        actor, number = free
        actor.assign(number)

    def _receive(self, timeout: float) -> None:
        wait([end for actor in self.roster.actors for end in (actor.pipe, actor.process.sentinel)], timeout)
        for actor in self.roster.actors:
            actor.receive()
        self.roster.check()

    def _end_actors(self) -> None:
        started = [actor for actor in self.roster.actors if actor.started]
        for actor in started:
            actor.request_stop()
        deadline = time.monotonic() + _GRACE_SECONDS
        for actor in started:
            actor.end(deadline - time.monotonic())


class _ActorProcess(SupervisedActor):
    """An actor whose process may be replaced; it appends the rollouts that it has filled to `filled`."""

    def __init__(
        self,
        assignment: Assignment,
        shared: Shared[ActorMemory],
        weights: SharedWeights,
        method: str,
        filled: deque[_Slot],
    ) -> None:
        super().__init__(assignment.number, assignment.restarts)
        self._assignment = assignment
        self._shared = shared
        self._weights = weights
        self._context: Any = multiprocessing.get_context(method)
        self._filled = filled
        self._assigned: list[int] = []  # the rollouts that it fills, in this order
        self._error = ""
        self.started = False

    @property
    def memory(self) -> ActorMemory:
        return self._shared.arrays

    @property
    def pid(self) -> int:
        return int(self.process.pid)

    def start(self) -> None:
        self._error, self.memory.stop[0] = "", False
        self.pipe, theirs = self._context.Pipe()
        task = dataclasses.replace(self._assignment, restarts=self.restarts)
        self.process = self._context.Process(
            target=run_actor, args=(task, self._shared, self._weights, theirs), name=f"actor-{self.number}", daemon=True
        )
        # Ctrl-C must not reach the new process before it ignores it.
        old = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with warnings.catch_warnings():
                # Python 3.12 and later warn of forks in a process with threads; the new process waits for none.
                warnings.filterwarnings("ignore", ".*multi-threaded", DeprecationWarning)
                self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, old)
        self.started = True
        theirs.close()
        for number in self._assigned:
            self._send(number)

    def assign(self, number: int) -> None:
        self._assigned.append(number)
        self._send(number)

    def _send(self, message: int | None) -> None:
        with suppress(OSError):  # it died; the process that replaces it gets the number
            self.pipe.send(message)

    def receive(self) -> None:
        """Receives the numbers of the rollouts that it has filled since the last call."""
        with suppress(EOFError, OSError):
            while self.pipe.poll():
                message = self.pipe.recv()
                if isinstance(message, str):
                    self._error = f"it raised an error\n{message}"
                else:
                    self._assigned.remove(message)
                    self.failures = 0
                    self._filled.append((self, message))

    def trouble(self) -> str:
        ended = not self.process.is_alive()
        if ended:
            self.receive()  # what it finished before it ended
        return self._error or (f"its process ended with {_exit(self.process.exitcode)}" if ended else "")

    def beat(self) -> int | None:
        return int(self.memory.beat[0]) if self._assigned else None

    def request_stop(self) -> None:
        """Asks it to end: in its next step, or at once if it waits."""
        self.memory.stop[0] = True
        self._send(None)

    def discard(self) -> None:
        self.end(_GRACE_SECONDS if self._error else 0.0)

    def end(self, grace: float) -> None:
        self.process.join(max(grace, 0.0))
        self.process.kill()
        self.process.join()
        self.pipe.close()


_Slot = tuple[_ActorProcess, int]
"""An actor and one of its rollouts."""


def _exit(code: int | None) -> str:
    if code is not None and code < 0:
        return f"signal {-code} ({signal.strsignal(-code)})"
    return f"code {code}"
