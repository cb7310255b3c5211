"""The learners of a run next to learner 0: a process each, started and watched by learner 0.

`take_part` is the whole life of such a learner, wherever it runs. It ends when learner 0 says so or is gone.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from agents.impala.actor import EnvMaker
from agents.impala.config import Config
from agents.impala.group import Group, LearnerError, PeerLostError, find_store, open_store
from e3b_gym.devices import find_device
from e3b_gym.errors import DivergedError

HOST = "127.0.0.1"
_GRACE_SECONDS = 5.0  # for learners to close their environments
_REPORT_SECONDS = 30.0  # for a learner that was lost to end its process
_PR_SET_PDEATHSIG = 1
_DIVERGED = "diverged: "
_PROGRAM = "from agents.impala.team import main; main()"


@dataclass(frozen=True)
class Membership:
    """What a learner must know to take part.

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


def take_part(membership: Membership) -> None:
    """Learns with the others until learner 0 ends the training."""
    from agents.impala.training import Training  # which imports this module

    config = membership.config
    store = find_store(membership.host, membership.port)
    store.set(_joined(membership.rank), "")
    group = Group(membership.rank, config.learners, store, find_device(config.part(membership.rank).device))
    state = {"engine": {"starts": membership.starts}}
    with Training(config, state, make=membership.make, group=group) as training:
        training.follow()


def _joined(rank: int) -> str:
    return f"learner {rank} has joined"


class Team:
    """Learners 1 to K-1, as processes of this machine, and the group that they form with this process.

    Args:
        config: the run.
        make: makes the environments.
        starts: how often each actor of the run was started before.
    """

    def __init__(self, config: Config, make: EnvMaker, starts: list[int]) -> None:
        store = open_store(HOST)
        ranks = range(1, config.learners)
        self._members = [_Member(Membership(config, make, rank, starts, HOST, store.port)) for rank in ranks]
        try:
            self._wait_for(store)
            self.group = Group(0, config.learners, store, find_device(config.part(0).device))
        except BaseException:
            self.close(at_once=True)
            raise

    def _wait_for(self, store: TCPStore) -> None:
        """Returns when all have started; one that cannot start is an error at once."""
        waiting = list(self._members)
        while waiting:
            for member in waiting:
                if (reason := member.reason()) is not None:
                    raise reason
            waiting = [member for member in waiting if not store.check([_joined(member.rank)])]
            time.sleep(0.02)

    def failure(self, error: PeerLostError) -> Exception:
        """Why a learner was lost, as far as it can be told."""
        deadline = time.monotonic() + _REPORT_SECONDS
        while time.monotonic() < deadline:
            for member in self._members:
                if (reason := member.reason()) is not None:
                    return reason
            time.sleep(0.05)
        return LearnerError(f"{error}; all learners stopped")

    def close(self, *, at_once: bool = False) -> None:
        """Ends the processes; those that were told to stop have some time for it."""
        deadline = time.monotonic() + (0.0 if at_once else _GRACE_SECONDS)
        for member in self._members:
            member.end(deadline - time.monotonic())


class _Member:
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
        stdin: Any = self._process.stdin
        with suppress(BrokenPipeError), stdin:  # where it ended, joining it will tell
            stdin.write(content)

    def reason(self) -> Exception | None:
        """Why it ended; None if it has not."""
        if self._process.poll() is None:
            return None
        with os.fdopen(os.dup(self._report)) as report:
            text = report.read().strip()
        if text.startswith(_DIVERGED):
            return DivergedError(f"{text.removeprefix(_DIVERGED)} (learner {self.rank})")
        code = self._process.returncode
        ending = f"signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"code {code}"
        return LearnerError(f"learner {self.rank} {text or f'ended with {ending}'}; all learners stopped")

    def end(self, grace: float) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(grace, 0.0))
        self._process.kill()
        self._process.wait()
        with suppress(OSError):
            os.close(self._report)


def main() -> None:
    """The program of a learner's process; reports what ended it through the pipe that it was given."""
    parent, report = int(sys.argv[1]), int(sys.argv[2])
    if sys.platform == "linux":  # learner 0's end ends it even inside a simulator that hangs
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    membership: Membership = cloudpickle.loads(sys.stdin.buffer.read())
    try:
        take_part(membership)
    except PeerLostError:
        os._exit(1)  # learner 0 tells why
    except BaseException as error:  # noqa: BLE001
        text: Any = f"{_DIVERGED}{error}" if isinstance(error, DivergedError) else f"failed: {traceback.format_exc()}"
        os.write(report, text.encode()[-30_000:])
        os._exit(1)
