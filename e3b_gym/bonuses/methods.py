"""Every method of the paper by name, each a composition of terms (Table 1: global term x episodic term).

    make_bonus("e3b", observation_space, action_space, num_envs, ridge=0.01)

To add a method, write its function here and put it into METHODS.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal

import gymnasium as gym
import torch
from torch import nn

from e3b_gym.bonuses.base import Bonus, NoBonus
from e3b_gym.bonuses.counts import FirstVisit, InverseSqrtCount
from e3b_gym.bonuses.divergence import PolicyDivergence
from e3b_gym.bonuses.dynamics import Curiosity, Impact
from e3b_gym.bonuses.elliptical import Elliptical
from e3b_gym.bonuses.keys import Key, KeyName, make_key
from e3b_gym.bonuses.representations import (
    Frozen,
    InverseDynamics,
    InverseForwardDynamics,
    PolicyFeatures,
    Representation,
)
from e3b_gym.bonuses.rnd import RND, NoveltyGain
from e3b_gym.encoders import Encoder, as_encoder, make_encoder, show_only
from e3b_gym.options import Count, NotNegative, Size, check, closest


@dataclass(frozen=True)
class Spaces:
    """Spaces of the environment that a bonus is built for, and how its networks are made."""

    observation: gym.Space[Any]
    """Observation space of one environment."""

    action: gym.Space[Any]
    """Action space of one environment."""

    encoder: nn.Module | Callable[[gym.Space[Any]], nn.Module] | None
    """The user's network, or a function of the observation space that makes one; None: the generic encoder."""

    dim: int
    """Size of the embedding of the generic encoder."""

    def new_encoder(self, phi: bool = True, sees: str | Sequence[str] | None = None) -> Encoder:
        """Returns a new encoder that reads the entries `sees` (None: all); `phi` as in `make_encoder`."""
        if self.encoder is None:
            encoder = make_encoder(self.observation, self.dim, phi=phi)
        else:
            made = self.encoder if isinstance(self.encoder, nn.Module) else self.encoder(self.observation)
            encoder = as_encoder(made, self.observation)
        return encoder if sees is None else show_only(encoder, self.observation, sees)

    def new_pair(self) -> tuple[nn.Module, nn.Module]:
        """Returns two encoders of the same architecture with different random weights."""
        one = self.new_encoder(phi=False)
        if not isinstance(self.encoder, nn.Module):
            return one, self.new_encoder(phi=False)
        other = copy.deepcopy(one)
        for module in other.modules():
            if callable(reset := getattr(module, "reset_parameters", None)):
                reset()
        if all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True)):
            raise ValueError(
                "RND and NovelD need a second random network, and this encoder's layers have no reset_parameters(); "
                "pass encoder=<function of the observation space that makes a new module>"
            )
        return one, other

    def key(self, key: str | Key) -> Key:
        return make_key(key, self.observation)


def _e3b(
    spaces: Spaces,
    *,
    representation: Literal["inverse", "random", "policy"] = "inverse",
    hidden: Size = 256,
    sees: str | Sequence[str] | None = None,
    **elliptical: Any,
) -> Bonus:
    phi: Representation
    if representation == "inverse":
        phi = InverseDynamics(spaces.new_encoder(sees=sees), spaces.action, hidden=hidden)
    elif representation == "random":
        phi = Frozen(spaces.new_encoder(sees=sees))
    else:
        phi = PolicyFeatures()
    return Elliptical(phi, **elliptical)


def _rnd(spaces: Spaces) -> RND:
    return RND(*spaces.new_pair())


def _noveld(spaces: Spaces, *, key: KeyName | Key | None = "full", alpha: NotNegative = 0.1) -> Bonus:
    gain = NoveltyGain(_rnd(spaces), alpha)
    return gain if key is None else gain * FirstVisit(spaces.key(key))


