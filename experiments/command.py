"""The options of the commands that look at a run: evaluate, watch, doctor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from e3b_gym.options import Count, Seed, parse
from experiments.settings import split_arguments


def options_and_seed(given: Sequence[str], names: tuple[str, ...], command: str) -> tuple[dict[str, str], int]:
    """The options of a command, and the SEED; anything else is refused."""
    known, fields = split_arguments(given, names, ("SEED",))
    known |= {name: fields.pop(name.lower()) for name in names if name.lower() in fields}
    if other := sorted(set(fields) - {"seed"}):
        raise ValueError(f"{command} takes {', '.join(names)} and SEED, not {', '.join(other)}")
    return known, parse("SEED", fields.get("seed", "0"), Seed)


def positive(options: dict[str, str], name: str, default: str) -> int:
    """An option that is a whole number of at least 1."""
    value: int = parse(name, options.get(name, default), Count)
    return value


def folder(options: Mapping[str, str], name: str, default: str) -> Path:
    """An option that is a folder; empty, it would mean the working directory."""
    value = options.get(name, default)
    if not value:
        raise ValueError(f"{name}= is empty; give a folder, or leave {name}= out")
    return Path(value)
