"""The list of living actors, for every engine whose actors may die or hang.

An actor that dies, raises an error or takes no step for too long is replaced by another with the same number, which
starts in newly seeded environments; what its predecessor had not finished is dropped. An actor that fails again and
again ends the run. Engines differ in what an actor runs in and how they talk to it: see `SupervisedActor`.
"""

from __future__ import annotations

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

MOST_FAILURES = 3  # in a row, of one actor, without a finished unroll


class ActorError(RuntimeError):
    """An actor fails again and again."""


class ActorWarning(RuntimeWarning):
    """An actor was lost and another one took its place."""


class SupervisedActor(ABC):
    """One actor as the learner sees it; what it runs in may change.

    Args:
        number: which actor.
        restarts: how often it was started before, in this run or in an earlier part of it.

    Attributes:
        failures: in a row; the engine sets it to 0 when it receives a finished unroll.
    """

    def __init__(self, number: int, restarts: int) -> None:
        self.number, self.restarts = number, restarts
        self.failures = 0
        self._beat: int | None = None
        self._quiet = 0.0

    @abstractmethod
    def start(self) -> None:
        """Starts it in environments of `restarts`, with all the work that its predecessor left."""

    @abstractmethod
    def discard(self) -> None:
        """Ends what is left of it."""

    @abstractmethod
    def trouble(self) -> str:
        """Reason why it must be replaced; empty if it runs."""

    @abstractmethod
    def beat(self) -> int | None:
        """Counts its steps; None while none can be expected of it."""

    def quiet(self, passed: float) -> float:
        """Seconds without a step, `passed` of them since the last call."""
        beat = self.beat()
        self._quiet = self._quiet + passed if beat is not None and beat == self._beat else 0.0
        self._beat = beat
        return self._quiet


A = TypeVar("A", bound=SupervisedActor)


class Roster(Generic[A]):
    """The actors of a run.

    Args:
        actors: in the order of their numbers; not started yet.
        former: how often actors were started that this run does without.
        hang_seconds: an actor that takes no step for so long is replaced.
        close: ends all actors; called before an ActorError is raised.
    """

    def __init__(
        self, actors: Sequence[A], former: Sequence[int], hang_seconds: float, close: Callable[[], None]
    ) -> None:
        self.actors, self._former = list(actors), list(former)
        self.hang_seconds = hang_seconds
        self._close = close
        self._checked = time.monotonic()

    @property
    def pause(self) -> float:
        """Seconds that an engine may wait for its actors before it checks them again."""
        return min(1.0, self.hang_seconds / 8)

    def start(self) -> None:
        for actor in self.actors:
            actor.start()

    def check(self) -> None:
        """Replaces actors that have died or hang."""
        now = time.monotonic()
        # A gap may be the learner's own (a long update), so no single one counts for much.
        passed, self._checked = min(now - self._checked, self.hang_seconds / 4), now
        for actor in self.actors:
            if reason := actor.trouble():
                self._replace(actor, reason)
            elif actor.quiet(passed) > self.hang_seconds:
                self._replace(actor, f"it has taken no step for {self.hang_seconds:g} seconds")

    def _replace(self, actor: A, reason: str) -> None:
        actor.discard()
        actor.failures += 1
        if actor.failures >= MOST_FAILURES:
            self._close()
            raise ActorError(
                f"actor {actor.number} failed {actor.failures} times in a row and finished no unroll; last: {reason}"
            )
        actor.restarts += 1
        actor._quiet = 0.0
        actor.start()
        warnings.warn(
            f"actor {actor.number} was replaced, and its unfinished unroll dropped: {reason}",
            ActorWarning,
            stacklevel=2,
        )

    def state_dict(self) -> dict[str, Any]:
        """How often each actor was started."""
        return {"starts": [actor.restarts + 1 for actor in self.actors] + self._former}


def starts_of(state: Mapping[str, Any] | None, actors: int) -> tuple[list[int], list[int]]:
    """Returns how often each of `actors` actors was started before, and the same of former actors."""
    starts = [] if state is None else [int(count) for count in state["starts"]]
    starts += [0] * (actors - len(starts))
    return starts[:actors], starts[actors:]
