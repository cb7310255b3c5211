"""How every command answers a mistake: one line on stderr that says what, what it got and what to do, exit code 2.

This is the only place that turns an error into a line. Errors that a user can cause are raised where they are found, as
ValueError, ImportError or OSError, with a message that needs no traceback; anything else is a bug of this library and
keeps its traceback.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from e3b_gym.files import UNFINISHED

USER_ERRORS = (ValueError, ImportError, OSError, MemoryError)
REFUSED = 2
"""Exit code of a command that refuses what it was given."""
_REMEDIES = {
    errno.ENOSPC: "free some space on that disk",
    errno.EDQUOT: "free some space on that disk",
    errno.EROFS: "choose a folder that can be written",
    errno.EACCES: "choose one that you may use, or change its permissions",
    errno.EPERM: "choose one that you may use, or change its permissions",
    errno.EMFILE: "raise the limit on open files (ulimit -n), or use fewer environments",
}


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are ValueErrors, so that `answer` reports them like all others."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; --help lists the options")


def at_least(minimum: int) -> Callable[[str], int]:
    """The `type=` of an option that is a whole number of at least `minimum`."""

    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be a whole number; got {text!r}") from None
        if value < minimum:
            raise argparse.ArgumentTypeError(f"must be at least {minimum}; got {value}")
        return value

    return number


def answer(
    arguments: Sequence[str] | None, help: str | None, run: Callable[[list[str]], int | Callable[[], int]]
) -> int:
    """Runs a command; returns its exit code.

    Args:
        arguments: of the command; None for the program's.
        help: printed when there are no arguments or they ask for help; None where `run` has its own.
        run: does the work and returns the exit code; or only prepares it, and returns the rest as a function whose
            errors, not being the user's, keep their traceback.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if help is not None and (not given or given[0] in ("help", "-h", "--help")):
        print(help)
        return 0
    with plain_warnings():
        try:
            require_text(given)
            done = run(given)
        except BrokenPipeError:  # `... | head`: nothing reads what is printed any more
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # until the end of the process
            return 1
        except (*USER_ERRORS, RuntimeError) as error:
            return refuse(error)
        return done() if callable(done) else done


def refuse(error: Exception) -> int:
    """Prints the line for an error that a user can cause; returns the exit code. Raises what is a bug again."""
    if not isinstance(error, USER_ERRORS) and not is_out_of_memory(error):
        raise error
    print(f"error: {one_line(error)}", file=sys.stderr, flush=True)
    return REFUSED


def one_line(error: Exception) -> str:
    """What happened, and what to do about it."""
    if isinstance(error, OSError) and error.errno is not None:
        where = f"cannot use {str(error.filename).removesuffix(UNFINISHED)}: " if error.filename is not None else ""
        remedy = _REMEDIES.get(error.errno, "choose another path")
        text = f"{where}{(error.strerror or str(error)).lower()}; {remedy}"
    elif isinstance(error, MemoryError) or is_out_of_memory(error):
        text = f"not enough memory: {error}; choose smaller networks, or fewer environments and steps per rollout"
    else:
        text = str(error) or type(error).__name__
    return " ".join(text.split())


def is_out_of_memory(error: Exception) -> bool:
    """Whether torch could not allocate; on the CPU it raises RuntimeError and has no class for this."""
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)


def require_text(arguments: Sequence[str]) -> None:
    """Refuses what could be neither printed nor written to a file."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise ValueError(
                f"options must be UTF-8; got {argument!a}; rename the file or choose another value"
            ) from None


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Shows warnings as `warning: ...`, without file and line."""

    def text(message: Warning | str, *where: object, **more: object) -> str:
        return f"warning: {' '.join(str(message).split())}\n"

    before, warnings.formatwarning = warnings.formatwarning, text
    try:
        yield
    finally:
        warnings.formatwarning = before
