"""Typed options: values are checked against an annotation, or parsed from text.

    check("ridge", 0.1, Positive)      0.1; ValueError for -1, "0.1" and True
    parse("ridge", "1e-1", Positive)   0.1, as typed on a command line

An annotation may be bool, int, float, str, Path, None, Literal, a union, a sequence, a callable, or one of these with a
`Bound`. Numbers are finite. Numpy's numbers become Python's.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import difflib
import math
import sys
import types
import typing
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

import numpy as np

TRUTH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_SCALES = {"k": 10**3, "M": 10**6}
_LARGEST = sys.float_info.max


@dataclass(frozen=True)
class Bound:
    """A condition on the values of a type, and its text in errors."""

    holds: Callable[[Any], bool]
    text: str


Positive = Annotated[float, Bound(lambda value: value > 0, "a positive number")]
NotNegative = Annotated[float, Bound(lambda value: value >= 0, "a number, 0 or more")]
Share = Annotated[float, Bound(lambda value: 0 <= value <= 1, "a number in [0, 1]")]
Count = Annotated[int, Bound(lambda value: value >= 1, "a whole number of at least 1")]
Size = Annotated[int, Bound(lambda value: 1 <= value <= 2**24, "a whole number from 1 to 2**24")]
"""Units of a layer; the number of weights of larger layers may not fit into 64 bits."""
WholeNumber = Annotated[int, Bound(lambda value: value >= 0, "a whole number, 0 or more")]
Seed = Annotated[int, Bound(lambda value: 0 <= value < 2**32, "a whole number from 0 to 2**32 - 1")]


class Unset:
    """Type of UNSET, the default of options for which None is a value."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset()


def check(name: str, value: Any, kind: Any) -> Any:
    """Returns the value if the annotation `kind` allows it.

    Raises:
        ValueError: names the option, what it must be, and the value passed.
    """
    plain = value.item() if isinstance(value, np.generic) else value
    for one in _members(kind):
        if _fits(plain, one):
            return float(plain) if _base(one) is float else plain
    raise ValueError(f"{name} must be {_allowed(kind, _is_huge(plain))}; got {value!r}")


def parse(name: str, value: Any, kind: Any) -> Any:
    """Converts a value of a command line or a YAML file to the annotation `kind`, and checks it.

    Booleans are true/false, yes/no, on/off or 1/0; numbers may be written 3e-4, 1e6, 500k or 10M; None is none or null;
    lists are [a, b].
    """
    if isinstance(value, float) and value.is_integer() and all(_base(one) is not float for one in _members(kind)):
        value = int(value)  # 1e6 in YAML
    if not isinstance(value, str):
        return check(name, value, kind)
    huge = False
    for one in sorted(_members(kind), key=lambda one: _base(one) in (str, Path)):  # last: they accept any text
        read = _read(value.strip(), one)
        if read is not UNSET and _fits(read, one):
            return read
        huge = huge or _is_huge(read)
    raise ValueError(f"{name} must be {_allowed(kind, huge)}; got {value!r}")


def check_fields(config: Any) -> None:
    """Checks every field of a frozen dataclass by its annotation; numpy numbers become Python numbers."""
    for name, kind in field_types(type(config)).items():
        object.__setattr__(config, name, check(name, getattr(config, name), kind))


def field_types(kind: type[Any]) -> Mapping[str, Any]:
    """Returns name -> annotation of the fields of a dataclass."""
    return _field_types(typing.cast(Hashable, kind))  # mypy does not see that classes are hashable


@cache
def _field_types(kind: Any) -> Mapping[str, Any]:
    hints = typing.get_type_hints(kind, include_extras=True)
    return MappingProxyType({field.name: hints[field.name] for field in dataclasses.fields(kind)})


def describe(kind: Any) -> str:
    """Describes the values that the annotation allows, for an error."""
    return " or ".join(dict.fromkeys(_described(one) for one in _members(kind)))


