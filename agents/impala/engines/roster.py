"""The list of running actors, for every engine whose actors may die or hang.

An actor that dies, raises an error or takes no step for too long is replaced by another with the same number, which
starts in newly seeded environments; unfinished unrolls are dropped. An actor that fails repeatedly ends the run.
Engines implement `SupervisedActor` for the kind of process that runs an actor.
"""

from __future__ import annotations

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

MOST_FAILURES = 3  # in a row, of one actor, without a finished unroll


class ActorError(RuntimeError):
    """An actor failed repeatedly."""


class ActorWarning(RuntimeWarning):
    """An actor was lost and another one took its place."""


class SupervisedActor(ABC):
    """The learner's view of one actor, whose process may be replaced.

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
        """Starts it, with the seeds of `restarts` and the rollouts assigned to its predecessor."""

    @abstractmethod
    def discard(self) -> None:
        """Ends the actor, if it still runs, and frees its resources."""

    @abstractmethod
    def trouble(self) -> str:
        """Returns why it must be replaced; empty if it runs."""

    @abstractmethod
    def beat(self) -> int | None:
        """Returns the number of its steps; None while it cannot be expected to step."""

    def quiet(self, passed: float) -> float:
        """Returns the seconds without a step; `passed` seconds have passed since the last call."""
        beat = self.beat()
        self._quiet = self._quiet + passed if beat is not None and beat == self._beat else 0.0
        self._beat = beat
        return self._quiet


A = TypeVar("A", bound=SupervisedActor)


class Roster(Generic[A]):
    """The actors of a run.

    Args:
        actors: in the order of their numbers; not started yet.
        former: how often each actor was started that an earlier part of the run had, and this one does not.
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
        # A long gap may be the learner's own (a long update), so each gap is limited.
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
    """Returns how often each of `actors` actors was started before, and the same for former actors."""
    starts = [] if state is None else [int(count) for count in state["starts"]]
    starts += [0] * (actors - len(starts))
    return starts[:actors], starts[actors:]
