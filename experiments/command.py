"""The options of the commands that look at a run: evaluate, watch, doctor."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.settings import convert, split_arguments

LARGEST_SEED = 2**32 - 1


def options_and_seed(given: Sequence[str], names: tuple[str, ...], command: str) -> tuple[dict[str, str], int]:
    """The options of a command, and the SEED; anything else is refused."""
    known, fields = split_arguments(given, names)
    if other := sorted(set(fields) - {"seed"}):
        raise ValueError(f"{command} takes {', '.join(names)} and SEED, not {', '.join(other)}")
    seed = convert("SEED", fields.get("seed", "0"), int)
    if not 0 <= seed <= LARGEST_SEED:
        raise ValueError(f"SEED must be at least 0 and at most {LARGEST_SEED}; got {seed}")
    return known, seed


def positive(options: dict[str, str], name: str, default: str) -> int:
    """An option that is a whole number of at least 1."""
    value = convert(name, options.get(name, default), int)
    if value < 1:
        raise ValueError(f"{name} must be at least 1; got {value}")
    return int(value)
