"""The errors of the library that a caller may want to catch by name.

Each is also an ordinary Python error (ValueError, RuntimeError), so `except ValueError` catches it, too.
"""

from __future__ import annotations


class NonFiniteError(ValueError):
    """An observation, a reward, a bonus, an embedding or a loss is NaN, infinite, or too large to compute with."""


class UnsupportedSpaceError(ValueError):
    """A space with a part that has no fixed-size numeric form.

    Args:
        path: where in the space, such as `observation_space["text"]`.
        space: the part.
        remedy: what to do instead.
    """

    def __init__(self, path: str, space: object, remedy: str) -> None:
        super().__init__(f"{path} is {space}, which is not supported; {remedy}")


class ContractError(ValueError):
    """A bonus violates a requirement that `check_bonus` tests."""


class DamagedFileError(ValueError):
    """A file cannot be read: it is truncated, overwritten, or of another program."""


class DivergedError(RuntimeError):
    """Training stopped because a loss, a gradient, a bonus or a reward is NaN or infinite.

    Weights and optimisers are as they were before the update that failed; the bonus's memory holds only finite
    numbers, but may have seen the unroll.
    """


def first_line(error: Exception) -> str:
    """The first line of an error's message; its name if the message is empty."""
    return (str(error).splitlines() or [type(error).__name__])[0]
