"""Learners on the machines of a Ray cluster: each is a task of Ray, which Ray never starts again.

Learner 0 is this process; Ray does not count its core or its GPU. Ray ends the tasks when learner 0 ends.
"""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from agents.impala.config import Config
from agents.impala.team import Membership, Outcome, outcome_of, reason_for
from agents.ray_cluster import code_version, connect, require_code
from e3b_gym.devices import find_device


class RayCluster:
    """The place of learners 1 to K-1, on as many cores of the cluster as each needs.

    Args:
        config: the run.

    Attributes:
        address: address of this machine.
    """

    def __init__(self, config: Config) -> None:
        each = 1 + (config.actors if config.engine == "process" else 0)
        remote_actors = config.learners * config.actors if config.engine == "ray" else 0
        purpose = f"{config.learners} learners (learner 0 is not on the cluster)"
        if config.engine != "inline":
            purpose = f"{config.learners} learners with {config.actors} actors each (learner 0 is not on the cluster)"
        device = find_device(config.device).type  # the same kind for all
        others = config.learners - 1
        gpus = others * (device == "cuda")
        self._session = connect(config.ray_address, others * each + remote_actors, purpose, each, gpus)
        self._config = dataclasses.replace(config, ray_address="auto", device=device)
        remote: Any = ray.remote
        self._task = remote(num_cpus=each, num_gpus=int(device == "cuda"), max_retries=0, scheduling_strategy="SPREAD")(
            _learn
        )
        self.address: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]

    def start(self, membership: Membership) -> RemoteLearner:
        membership = dataclasses.replace(membership, config=self._config)
        return RemoteLearner(membership.rank, self._task.remote(membership, code_version()))

    def close(self) -> None:
        self._session.close()


def _learn(membership: Membership, code: str) -> Outcome | None:
    """The work of a Ray worker; returns how it ended."""
    require_code(code, "the machine of learner 0")
    return outcome_of(membership, ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]


class RemoteLearner:
    """A learner that is a task of Ray."""

    def __init__(self, rank: int, task: Any) -> None:
        self.rank, self._task = rank, task

    def reason(self) -> Exception | None:
        if not ray.wait([self._task], timeout=0)[0]:
            return None
        try:
            outcome = ray.get(self._task) or Outcome("failed", "ended")
        except RayTaskError as error:
            outcome = Outcome("failed", f"failed: {error.cause}")
        except RayError as error:  # its worker or its machine was lost
            outcome = Outcome("failed", f"was lost by Ray ({type(error).__name__})")
        return reason_for(self.rank, outcome)

    def end(self, grace: float) -> None:
        if not ray.is_initialized():
            return
        if not ray.wait([self._task], timeout=max(grace, 0.0))[0]:
            ray.cancel(self._task, force=True)
            with suppress(RayError):
                ray.get(self._task, timeout=5.0)
