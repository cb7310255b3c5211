"""The common part of the engines whose actors may be lost: it assigns free rollouts and waits for filled ones."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import gymnasium as gym

from agents.impala.config import Config
from agents.impala.engines.layout import Spaces
from agents.impala.engines.roster import A, Roster, starts_of

Free = TypeVar("Free")
"""What stands for a rollout that no actor fills at present."""
Filled = TypeVar("Filled")
"""What stands for a rollout that an actor has filled."""


class SupervisedEngine(ABC, Generic[A, Free, Filled]):
    """`config.actors` supervised actors.

    Args:
        config: the run.
        state: `state_dict` of the run that this one continues.
        spaces: observation and action space of one environment.
        hang_seconds: an actor that takes no step for so long is replaced.
        make_actor: (number, how often it was started before) -> the actor, not started yet.

    Attributes:
        waited: seconds that the learner has waited for rollouts.
    """

    def __init__(
        self,
        config: Config,
        state: Mapping[str, Any] | None,
        spaces: Spaces,
        hang_seconds: float,
        make_actor: Callable[[int, int], A],
    ) -> None:
        starts, former = starts_of(state, config.actors)
        self._spaces = spaces
        self._filled: deque[Filled] = deque()
        actors = [make_actor(number, starts[number]) for number in range(config.actors)]
        self.roster = Roster(actors, former, hang_seconds, self.close)
        self._free: list[Free] = []
        self._published = self._closed = False
        self.waited = 0.0

    @property
    def spaces(self) -> tuple[gym.Space[Any], gym.Space[Any]]:
        return self._spaces

    def state_dict(self) -> dict[str, Any]:
        return self.roster.state_dict()

    def close(self) -> None:
        """Ends all actors. Can be called more than once."""
        if not self._closed:
            self._closed = True
            self._end_actors()

    def _has_published(self) -> None:
        """The actors may use the new weights."""
        self._published = True
        self._assign_free()

    def _next_filled(self) -> Filled:
        """The next filled rollout, in the order of arrival."""
        if not self._published or self._closed:
            raise RuntimeError("the engine is closed" if self._closed else "publish a policy before the first rollout")
        self._assign_free()
        start = time.perf_counter()
        self._receive(0.0)
        while not self._filled:
            self._receive(self.roster.pause)
        self.waited += time.perf_counter() - start
        return self._filled.popleft()

    def _assign_free(self) -> None:
        """Assigns free rollouts to their actors; only after the next weights are published, so that those are used."""
        for free in self._free:
            self._assign(free)
        self._free.clear()

    @abstractmethod
    def _assign(self, free: Free) -> None: ...

    @abstractmethod
    def _receive(self, timeout: float) -> None:
        """Waits until an actor sends something, and receives everything that was sent."""

    @abstractmethod
    def _end_actors(self) -> None: ...
