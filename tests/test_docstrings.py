"""The examples in the docstrings of public classes and functions run and print what they show."""

from __future__ import annotations

import doctest
import importlib

import pytest

MODULES = [
    "e3b_gym.bonuses.methods",
    "e3b_gym.checks",
    "e3b_gym.encoders.generic",
    "e3b_gym.memory.elliptical",
    "e3b_gym.reward",
    "e3b_gym.unroll",
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0, f"{name} has no example in a docstring"
    assert result.failed == 0
