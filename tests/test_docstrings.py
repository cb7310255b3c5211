"""The examples in the docstrings of public classes and functions run and print what they show."""

from __future__ import annotations

import doctest
import importlib
import inspect

import pytest

import agents
import e3b_gym
from e3b_gym import bonuses

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


PUBLIC = [
    *(getattr(e3b_gym, name) for name in e3b_gym.__all__),
    *(getattr(bonuses, name) for name in bonuses.__all__),
    *(getattr(agents, name) for name in agents.__all__),
]
WITHOUT_EXAMPLE = {bonuses.Memory, bonuses.NoMemory, bonuses.Representation, bonuses.PolicyFeatures}
"""Interfaces, and what only works with a policy."""
CLASSES = {one for one in PUBLIC if inspect.isclass(one)} - WITHOUT_EXAMPLE


@pytest.mark.parametrize("public", sorted(CLASSES, key=lambda one: one.__name__), ids=lambda one: one.__name__)
def test_a_public_class_has_an_example_that_runs(public: type) -> None:
    text = inspect.cleandoc(public.__doc__ or "")
    assert ">>>" in text, f"{public.__name__} has no example; add one to its docstring"
    module = importlib.import_module(public.__module__)
    runner, report = doctest.DocTestRunner(), list[str]()
    test = doctest.DocTestParser().get_doctest(text, dict(vars(module)), public.__name__, None, None)
    runner.run(test, out=report.append)
    assert runner.failures == 0, "".join(report)
