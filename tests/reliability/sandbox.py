"""Where a case of the fuzz generator runs: its output is caught, its training is short, its time is limited."""

from __future__ import annotations

import contextlib
import io
import signal
import warnings
from collections.abc import Iterator
from typing import Any
from unittest import mock

from experiments.progress import Progress

SECONDS = 120.0
"""A case that has not ended by then was accepted, and is stopped. Rare: an interrupt may break compiled code."""


class StillRunning(BaseException):
    """The time of a case is over."""


@contextlib.contextmanager
def quiet(errors: io.StringIO | None = None) -> Iterator[None]:
    """What is written to stderr, with the warnings behind it, goes into `errors`."""
    errors = io.StringIO() if errors is None else errors
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(errors),
        warnings.catch_warnings(record=True) as warned,
    ):
        warnings.simplefilter("always")
        yield
    errors.writelines(f"warning: {' '.join(str(one.message).split())}\n" for one in warned)


@contextlib.contextmanager
def short_training() -> Iterator[None]:
    """Training stops at the second update."""
    updates, add = [], Progress.add

    def counted(self: Progress, *given: Any) -> None:
        updates.append(1)
        add(self, *given)

    def stopped(self: object) -> bool:
        return len(updates) > 1

    with (
        mock.patch("experiments.train.Stopper.__call__", stopped),
        mock.patch("experiments.progress.Progress.add", counted),
    ):
        yield


@contextlib.contextmanager
def time_limit() -> Iterator[None]:
    """Raises StillRunning when the time of a case is over."""

    def end(*_: object) -> None:
        raise StillRunning

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, SECONDS, 1.0)  # again, where a destructor swallowed it
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
