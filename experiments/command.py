"""How the commands answer: their help, and mistakes in one line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from e3b_gym.envs import SuiteNotInstalledError
from experiments.settings import convert, split_arguments

MISTAKES = (ValueError, SuiteNotInstalledError, ImportError, FileNotFoundError)
REFUSED = 2


def answer(arguments: Sequence[str] | None, help: str | None, run: Callable[[list[str]], int]) -> int:
    """Runs a command; returns its exit code.

    Args:
        arguments: of the command; None for the program's. None at all are a question for help.
        help: what to print when asked.
        run: does the work and returns the exit code. What the user got wrong it raises as one of MISTAKES, which is
            printed without a traceback.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("help", "-h", "--help"):
        print(help)
        return 0
    try:
        return run(given)
    except MISTAKES as error:
        print(f"error: {error}", file=sys.stderr)
        return REFUSED


def words_and_seed(given: Sequence[str], words: tuple[str, ...], command: str) -> tuple[dict[str, str], int]:
    """The words of a command that looks at a run, and the SEED; anything else is refused."""
    known, fields = split_arguments(given, words)
    if other := sorted(set(fields) - {"seed"}):
        raise ValueError(f"{command} takes {', '.join(words)} and SEED, not {', '.join(other)}")
    seed = convert("SEED", fields.get("seed", "0"), int)
    if seed < 0:
        raise ValueError(f"SEED must be at least 0; got {seed}")
    return known, seed
