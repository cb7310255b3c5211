"""One process acts and learns in turn, so the same seed gives the same bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import gymnasium as gym

from agents.impala.actor import Actor, EnvMaker, make_envs
from agents.impala.config import Config
from agents.impala.engines.layout import RolloutLayout
from agents.impala.policy import Policy
from agents.impala.rollout import Rollout


class InlineEngine:
    """One actor in this process."""

    def __init__(self, config: Config, state: Mapping[str, Any] | None = None, make: EnvMaker = make_envs) -> None:
        self._starts = 0 if state is None else int(state["starts"][0])
        self._actor = Actor(config, 0, self._starts, make)
        self._rollout = RolloutLayout.of(config, self._actor.policy, self.spaces[0])()

    @property
    def spaces(self) -> tuple[gym.Space[Any], gym.Space[Any]]:
        return self._actor.envs.single_observation_space, self._actor.envs.single_action_space

    def publish(self, policy: Policy, version: int) -> None:
        self._actor.load(policy.state_dict(), version)

    @contextmanager
    def rollout(self) -> Iterator[Rollout]:
        self._actor.fill(self._rollout)
        yield self._rollout

    @property
    def actor_seconds(self) -> list[dict[str, float]]:
        return []

    def state_dict(self) -> dict[str, Any]:
        return {"starts": [self._starts + 1]}

    def close(self) -> None:
        self._actor.close()