def closest(name: str, known: Iterable[str]) -> str:
    """Returns "did you mean ...?" with the closest names, or the list of all names."""
    choices = sorted(set(known))
    close = difflib.get_close_matches(name, choices, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else f"choose from {', '.join(choices) or 'none'}."


def _is_huge(value: Any) -> bool:
    """Whether it is a whole number that files and kernels cannot hold in 64 bits."""
    return type(value) is int and abs(value) >= 2**63


def _allowed(kind: Any, huge: bool) -> str:
    return describe(kind) + ", below 2**63" * huge


def _members(kind: Any) -> list[Any]:
    """Returns the types of a union, nested unions included."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return [member for part in typing.get_args(kind) for member in _members(part)]
    return [kind]


def _base(kind: Any) -> Any:
    return typing.get_args(kind)[0] if typing.get_origin(kind) is Annotated else kind


def _bounds(kind: Any) -> list[Bound]:
    extras = typing.get_args(kind)[1:] if typing.get_origin(kind) is Annotated else ()
    return [extra for extra in extras if isinstance(extra, Bound)]


def _fits(value: Any, kind: Any) -> bool:
    base = _base(kind)
    origin = typing.get_origin(base)
    if base is Any:
        return True
    if base in (None, type(None)):
        return value is None
    if origin is Literal:
        return any(type(value) is type(choice) and value == choice for choice in typing.get_args(base))
    if base is float:
        right = type(value) in (int, float) and abs(value) <= _LARGEST  # False for NaN; whole numbers may be larger
    elif base in (bool, int):
        right = type(value) is base and not _is_huge(value)
    elif origin is collections.abc.Sequence or origin in (list, tuple):
        parts = typing.get_args(base)[0]
        right = isinstance(value, (list, tuple)) and all(_fits(part, parts) for part in value)
    else:
        right = isinstance(value, origin or base)
    return right and all(bound.holds(value) for bound in _bounds(kind))


def _read(text: str, kind: Any) -> Any:
    """Converts text to one type (not a union); UNSET if that is not possible."""
    base = _base(kind)
    origin = typing.get_origin(base)
    if base in (None, type(None)):
        return None if text.lower() in ("none", "null") else UNSET
    if base is bool:
        return TRUTH.get(text.lower(), UNSET)
    if base in (int, float):
        return _number(text, base)
    if origin is Literal:
        return next((choice for choice in typing.get_args(base) if str(choice) == text), UNSET)
    if origin is collections.abc.Sequence or origin in (list, tuple):
        if not (text.startswith("[") and text.endswith("]")):
            return UNSET
        parts = [part.strip().strip("'\"") for part in text[1:-1].split(",") if part.strip()]
        read = [_read(part, typing.get_args(base)[0]) for part in parts]
        return UNSET if UNSET in read else read
    if base is Path:
        return Path(text)
    return text if base is str else UNSET


def _number(text: str, kind: type[int] | type[float]) -> int | float | Unset:
    scale = _SCALES.get(text[-1:], 1)
    digits = text[:-1] if scale > 1 else text
    try:
        if kind is int and digits.lstrip("+-").isdigit():
            return int(digits) * scale
        number = float(digits) * scale
    except (ValueError, OverflowError):
        return UNSET
    if kind is float:
        return number
    return int(number) if math.isfinite(number) and number.is_integer() else UNSET


def _described(kind: Any) -> str:
    base = _base(kind)
    origin = typing.get_origin(base)
    if bounds := _bounds(kind):
        return bounds[-1].text
    if origin is Literal:
        return " or ".join(map(repr, typing.get_args(base)))
    if origin is collections.abc.Callable:
        return "a function"
    if origin is collections.abc.Sequence or origin in (list, tuple):
        return f"a list of {describe(typing.get_args(base)[0])}"
    plain = {bool: "true or false", int: "a whole number", float: "a number", str: "text", type(None): "None"}
    return plain.get(base) or str(getattr(origin or base, "__name__", base))
