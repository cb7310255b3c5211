"""The training loop: rollouts in, updates out. The caller decides when to log, to save and to stop.

with Training(config) as training:
    for update in training:            # until config.steps frames
        ...                            # training.state_dict() may be saved between any two updates

With `learners=K` this process is learner 0. It starts the others (`team`), which `follow` its orders: to learn from a
rollout, at the same time as learner 0 does, or to send their own state.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Literal, Self

import torch

from agents.impala.actor import EnvMaker, make_envs
from agents.impala.config import Config
from agents.impala.engines import make_engine
from agents.impala.group import Group, PeerLostError
from agents.impala.learner import Learner
from agents.impala.rollout import StepRecord
from agents.impala.team import Team
from agents.protocols import Stats, Update

CHECK_EVERY = 16
"""Rollouts between two comparisons of the learners' weights."""
_UNKNOWN_RESTARTS = 50  # more than the actors of a lost learner had, so that no seed is used twice


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """PyTorch uses `count` threads inside the block, and as many as before after it."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Training:
    """A learner and the engine that feeds it; with `learners=K`, the other learners too.

    Args:
        config: the run.
        state: `state_dict` of the run that this one continues. Episodes in flight start again.
        learner: continues with this learner; then its own part of `state` is not used.
        make: makes the environments.
        group: for learners other than learner 0, which has started them; they take over its weights.
    """

    def __init__(
        self,
        config: Config,
        state: Mapping[str, Any] | None = None,
        *,
        learner: Learner | None = None,
        make: EnvMaker = make_envs,
        group: Group | None = None,
    ) -> None:
        self.config = config
        self._threads = max(config.threads // 2, 1)
        self._waited: dict[str, float] = defaultdict(float)
        self._broken = False  # the learners are out of sync
        starts = [] if state is None or state["engine"] is None else [int(count) for count in state["engine"]["starts"]]
        self._other_starts = starts[config.learners * config.actors :]  # of actors that this part does not have
        self._team = Team(config, make, starts) if config.learners > 1 and group is None else None
        self._group = group if self._team is None else self._team.group
        rank = 0 if self._group is None else self._group.rank
        own = starts[rank * config.actors : (rank + 1) * config.actors]
        with torch_threads(self._threads), self._closing_on_error():
            self.engine = make_engine(config.part(rank), {"starts": own} if own else None, make)
            self.learner = Learner(config.part(rank), *self.engine.spaces) if learner is None else learner
            if state is not None and learner is None and "learner" in state:
                self.learner.load_state_dict(state["learner"])
            self._share_state(() if state is None else state.get("memories", ()))
            self.engine.publish(self.learner.policy, self.learner.version)

    def _share_state(self, memories: Sequence[Any]) -> None:
        """All learners take over learner 0's state; of the `memories` [K - 1] of the others each takes its own."""
        group, learner = self._group, self.learner
        learner.join(group)
        if group is None:
            return
        with self._watching():
            state, memories = group.control.send_to_all((learner.state_dict(), list(memories)))
        if group.rank > 0:
            fitting = len(memories) == group.size - 1
            explorer = {**state["explorer"], "memory": memories[group.rank - 1] if fitting else None}
            learner.load_state_dict({**state, "explorer": explorer})

    def __iter__(self) -> Iterator[Update]:
        while self.learner.frames < self.config.steps:
            yield self.step()

    def step(self) -> Update:
        """Learns from the next rollout."""
        with self._watching():
            if self._group is None:
                stats, record = self._learn()
            else:
                self._order("learn")
                parts = self._group.control.collect(self._learn())
                stats = _averages([stats for stats, _ in parts])
                record = StepRecord.joined([record for _, record in parts])
        return Update(self.learner.frames, stats, record.episodes(), record.reward, record.done)

    def follow(self) -> None:
        """The work of a learner other than learner 0."""
        if self._group is None:
            raise ValueError("this is the only learner, so there is none to follow")
        while (order := self._group.orders.send_to_all()) != "stop":
            self._group.control.collect(self._learn() if order == "learn" else self._own_state())

    def _order(self, order: Literal["learn", "state", "stop"]) -> None:
        if self._group is not None:
            self._group.orders.send_to_all(order)

    def _learn(self) -> tuple[list[Stats], StepRecord]:
        learner, engine = self.learner, self.engine
        with torch_threads(self._threads):
            start = time.perf_counter()
            with engine.rollout() as rollout:
                self._waited["rollout"] += time.perf_counter() - start
                stats, record = learner.learn(rollout), rollout.record()
            start = time.perf_counter()
            engine.publish(learner.policy, learner.version)
            self._waited["publish"] += time.perf_counter() - start
        if self._group is not None and learner.version % CHECK_EVERY == 0:
            self._group.control.check_equal(learner.checksum(), learner.frames)
        return stats, record

    @property
    def seconds(self) -> dict[str, float]:
        """Spent so far by stage; "rollout" is acting (inline) or waiting for actors, whose own are "actor_...".

        With several learners, those of learner 0; "exchange" is part of the other stages.
        """
        theirs: dict[str, float] = defaultdict(float)
        for actor in self.engine.actor_seconds:
            for stage, spent in actor.items():
                theirs[f"actor_{stage}"] += spent
        shared = {} if self._group is None else {"exchange": self._group.seconds}
        return {**self._waited, **self.learner.seconds, **shared, **theirs}

    def state_dict(self) -> dict[str, Any]:
        return {"learner": self.learner.state_dict(), **self.state_of_others()}

    def state_of_others(self) -> dict[str, Any]:
        """The state of a run beyond learner 0: starts of the actors, and memories of the other learners."""
        parts = [self._own_state()]
        if self._group is not None and self._broken:  # they do not answer, so their memories are lost
            starts = [count + _UNKNOWN_RESTARTS for count in parts[0][0]]
            parts += [(starts, None)] * (self._group.size - 1)
        elif self._group is not None:
            with self._watching():
                self._order("state")
                parts = self._group.control.collect(parts[0])
        starts = [count for starts, _ in parts for count in starts] + self._other_starts
        state = {"engine": {"starts": starts}}
        return state if self._group is None else {**state, "memories": [memory for _, memory in parts[1:]]}

    def _own_state(self) -> tuple[list[int], Any]:
        """The starts of this learner's actors, and its memory."""
        starts = self.engine.state_dict()["starts"]
        return starts, self.learner.explorer.state_dict()["memory"] if self._group is not None else None

    @contextmanager
    def _watching(self) -> Iterator[None]:
        """Another learner's end becomes an error that says why it ended."""
        try:
            yield
        except BaseException as error:
            self._broken = True
            if self._team is None or not isinstance(error, PeerLostError):
                raise
            raise self._team.failure(error) from error

    @contextmanager
    def _closing_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._team is not None and not self._broken:
            with suppress(PeerLostError):
                self._order("stop")
        if (engine := getattr(self, "engine", None)) is not None:
            engine.close()  # before the connection to the cluster that it may share with the team
        if self._group is not None:
            self._group.close()
        if self._team is not None:
            self._team.close(at_once=self._broken)
            self._team = self._group = None
        if (learner := getattr(self, "learner", None)) is not None:
            learner.join(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _averages(parts: Sequence[list[Stats]]) -> list[Stats]:
    """The statistics of each update, averaged over the learners."""
    updates = zip(*parts, strict=True)
    return [{name: sum(stats[name] for stats in update) / len(update) for name in update[0]} for update in updates]
