"""The learners of a run other than learner 0, which starts and watches them as processes of its machine or a cluster.

`outcome_of` runs such a learner from start to end on any machine. It ends when learner 0 orders it or has ended.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import cloudpickle  # type: ignore[import-untyped]
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from agents.impala.actor import EnvMaker
from agents.impala.config import Config
from agents.impala.group import Group, LearnerError, PeerLostError, find_store, open_store
from agents.ray_cluster import require_ray
from e3b_gym.command import USER_ERRORS, one_line
from e3b_gym.devices import find_device
from e3b_gym.errors import DivergedError

if TYPE_CHECKING:
    from agents.impala.training import Training

T = TypeVar("T")
HOST = "127.0.0.1"
_GRACE_SECONDS = 5.0  # for learners to close their environments
_REPORT_SECONDS = 30.0  # for a learner that was lost to end its process
_REPORT_LENGTH = 5_000  # characters of a traceback; as JSON they fit into a pipe (64 KiB) whatever they are
_PR_SET_PDEATHSIG = 1
_PLACE_SECONDS = 30.0  # for all learners to start, before a warning names those that are missing
_PROGRAM = "from agents.impala.team import main; main()"


@dataclass(frozen=True)
class Outcome:
    """The reason of a learner's end.

    Attributes:
        kind: "lost" if another learner was lost, "diverged" for a DivergedError, "refused" for a user error before
            training began, "failed" for any other error.
        text: what follows "learner 1" in the message; of a DivergedError and a user error, its text.
    """

    kind: Literal["lost", "diverged", "refused", "failed"]
    text: str


@dataclass(frozen=True)
class Membership:
    """The data that a learner needs to join.

    Attributes:
        config: the whole run.
        make: makes its environments.
        rank: its number, from 1 on.
        starts: how often each actor of the run was started before, by number.
        host, port: where learner 0 is.
    """

    config: Config
    make: EnvMaker
    rank: int
    starts: list[int]
    host: str
    port: int


def join(membership: Membership, address: str) -> Training:
    """Returns the training of this learner; `address` is that of this machine."""
    from agents.impala.training import Training  # which imports this module

    config = membership.config
    device = find_device(config.part(membership.rank).device)
    store = find_store(membership.host, membership.port)
    store.set(_joined(membership.rank), "")
    group = Group(membership.rank, config.learners, store, device, address)
    return Training(config, {"engine": {"starts": membership.starts}}, make=membership.make, group=group)


def outcome_of(membership: Membership, address: str) -> Outcome | None:
    """Learns with the others; returns why it ended, for `reason_for`: None if learner 0 ended it."""
    training = None
    try:
        training = join(membership, address)
        with training:
            training.follow()
    except PeerLostError:
        return Outcome("lost", "lost another learner")
    except DivergedError as error:
        return Outcome("diverged", str(error))
    except BaseException as error:  # noqa: BLE001
        if training is None and isinstance(error, USER_ERRORS):
            return Outcome("refused", one_line(error))
        return Outcome("failed", f"failed: {traceback.format_exc()[-_REPORT_LENGTH:]}")
    return None


def reason_for(rank: int, outcome: Outcome) -> Exception:
    """The error that learner 0 raises when learner `rank` has ended."""
    if outcome.kind == "diverged":
        return DivergedError(f"{outcome.text} (learner {rank})")
    if outcome.kind == "refused":
        return ValueError(f"{outcome.text} (learner {rank})")
    kind = PeerLostError if outcome.kind == "lost" else LearnerError
    return kind(f"learner {rank} {outcome.text}; all learners stopped")


def _joined(rank: int) -> str:
    return f"learner {rank} has joined"


class Member(Protocol):
    """Learner 0's view of another learner."""

    rank: int

    def reason(self) -> Exception | None:
        """Why it ended; None if it has not."""

    def end(self, grace: float) -> None:
        """Ends it, after `grace` seconds if it was asked to stop."""


class Place(Protocol):
    """A place where learners are started; `address` is that of learner 0's machine."""

    address: str

    def start(self, membership: Membership) -> Member: ...

    def close(self) -> None: ...