def _ride(
    spaces: Spaces,
    *,
    key: KeyName | Key | None = "full",
    hidden: Size = 256,
    inverse_coef: NotNegative = 0.1,
    forward_coef: NotNegative = 1.0,
) -> Bonus:
    impact = Impact(_dynamics(spaces, hidden, inverse_coef, forward_coef))
    return impact if key is None else impact * InverseSqrtCount(spaces.key(key))


def _icm(
    spaces: Spaces, *, hidden: Size = 256, inverse_coef: NotNegative = 0.1, forward_coef: NotNegative = 1.0
) -> Bonus:
    return Curiosity(_dynamics(spaces, hidden, inverse_coef, forward_coef))


def _dynamics(spaces: Spaces, hidden: int, inverse_coef: float, forward_coef: float) -> InverseForwardDynamics:
    return InverseForwardDynamics(
        spaces.new_encoder(),
        spaces.action,
        hidden=hidden,
        inverse_coef=inverse_coef,
        forward_coef=forward_coef,
    )


def _agac(spaces: Spaces, *, key: KeyName | Key | None = "full", count_coef: NotNegative = 1.0) -> Bonus:
    divergence = PolicyDivergence(spaces.new_encoder(), spaces.action)
    return divergence if key is None else divergence + count_coef * InverseSqrtCount(spaces.key(key))


def _count(spaces: Spaces, *, key: KeyName | Key = "full", episodic: bool = True) -> Bonus:
    return InverseSqrtCount(spaces.key(key), episodic=episodic)


def _first_visit(spaces: Spaces, *, key: KeyName | Key = "full", episodic: bool = True) -> Bonus:
    return FirstVisit(spaces.key(key), episodic=episodic)


def _e3b_x_rnd(spaces: Spaces, **e3b: Any) -> Bonus:
    return _e3b(spaces, **e3b) * _rnd(spaces)


def _e3b_x_noveld(spaces: Spaces, *, alpha: NotNegative = 0.1, **e3b: Any) -> Bonus:
    return _e3b(spaces, **e3b) * NoveltyGain(_rnd(spaces), alpha)


METHODS: dict[str, Callable[..., Bonus]] = {
    "none": lambda spaces: NoBonus(),
    "e3b": _e3b,
    "e3b-random": partial(_e3b, representation="random"),
    "e3b-policy": partial(_e3b, representation="policy"),
    "e3b-nonepisodic": partial(_e3b, episodic=False),
    "e3b-x-rnd": _e3b_x_rnd,
    "e3b-x-noveld": _e3b_x_noveld,
    "noveld": _noveld,
    "noveld-position": partial(_noveld, key="position"),
    "noveld-image": partial(_noveld, key="image"),
    "noveld-message": partial(_noveld, key="message"),
    "noveld-subsampled": partial(_noveld, key="subsampled"),
    "noveld-nocount": partial(_noveld, key=None),
    "ride": _ride,
    "ride-position": partial(_ride, key="position"),
    "ride-message": partial(_ride, key="message"),
    "ride-nocount": partial(_ride, key=None),
    "agac": _agac,
    "agac-nocount": partial(_agac, key=None),
    "rnd": _rnd,
    "icm": _icm,
    "count": _count,
    "count-position": partial(_count, key="position"),
    "count-image": partial(_count, key="image"),
    "count-message": partial(_count, key="message"),
    "count-global": partial(_count, episodic=False),
    "first-visit": _first_visit,
}


