"""The examples in the docstrings of public classes and functions run and print what they show."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
from pkgutil import resolve_name

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


CONFIGS = [
    "agents.impala.config:Config",
    "agents.ppo.config:PPOConfig",
    "agents.run_config:RunConfig",
    "e3b_gym.config:BonusConfig",
    "e3b_gym.encoder_training:TrainerConfig",
    "e3b_gym.envs.minihack.env:Options",
    "e3b_gym.envs.registry:Suite",
    "e3b_gym.envs.rooms:RoomsConfig",
    "experiments.settings:RunOptions",
]


@pytest.mark.parametrize("name", CONFIGS)
def test_each_field_of_a_config_is_documented_below_it(name: str) -> None:
    [body] = [node.body for node in ast.parse(inspect.getsource(resolve_name(name))).body if hasattr(node, "body")]
    below = zip(body, [*body[1:], None], strict=True)
    fields = [(node.target.id, after) for node, after in below if isinstance(node, ast.AnnAssign)]
    documented = [
        name for name, after in fields if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
    ]
    overridden = {name for name, _ in fields} & {"bonus_preset", "recurrent"}  # explained in RunConfig
    assert {name for name, _ in fields} - set(documented) <= overridden


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
