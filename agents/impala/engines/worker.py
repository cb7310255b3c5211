"""What runs in the process of an actor.

It fills the rollouts whose numbers it is told, and answers with the number, or with a traceback and its end. At every
step it shows that it lives and looks whether it still should.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import VectorEnv, VectorWrapper
from numpy.typing import NDArray

from agents.impala.actor import Actor
from agents.impala.config import Config
from agents.impala.engines.shared import Shared, SharedWeights
from agents.impala.rollout import Rollout, Zeros

STAGES = ("wait", "load", "act", "env")
_LOOK_SECONDS = 1.0  # how often a waiting actor looks for its learner
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class ActorMemory:
    """What an actor shares with the learner.

    Attributes:
        rollouts: filled and read in turn.
        beat: int64 [1], counts the actor's steps.
        stop: bool [1], the learner wants it to end.
        seconds: float64 [stages], spent by the actor, in the order of `STAGES`.
    """

    rollouts: tuple[Rollout, ...]
    beat: NDArray[np.int64]
    stop: NDArray[np.bool_]
    seconds: NDArray[np.float64]


@dataclass(frozen=True)
class ActorMemoryLayout:
    """The arguments of `Rollout.allocate`, and how many rollouts."""

    observation_space: gym.Space[Any]
    num_actions: int
    steps: int
    num_envs: int
    state_shape: tuple[int, int]
    rollouts: int

    def __call__(self, zeros: Zeros) -> ActorMemory:
        shape = self.observation_space, self.num_actions, self.steps, self.num_envs, self.state_shape
        return ActorMemory(
            rollouts=tuple(Rollout.allocate(*shape, zeros) for _ in range(self.rollouts)),
            beat=zeros((1,), np.int64),
            stop=zeros((1,), np.bool_),
            seconds=zeros((len(STAGES),), np.float64),
        )


@dataclass(frozen=True)
class Assignment:
    """Who an actor is and where its learner lives."""

    config: Config
    number: int
    restarts: int
    learner: int


class _Dismissed(BaseException):
    """The learner has no use for the actor any more."""


def work(assignment: Assignment, shared: Shared[ActorMemory], weights: SharedWeights, learner: Connection) -> None:
    """The process of an actor, from start to end."""
    _settle(assignment.learner)
    actor = None
    try:
        actor = Actor(assignment.config, assignment.number, assignment.restarts)
        _serve(actor, _Duty(shared.arrays, assignment.learner), weights, learner)
    except (_Dismissed, BrokenPipeError, EOFError):
        pass
    except BaseException:  # noqa: BLE001  # whatever it is, the learner must hear of it
        learner.send(traceback.format_exc())
    finally:
        if actor is not None:
            actor.close()


def _serve(actor: Actor, duty: _Duty, weights: SharedWeights, learner: Connection) -> None:
    actor.envs = _WatchedEnvs(actor.envs, duty)
    while True:
        with duty.timed("wait"):
            while not learner.poll(_LOOK_SECONDS):
                duty.check()
            number = learner.recv()
        duty.check()
        with duty.timed("load"):
            weights.read(actor.version, actor.load)
        before = duty.seconds("env")
        with duty.timed("act"):
            actor.fill(duty.memory.rollouts[number])
        duty.add("act", before - duty.seconds("env"))  # what `fill` took without the environments
        learner.send(number)


class _Duty:
    """Signs of life, the clock, and the question whether to go on."""

    def __init__(self, memory: ActorMemory, learner: int) -> None:
        self.memory = memory
        self._learner = learner

    def check(self) -> None:
        self.memory.beat[0] += 1
        if self.memory.stop[0] or os.getppid() != self._learner:
            raise _Dismissed

    def seconds(self, stage: str) -> float:
        return float(self.memory.seconds[STAGES.index(stage)])

    def add(self, stage: str, seconds: float) -> None:
        self.memory.seconds[STAGES.index(stage)] += seconds

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.add(stage, time.perf_counter() - start)


class _WatchedEnvs(VectorWrapper):
    """An actor's environments, whose steps are its signs of life."""

    def __init__(self, envs: VectorEnv[Any, Any, Any], duty: _Duty) -> None:
        super().__init__(envs)
        self._duty = duty

    def reset(self, *args: Any, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        self._duty.check()
        with self._duty.timed("env"):
            return self.env.reset(*args, **kwargs)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self._duty.check()
        with self._duty.timed("env"):
            return self.env.step(actions)


def _settle(learner: int) -> None:
    """Makes a new process an actor's: one thread, deaf to Ctrl-C (the learner tells it), gone with its learner."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a fork inherits the learner's handler
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    if sys.platform == "linux":  # the learner's end ends it even inside a simulator that hangs
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != learner:  # it was gone before the kernel knew whom to tell
        os._exit(1)
    gc.freeze()  # what a fork inherits is the learner's to close
    torch.set_num_threads(1)  # also: a fork has none of its learner's OpenMP threads and would wait for them
