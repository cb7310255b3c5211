"""The examples in the docstrings of public classes and functions run and print what they show."""

from __future__ import annotations

import doctest
import importlib
import inspect

import pytest

import e3b_gym

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


@pytest.mark.parametrize("name", [name for name in e3b_gym.__all__ if inspect.isclass(getattr(e3b_gym, name))])
def test_a_public_class_has_an_example_that_runs(name: str) -> None:
    text = inspect.cleandoc(getattr(e3b_gym, name).__doc__ or "")
    assert ">>>" in text, f"{name} has no example; add one to its docstring"
    module = importlib.import_module(getattr(e3b_gym, name).__module__)
    runner, report = doctest.DocTestRunner(), list[str]()
    runner.run(doctest.DocTestParser().get_doctest(text, dict(vars(module)), name, None, None), out=report.append)
    assert runner.failures == 0, "".join(report)
