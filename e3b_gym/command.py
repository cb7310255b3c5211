"""The command line of all commands: `NAME=value` options, and user errors as one line on stderr with exit code 2.

Only this module turns an error into a line. Errors that a user can cause are raised where they are found, as
ValueError, ImportError or OSError, with a message that needs no traceback; any other error is a bug of this library and
keeps its traceback.
"""

from __future__ import annotations

import errno
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from e3b_gym.files import UNFINISHED
from e3b_gym.options import closest, parse

USER_ERRORS = (ValueError, ImportError, OSError, MemoryError)
REFUSED = 2
"""Exit code after a user error."""
_REMEDIES = {
    errno.ENOSPC: "free some space on that disk",
    errno.EDQUOT: "free some space on that disk",
    errno.EROFS: "choose a folder that can be written",
    errno.EACCES: "choose one that you may use, or change its permissions",
    errno.EPERM: "choose one that you may use, or change its permissions",
    errno.EMFILE: "raise the limit on open files (ulimit -n), or use fewer environments",
}


def split_options(given: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Name and value of each `NAME=value` of a command line."""
    for option in given:
        name, equals, value = option.partition("=")
        if not equals or not name:
            raise ValueError(f"expected NAME=value, got {option!r}")
        yield name, value


def read_options(given: Iterable[str], **options: tuple[Any, Any]) -> SimpleNamespace:
    """The options of a command by name, in small letters.

    Args:
        given: `NAME=value` options of the command line.
        **options: NAME=(annotation, default); see `e3b_gym.options` for annotations.
    """
    read = {name: default for name, (_, default) in options.items()}
    for name, value in split_options(given):
        if name not in options:
            raise ValueError(f"unknown option {name}={value}; {closest(name, options)}")
        read[name] = parse(name, value, options[name][0])
    return SimpleNamespace(**{name.lower(): value for name, value in read.items()})


def answer(
    arguments: Sequence[str] | None,
    help: str,
    run: Callable[[list[str]], int | Callable[[], int]],
    *,
    needs_options: bool = True,
) -> int:
    """Runs a command; returns its exit code.

    Args:
        arguments: arguments of the command; None: those of the program.
        help: printed with --help, and without arguments where the command needs some.
        run: runs the command and returns the exit code; or prepares it and returns a function that does the rest,
            whose errors are not user errors and keep their traceback.
        needs_options: the command does nothing without options.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if (needs_options and not given) or given[:1] in (["help"], ["-h"], ["--help"]):
        print(help)
        return 0
    with plain_warnings():
        try:
            require_text(given)
            done = run(given)
        except BrokenPipeError:  # `... | head`: the reader of the output has exited
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # until the end of the process
            return 1
        except (*USER_ERRORS, RuntimeError) as error:
            return refuse(error)
        return done() if callable(done) else done


def refuse(error: Exception) -> int:
    """Prints the line for a user error and returns the exit code; raises any other error again."""
    if not isinstance(error, USER_ERRORS) and not is_out_of_memory(error):
        raise error
    print(f"error: {one_line(error)}", file=sys.stderr, flush=True)
    return REFUSED


def one_line(error: Exception) -> str:
    """Returns the message and the remedy in one line."""
    if isinstance(error, OSError) and error.errno is not None:
        where = f"cannot use {str(error.filename).removesuffix(UNFINISHED)}: " if error.filename is not None else ""
        remedy = _REMEDIES.get(error.errno, "choose another path")
        text = f"{where}{(error.strerror or str(error)).lower()}; {remedy}"
    elif is_out_of_memory(error):
        text = f"not enough memory: {error}; choose smaller networks, or fewer environments and steps per rollout"
    else:
        text = str(error) or type(error).__name__
    return " ".join(text.split())


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory could not be allocated, by Python, NumPy or torch."""
    # The text decides, here only: on the CPU torch raises RuntimeError, without a class for this.
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error))


def require_text(arguments: Sequence[str]) -> None:
    """Raises ValueError for arguments that are not UTF-8, which cannot be printed or written to a file."""
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
