"""The training loop: rollouts in, updates out. Who watches it decides when to log, to save and to stop.

with Training(config) as training:
    for update in training:            # until config.steps frames
        ...                            # training.state_dict() may be saved between any two updates
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from agents.impala.actor import EnvMaker, make_envs
from agents.impala.config import Config
from agents.impala.engines import make_engine
from agents.impala.learner import Learner, Stats
from agents.impala.rollout import Episodes


@dataclass(frozen=True)
class Update:
    """What one rollout brought.

    Attributes:
        frames: environment steps so far, in all parts of the run.
        stats: of the learner's steps, one for each `config.columns` environments.
        episodes: that ended in it.
        reward, done: float32 and bool [T, N], of its steps; the environment's own reward. None where not recorded.
    """

    frames: int
    stats: list[Stats]
    episodes: Episodes
    reward: NDArray[np.float32] | None = None
    done: NDArray[np.bool_] | None = None


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
    """A learner and the engine that feeds it.

    Args:
        config: the run.
        state: `state_dict` of the run that this one continues. Episodes in flight start again.
        learner: continues with this learner; then only the "engine" part of `state` is used.
        make: makes the environments.
    """

    def __init__(
        self,
        config: Config,
        state: Mapping[str, Any] | None = None,
        *,
        learner: Learner | None = None,
        make: EnvMaker = make_envs,
    ) -> None:
        self.config = config
        self._threads = max(config.threads // 2, 1)
        self._waited: dict[str, float] = defaultdict(float)
        with torch_threads(self._threads):
            self.engine = make_engine(config, None if state is None else state["engine"], make)
            try:
                self.learner = Learner(config, *self.engine.spaces) if learner is None else learner
                if state is not None and learner is None:
                    self.learner.load_state_dict(state["learner"])
                self.engine.publish(self.learner.policy, self.learner.version)
            except BaseException:
                self.engine.close()
                raise

    def __iter__(self) -> Iterator[Update]:
        while self.learner.frames < self.config.steps:
            yield self.step()

    def step(self) -> Update:
        """Learns from the next rollout."""
        learner, engine = self.learner, self.engine
        with torch_threads(self._threads):
            start = time.perf_counter()
            with engine.rollout() as rollout:
                self._waited["rollout"] += time.perf_counter() - start
                stats, episodes = learner.learn(rollout), rollout.episodes()
                reward, done = rollout.reward.copy(), rollout.done.copy()
            start = time.perf_counter()
            engine.publish(learner.policy, learner.version)
            self._waited["publish"] += time.perf_counter() - start
        return Update(learner.frames, stats, episodes, reward, done)

    @property
    def seconds(self) -> dict[str, float]:
        """Spent so far by stage; "rollout" is acting (inline) or waiting for actors, whose own are "actor_..."."""
        theirs: dict[str, float] = defaultdict(float)
        for actor in self.engine.actor_seconds:
            for stage, spent in actor.items():
                theirs[f"actor_{stage}"] += spent
        return {**self._waited, **self.learner.seconds, **theirs}

    def state_dict(self) -> dict[str, Any]:
        return {"learner": self.learner.state_dict(), "engine": self.engine.state_dict()}

    def close(self) -> None:
        self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
