"""Actors on the machines of a Ray cluster. Ray places them, transfers weights and unrolls, and detects losses.

    publish    the weights are put into Ray's object store once; each machine fetches them once
    fill       one call of an actor for each unroll; two are pending, so that it acts while the learner learns
    rollout    the unrolls come back as objects of the store and are copied into rollouts of this process

An actor without a free core waits for one in Ray's queue, and training continues with the others. Ray restarts no actor
itself, because it would use the same arguments and therefore the same environments. When this process ends, for any
reason, Ray ends its actors.
"""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray
from ray.exceptions import RayError, RayTaskError

from agents.impala.actor import EnvMaker, make_envs
from agents.impala.config import Config
from agents.impala.engines.layout import describe
from agents.impala.engines.ray_worker import RemoteActor
from agents.impala.engines.roster import ActorWarning, SupervisedActor
from agents.impala.engines.supervised import SupervisedEngine
from agents.impala.engines.watch import STAGES
from agents.impala.policy import Policy
from agents.impala.rollout import Rollout
from agents.ray_cluster import code_version, connect

_GRACE_SECONDS = 3.0  # for actors to close their environments
_remote: Any = ray.remote
_OnOneCore = _remote(
    num_cpus=1, max_restarts=0, max_task_retries=0, concurrency_groups={"mail": 1}, scheduling_strategy="SPREAD"
)(RemoteActor)


@dataclass
class _Weights:
    """The newest weights, in Ray's object store."""

    ref: Any = None
    version: int = -1


class RayEngine(SupervisedEngine["_ActorOnRay", "_ActorOnRay", "tuple[_ActorOnRay, Any]"]):
    """`config.actors` actors of one core each.

    Args:
        config: the run.
        state: `state_dict` of the run that this one continues.
        make: makes the environments; called in the actors.
        hang_seconds: an actor that takes no step for so long is replaced.
        rollouts: per actor. Two let it act while the learner learns; more add policy lag.
    """

    def __init__(
        self,
        config: Config,
        state: Mapping[str, Any] | None = None,
        make: EnvMaker = make_envs,
        *,
        hang_seconds: float = 120.0,
        rollouts: int = 2,
    ) -> None:
        self._allocate, spaces, _ = describe(config, make)
        self._session = connect(config.ray_address, config.actors, f"{config.actors} actors")
        self._weights = _Weights()

        def make_actor(number: int, starts: int) -> _ActorOnRay:
            return _ActorOnRay((config, number, make, code_version()), starts, self._weights, self._filled)

        super().__init__(config, state, spaces, hang_seconds, make_actor)
        self._free = self.roster.actors * rollouts
        self._spare: list[Rollout] = []
        try:
            self.roster.start()
        except BaseException:  # such as a function that Ray cannot send
            self._session.close()
            raise

    @property
    def actor_seconds(self) -> list[dict[str, float]]:
        """Seconds of each actor by stage: "wait" for a call, "load" weights, "act", and step the "env"."""
        return [dict(zip(STAGES, actor.seconds.tolist(), strict=True)) for actor in self.roster.actors]

    def publish(self, policy: Policy, version: int) -> None:
        weights = {name: value.detach().cpu().numpy() for name, value in policy.state_dict().items()}
        self._weights.ref, self._weights.version = ray.put(weights), version
        for actor in self.roster.actors:
            actor.send_weights()
        self._has_published()

    @contextmanager
    def rollout(self) -> Iterator[Rollout]:
        actor, packed = self._next_filled()
        rollout = self._spare.pop() if self._spare else self._allocate()
        rollout.unpack(packed)
        del packed  # frees it in the object store
        try:
            yield rollout
        finally:
            self._spare.append(rollout)
            self._free.append(actor)

    def _assign(self, free: _ActorOnRay) -> None:
        free.assign()

    def _receive(self, timeout: float) -> None:
        awaited = [actor.awaited for actor in self.roster.actors if actor.awaited is not None]
        if awaited:
            ray.wait(awaited, timeout=timeout)
        else:
            time.sleep(timeout)
        for actor in self.roster.actors:
            actor.receive()
        self.roster.check()
        self._warn_of_unplaced()

    def _warn_of_unplaced(self) -> None:
        """Warns once of each actor that does not start."""
        actors, limit = self.roster.actors, self.roster.hang_seconds
        late = [actor for actor in actors if not actor.placed and time.monotonic() - actor.asked >= limit]
        if all(actor.warned for actor in late):
            return
        for actor in late:
            actor.warned = True
        rest = "continues with the others" if any(actor.placed for actor in actors) else "waits"
        warnings.warn(
            f"{len(late)} of {len(actors)} actors have not started within {limit:g} s: the Ray cluster has no free "
            f"core for them, or their environments take too long; training {rest}",
            ActorWarning,
            stacklevel=4,
        )

    def _end_actors(self) -> None:
        ends = [end for actor in self.roster.actors if (end := actor.request_end()) is not None]
        if ends:
            ray.wait(ends, num_returns=len(ends), timeout=_GRACE_SECONDS)
        for actor in self.roster.actors:
            actor.discard()
        self._filled.clear()
        self._session.close()


