"""Options have types: what is allowed in Python, and what text means."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest

from e3b_gym.options import Count, Positive, Seed, Share, check, check_fields, closest, parse


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (3, int, 3),
        (3, float, 3.0),
        (np.int64(3), int, 3),
        (np.float32(0.5), Positive, 0.5),
        (np.bool_(True), bool, True),
        (None, Positive | None, None),
        ("a", Literal["a", "b"], "a"),
        (["x", "y"], str | Sequence[str] | None, ["x", "y"]),
        (len, Literal["full"] | Callable[[Any], Any], len),
    ],
)
def test_a_value_of_the_type_is_taken_as_pythons_own(value, kind, expected):
    checked = check("option", value, kind)
    assert (checked, type(checked)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        ("no", bool, "option must be true or false; got 'no'"),
        (1, bool, "option must be true or false; got 1"),
        (True, int, "option must be a whole number; got True"),
        (2.0, Count, "option must be a whole number of at least 1; got 2.0"),
        (0, Count, "option must be a whole number of at least 1; got 0"),
        ("abc", float, "option must be a number; got 'abc'"),
        (float("nan"), float, "option must be a number; got nan"),
        (float("inf"), Positive | None, "option must be a positive number or None; got inf"),
        (True, Literal[1, 2], "option must be 1 or 2; got True"),
        (-1, Seed, "option must be a whole number from 0"),
        (2**70, Seed, "option must be a whole number from 0"),
        (2**63, Count, "option must be a whole number of at least 1, below 2**63; got 9223372036854775808"),
        (10**400, float, "option must be a number, below 2**63; got 1000"),
        ([1], Sequence[str], "option must be a list of text"),
        ("x", Callable[[Any], Any], "option must be a function"),
    ],
)
def test_anything_else_is_refused_by_name(value, kind, message):
    with pytest.raises(ValueError, match=message.replace("*", r"\*")):
        check("option", value, kind)


@pytest.mark.parametrize("text", ["true", "True", "yes", "on", "1", "false", "no", "off", "0", "No", " off "])
def test_truth_values_have_eight_spellings(text):
    assert parse("switch", text, bool) is (text.strip().lower() in ("true", "yes", "on", "1"))


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("10M", int, 10_000_000),
        ("500k", Count, 500_000),
        ("1e6", int, 1_000_000),
        ("2.5k", int, 2500),
        (1e6, int, 1_000_000),
        ("3e-4", float, 3e-4),
        ("none", int | None, None),
        ("null", str | None, None),
        ("7", int | None, 7),
        ("2", Literal[1, 2], 2),
        ("message", str | Sequence[str] | None, "message"),
        ("[message, 'blstats']", str | Sequence[str] | None, ["message", "blstats"]),
        ("[9, 12]", int | tuple[int, int] | None, [9, 12]),
        ("1", str, "1"),
    ],
)
def test_text_is_read_as_the_type_says(text, kind, expected):
    read = parse("option", text, kind)
    assert (read, type(read)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("maybe", bool, "true or false; got 'maybe'"),
        ("abc", float, "a number; got 'abc'"),
        ("1e400k", int, "a whole number; got '1e400k'"),
        ("1.5", int, "a whole number; got '1.5'"),
        ("[1,2]", float, "a number"),
        ("", Share, "a number in"),
        ("-3", Positive, "a positive number; got '-3'"),
    ],
)
def test_text_that_spells_no_value_of_the_type_is_refused(text, kind, message):
    with pytest.raises(ValueError, match=f"option must be {message}"):
        parse("option", text, kind)


def test_the_fields_of_a_dataclass_are_checked_by_their_annotations():
    @dataclass(frozen=True)
    class Sizes:
        width: Count = 1
        share: Share = 0.5

        def __post_init__(self) -> None:
            check_fields(self)

    Sizes.__annotations__ = {"width": Count, "share": Share}
    assert type(Sizes(width=np.int32(3)).width) is int
    with pytest.raises(ValueError, match=r"share must be a number in \[0, 1\]; got 2"):
        Sizes(share=2)


def test_an_unknown_name_is_answered_with_the_closest_or_with_all():
    assert closest("rigde", ["ridge", "alpha"]) == "did you mean ridge?"
    assert closest("zzz", ["b", "a"]) == "choose from a, b."
