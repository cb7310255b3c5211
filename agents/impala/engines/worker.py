"""The code of an actor's process.

It receives the numbers of rollouts to fill and sends each back when it is filled; if it fails, it sends a traceback and
exits. At every step it increments a counter that the learner watches, and checks whether it should stop.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection

import numpy as np
import torch
from numpy.typing import NDArray

from agents.impala.actor import Actor, EnvMaker
from agents.impala.config import Config
from agents.impala.engines.layout import RolloutLayout
from agents.impala.engines.shared import Shared, SharedWeights
from agents.impala.engines.watch import STAGES, Watch
from agents.impala.rollout import Rollout, Zeros

_CHECK_SECONDS = 1.0  # how often a waiting actor checks whether its learner is alive
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class ActorMemory:
    """The memory that an actor shares with the learner.

    Attributes:
        rollouts: filled and read in turn.
        beat: int64 [1], counts the actor's steps.
        stop: bool [1], whether the actor should end.
        seconds: float64 [stages], spent by the actor, in the order of `STAGES`.
    """

    rollouts: tuple[Rollout, ...]
    beat: NDArray[np.int64]
    stop: NDArray[np.bool_]
    seconds: NDArray[np.float64]


@dataclass(frozen=True)
class ActorMemoryLayout:
    """The layout of an actor's memory: `rollouts` rollouts."""

    rollout: RolloutLayout
    rollouts: int

    def __call__(self, zeros: Zeros) -> ActorMemory:
        return ActorMemory(
            rollouts=tuple(self.rollout(zeros) for _ in range(self.rollouts)),
            beat=zeros((1,), np.int64),
            stop=zeros((1,), np.bool_),
            seconds=zeros((len(STAGES),), np.float64),
        )


@dataclass(frozen=True)
class Assignment:
    """The actor that a process runs.

    Attributes:
        config, number, restarts, make: arguments of `Actor`.
        learner: process id of the learner.
    """

    config: Config
    number: int
    restarts: int
    learner: int
    make: EnvMaker


class _StopRequested(BaseException):
    """The learner asked the actor to stop, or has ended."""


def run_actor(assignment: Assignment, shared: Shared[ActorMemory], weights: SharedWeights, learner: Connection) -> None:
    """The main function of an actor's process.

    Sends the number of each filled rollout, or the traceback of what ended it.
    """
    _prepare_process(assignment.learner)
    actor = None
    try:
        actor = Actor(assignment.config, assignment.number, assignment.restarts, assignment.make)
        _serve(actor, _ProcessWatch(shared.arrays, assignment.learner), weights, learner)
    except (_StopRequested, BrokenPipeError, EOFError):
        pass
    except BaseException:  # noqa: BLE001  # the learner raises or replaces the actor
        learner.send(traceback.format_exc())
    finally:
        if actor is not None:
            actor.close()


def _serve(actor: Actor, watch: _ProcessWatch, weights: SharedWeights, learner: Connection) -> None:
    watch.supervise(actor)
    while True:
        with watch.timed("wait"):
            while not learner.poll(_CHECK_SECONDS):
                watch.check()
            number = learner.recv()
        watch.check()
        with watch.timed("load"):
            weights.read(actor.version, actor.load)
        watch.fill(actor, watch.memory.rollouts[number])
        learner.send(number)


class _ProcessWatch(Watch):
    """A watch in shared memory; its check ends the actor if the learner asks for it or has ended."""

    def __init__(self, memory: ActorMemory, learner: int) -> None:
        super().__init__(memory.beat, memory.seconds)
        self.memory, self._learner = memory, learner

    def check(self) -> None:
        super().check()
        if self.memory.stop[0] or os.getppid() != self._learner:
            raise _StopRequested


def _prepare_process(learner: int) -> None:
    """Sets up the process: one thread, ignores Ctrl-C (the learner stops it), ends when its learner ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a fork inherits the learner's handler
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    if sys.platform == "linux":  # ends with the learner even inside a simulator that hangs
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != learner:  # the learner ended before the kernel knew which signal to send
        os._exit(1)
    gc.freeze()  # the learner closes what a fork inherits
    torch.set_num_threads(1)  # also: a fork has none of its learner's OpenMP threads and would wait for them