class _ActorOnRay(SupervisedActor):
    """An actor whose worker may be replaced; it appends finished unrolls to `filled`.

    Attributes:
        seconds: float64 [stages], of all its workers together.
        asked: time at which Ray was asked to start it.
        warned: the user knows that it has not started.
    """

    def __init__(
        self,
        arguments: tuple[Config, int, EnvMaker, str],
        restarts: int,
        weights: _Weights,
        filled: deque[tuple[_ActorOnRay, Any]],
    ) -> None:
        super().__init__(arguments[1], restarts)
        self.seconds: NDArray[np.float64] = np.zeros(len(STAGES))
        self._arguments, self._weights, self._filled = arguments, weights, filled
        self._owed = 0
        self._error = ""

    def start(self) -> None:
        self._handle = _OnOneCore.remote(*self._arguments, self.restarts)
        self.asked, self.warned = time.monotonic(), False
        self._error = ""
        self._steps: int | None = None
        self._beating = self._handle.beat.remote()
        self._taking: Any = None
        self._sent = -1
        self._fills: deque[Any] = deque()

    @property
    def placed(self) -> bool:
        """Whether the actor has a core and has started."""
        return self._steps is not None

    @property
    def awaited(self) -> Any:
        """The next message of the actor: its first heartbeat, or an unroll; None if it has no work."""
        return self._fills[0] if self._fills else None if self.placed else self._beating

    def send_weights(self) -> None:
        """Sends the newest weights, unless it has them or has not taken the previous ones: they must not pile up."""
        newest = self._weights
        if not self.placed or self._sent == newest.version or not (self._taking is None or _is_there(self._taking)):
            return
        self._taking, self._sent = self._handle.take.remote(newest.ref, newest.version), newest.version

    def assign(self) -> None:
        self._owed += 1
        self._ask()

    def _ask(self) -> None:
        """Requests the next unroll once placed."""
        while self.placed and len(self._fills) < self._owed:
            self._fills.append(self._handle.fill.remote(self._sent))

    def receive(self) -> None:
        """Receives the unrolls that it has finished."""
        self.send_weights()
        while self._fills and not self._error and _is_there(self._fills[0]):
            try:
                packed, seconds = ray.get(self._fills[0])
            except RayError as error:
                self._error = _describe(error)
                return
            self._fills.popleft()
            self._owed -= 1
            self.failures = 0
            self.seconds += seconds
            self._filled.append((self, packed))

    def trouble(self) -> str:
        return self._error

    def beat(self) -> int | None:
        """None until it has a core; there is no time limit for that."""
        if _is_there(self._beating):
            try:
                self._steps = int(ray.get(self._beating))
            except RayError as error:
                self._error = _describe(error)
            else:
                self._beating = self._handle.beat.remote()
                self.send_weights()
                self._ask()
        return self._steps if self._fills else None

    def request_end(self) -> Any:
        """Asks it to end; returns a reference that is ready once it has ended, None if it has not started."""
        if not self.placed:
            return None
        self._handle.stop.remote()
        return self._handle.close.remote()

    def discard(self) -> None:
        ray.kill(self._handle)


def _is_there(ref: Any) -> bool:
    return bool(ray.wait([ref], timeout=0)[0])


def _describe(error: RayError) -> str:
    if isinstance(error, RayTaskError):
        return f"it raised an error\n{error}"
    return f"Ray lost it ({type(error).__name__}): {' '.join(str(error).split())}"
