"""Ratio benchmarks; run them as `python -m benchmarks.<name>`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

from e3b_gym.command import answer, read_options


def command(
    arguments: Sequence[str] | None,
    help: str | None,
    run_all: Callable[[SimpleNamespace], int],
    **options: tuple[Any, Any],
) -> int:
    """Runs a benchmark with `NAME=value` options (`e3b_gym.command.read_options`); returns its exit code."""
    return answer(
        arguments, help or "", lambda given: partial(run_all, read_options(given, **options)), needs_options=False
    )