class Team:
    """Learners 1 to K-1, and the group that they form with this process.

    Args:
        config: the run.
        make: makes the environments.
        starts: how often each actor of the run was started before.
    """

    def __init__(self, config: Config, make: EnvMaker, starts: list[int]) -> None:
        self._place = _place_of(config)
        self._members: list[Member] = []
        try:
            store, address = open_store(self._place.address), self._place.address
            for rank in range(1, config.learners):
                self._members.append(self._place.start(Membership(config, make, rank, starts, address, store.port)))
            self._wait_for(store)
            device = find_device(config.part(0).device)
            self.group: Group = self._watching(lambda: Group(0, config.learners, store, device, address))
        except BaseException:
            self.close(at_once=True)
            raise

    def _wait_for(self, store: TCPStore) -> None:
        """Returns when all have started; raises an error as soon as one cannot start."""
        waiting, began, warned = list(self._members), time.monotonic(), False
        while waiting:
            self._require_all()
            waiting = [member for member in waiting if not store.check([_joined(member.rank)])]
            if waiting and not warned and time.monotonic() - began > _PLACE_SECONDS:
                names = ", ".join(str(member.rank) for member in waiting)
                warnings.warn(f"waiting for learner {names}: not started yet", RuntimeWarning, stacklevel=4)
                warned = True
            time.sleep(0.02)

    def _require_all(self) -> None:
        for member in self._members:
            if (reason := member.reason()) is not None:
                raise reason

    def _watching(self, work: Callable[[], T]) -> T:
        """Returns the result of `work`. It runs in a thread, since it would wait forever for a learner that ends."""
        result: Future[T] = Future()

        def run() -> None:
            try:
                result.set_result(work())
            except BaseException as error:  # noqa: BLE001
                result.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        while not result.done():
            self._require_all()
            time.sleep(0.02)
        return result.result()

    def failure(self, error: PeerLostError) -> Exception:
        """Returns why a learner was lost, if that is known."""
        deadline = time.monotonic() + _REPORT_SECONDS
        reason: Exception = LearnerError(f"{error}; all learners stopped")
        while time.monotonic() < deadline:
            reasons = [found for member in self._members if (found := member.reason()) is not None]
            causes = [found for found in reasons if not isinstance(found, PeerLostError)]  # not those that noticed it
            if causes:
                return causes[0]
            if len(reasons) == len(self._members):
                return reasons[0]
            time.sleep(0.05)
        return reason

    def close(self, *, at_once: bool = False) -> None:
        """Ends the learners; those that were asked to stop get some time for it."""
        deadline = time.monotonic() + (0.0 if at_once else _GRACE_SECONDS)
        for member in self._members:
            member.end(deadline - time.monotonic())
        self._place.close()


def _place_of(config: Config) -> Place:
    if not config.learners_on_ray:
        return ThisMachine()
    require_ray()
    from agents.impala.team_on_ray import RayCluster

    return RayCluster(config)


class ThisMachine:
    """Each learner is a process."""

    address = HOST

    def start(self, membership: Membership) -> Member:
        return _Process(membership)

    def close(self) -> None:
        pass


class _Process:
    """A learner's process."""

    def __init__(self, membership: Membership) -> None:
        self.rank = membership.rank
        content = cloudpickle.dumps(membership)
        self._report, report = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(os.getpid()), str(report)],
            stdin=subprocess.PIPE,
            pass_fds=(report,),
            start_new_session=True,  # Ctrl-C is for learner 0, which ends the others
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        os.close(report)
        self._reason: Exception | None = None  # kept, because the pipe can be read only once
        stdin: Any = self._process.stdin
        with suppress(BrokenPipeError), stdin:  # if it ended, joining it gives the reason
            stdin.write(content)

    def reason(self) -> Exception | None:
        if self._reason is not None or self._process.poll() is None:
            return self._reason
        with os.fdopen(os.dup(self._report)) as report:
            text = report.read()
        code = self._process.returncode
        ending = f"signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"code {code}"
        outcome = Outcome(**json.loads(text)) if text else Outcome("failed", f"ended with {ending}")
        self._reason = reason_for(self.rank, outcome)
        return self._reason

    def end(self, grace: float) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(grace, 0.0))
        self._process.kill()
        self._process.wait()
        with suppress(OSError):
            os.close(self._report)


def main() -> None:
    """The program of a learner's process; reports through the pipe why it ended."""
    parent, report = int(sys.argv[1]), int(sys.argv[2])
    if sys.platform == "linux":  # ends with learner 0 even inside a simulator that hangs
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    membership: Membership = cloudpickle.loads(sys.stdin.buffer.read())
    if outcome := outcome_of(membership, HOST):
        os.write(report, json.dumps(asdict(outcome)).encode())
        os._exit(1)