def make_bonus(
    name: str,
    observation_space: gym.Space[Any],
    action_space: gym.Space[Any],
    num_envs: int,
    *,
    encoder: nn.Module | Callable[[gym.Space[Any]], nn.Module] | None = None,
    dim: int = 256,
    seed: int | None = None,
    **overrides: Any,
) -> Bonus:
    """Builds a method of the paper for an environment.

    Args:
        name: a key of METHODS.
        observation_space: observation space of one environment (not batched).
        action_space: action space of one environment.
        num_envs: number of environments.
        encoder: your network (an nn.Module, tree of [rows, ...] -> [rows, d]) or a function of the observation space
            that makes it; None: the generic encoder.
        dim: size of the embedding of the generic encoder.
        seed: seed of the initial weights, which does not change the global random state; None: the weights are drawn
            from the global state.
        **overrides: options of the method; an unknown one raises an error that suggests the closest.

    Examples:
        >>> from gymnasium import spaces
        >>> from e3b_gym import make_bonus
        >>> bonus = make_bonus("e3b", spaces.Box(-1.0, 1.0, (4,)), spaces.Discrete(2), num_envs=8, ridge=0.01, seed=0)
        >>> type(bonus).__name__, bonus.ridge
        ('Elliptical', 0.01)
    """
    num_envs = check("num_envs", num_envs, Count)
    overrides = check_options(name, overrides)
    spaces = Spaces(observation_space, action_space, encoder, check("dim", dim, Size))
    with torch.random.fork_rng(devices=[], enabled=seed is not None), _single_precision():
        if seed is not None:
            torch.manual_seed(seed)
        bonus = METHODS[name](spaces, **overrides)
    return bonus.built_for(observation_space, action_space, num_envs)


@contextmanager
def _single_precision() -> Iterator[None]:
    """Context in which networks are made in float32, like observations and memories, whatever PyTorch's default is."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def method_types(name: str) -> dict[str, Any]:
    """Returns name -> annotation of the options of a method, including `dim` and `encoder`."""
    options = {option: parameter.annotation for option, parameter in _parameters(name).items()}
    return {**options, "dim": Size, "encoder": nn.Module | Callable}


def method_defaults(name: str) -> dict[str, Any]:
    """Returns the defaults of the options of a method, including `dim`."""
    dim = _signature(make_bonus).parameters["dim"].default
    fixed = getattr(METHODS[name], "keywords", {})  # of a variant, such as episodic=False
    return {option: parameter.default for option, parameter in _parameters(name).items()} | {"dim": dim} | fixed


def trains_weights(name: str, options: Mapping[str, Any]) -> bool:
    """Whether the losses of a method train weights; True for a method that is not of this module."""
    function = getattr(METHODS[name], "func", METHODS[name])  # of a variant
    if function is _e3b:
        return bool((method_defaults(name) | dict(options))["representation"] == "inverse")
    return name != "none" and function not in (_count, _first_visit)


def check_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of a method, converted to their types.

    Raises:
        ValueError: The method or an option is unknown, a value is invalid, or two options contradict each other.
    """
    if name not in METHODS:
        raise ValueError(f"unknown method {name!r}; {closest(name, METHODS)}")
    known = method_types(name)
    for option in (option for option in options if option not in known):
        raise ValueError(f"method {name!r} has no option {option}; {closest(option, known)}")
    checked = {option: check(option, value, known[option]) for option, value in options.items()}
    effective = method_defaults(name) | checked
    if effective.get("representation") == "policy" and effective["sees"] is not None:
        raise ValueError(
            f"{name} uses the policy's features, so sees={effective['sees']!r} has no effect; remove it, or pass "
            "sees=None if a preset sets it"
        )
    if effective.get("bonus_of") == "current" and effective["include_first"]:
        raise ValueError("include_first has no effect with bonus_of='current', which scores the first observation")
    return checked


def _parameters(name: str) -> dict[str, inspect.Parameter]:
    parameters = _keywords(METHODS[name])
    kinds = (parameter.kind for parameter in _signature(METHODS[name]).parameters.values())
    if inspect.Parameter.VAR_KEYWORD in kinds:  # all other options are those of E3B
        parameters = {**_keywords(_e3b), **_keywords(Elliptical), **parameters}
    return parameters


def _keywords(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    parameters = _signature(function).parameters
    return {name: parameter for name, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY}


@cache
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    """Returns the signature with evaluated annotations; cached, because evaluating them is slow."""
    return inspect.signature(function, eval_str=True)
