"""Engines: where the actors of a run are executed, behind one interface.

    engine.publish(policy, version)      the actors take these weights at their next unroll
    with engine.rollout() as rollout:    the next finished unroll; its arrays are the caller's until the block ends
        learner.learn(rollout)

Actors may run on other machines and may be lost. An engine that restarts one drops its unfinished unroll; the next one
starts new episodes in all its slots, so the learner's memories stay valid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pkgutil import resolve_name
from typing import Any, Protocol

import gymnasium as gym

from agents.impala.actor import EnvMaker, make_envs
from agents.impala.config import ENGINES, Config
from agents.impala.policy import Policy
from agents.impala.rollout import Rollout
from agents.ray_cluster import require_ray


class Engine(Protocol):
    """The interface of an engine for the training loop."""

    @property
    def spaces(self) -> tuple[gym.Space[Any], gym.Space[Any]]:
        """Observation and action space of one environment."""

    def publish(self, policy: Policy, version: int) -> None:
        """Hands the policy's weights to the actors; must be called before the first rollout."""

    def rollout(self) -> AbstractContextManager[Rollout]:
        """The next finished unroll, in the order in which each actor finished its own."""

    @property
    def actor_seconds(self) -> list[dict[str, float]]:
        """Seconds of each actor process by stage; empty where the actor runs in the learner's process."""

    def state_dict(self) -> dict[str, Any]:
        """The state that a resumed run needs: how often each actor was started."""

    def close(self) -> None: ...


def make_engine(config: Config, state: Mapping[str, Any] | None = None, make: EnvMaker = make_envs) -> Engine:
    """The engine of a run; `state` is that of the run that it continues, `make` makes the environments."""
    if config.engine == "ray":
        require_ray()
    kind = ENGINES[config.engine]
    engine: Engine = (resolve_name(kind) if isinstance(kind, str) else kind)(config, state, make)
    return engine


def register_engine(name: str, kind: Callable[..., Engine]) -> None:
    """Adds an engine, made as `kind(config, state, make)`; `engine=<name>` is accepted from now on."""
    if name in ENGINES:
        raise ValueError(f"there is an engine {name!r} already; choose another name")
    ENGINES[name] = kind
