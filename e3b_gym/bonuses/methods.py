"""Every method of the paper by name, each a composition of terms (Table 1: global term x episodic term).

    make_bonus("e3b", observation_space, action_space, num_envs, ridge=0.01)

To add a method, write its function here and put it into METHODS.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from e3b_gym.bonuses.base import Bonus
from e3b_gym.bonuses.counts import FirstVisit, InverseSqrtCount
from e3b_gym.bonuses.divergence import PolicyDivergence
from e3b_gym.bonuses.dynamics import Curiosity, Impact
from e3b_gym.bonuses.elliptical import Elliptical
from e3b_gym.bonuses.keys import Key, make_key
from e3b_gym.bonuses.representations import (
    Frozen,
    InverseDynamics,
    InverseForwardDynamics,
    PolicyFeatures,
    Representation,
)
from e3b_gym.bonuses.rnd import RND, NoveltyGain
from e3b_gym.encoders import Encoder, as_encoder, make_encoder, show_only
from e3b_gym.unroll import Unroll


@dataclass(frozen=True)
class Spaces:
    """The environment a bonus is built for, and how its networks are made.

    Attributes:
        encoder: an nn.Module of the user's own, or a function of the observation space that makes one; None = generic.
        dim: size of the embedding, for the generic encoder.
    """

    observation: gym.Space[Any]
    action: gym.Space[Any]
    encoder: nn.Module | Callable[[gym.Space[Any]], nn.Module] | None
    dim: int

    def new_encoder(self, phi: bool = True, sees: str | Sequence[str] | None = None) -> Encoder:
        """An encoder with weights of its own, shown the keys `sees` (None = all); `phi` is that of `make_encoder`."""
        if self.encoder is None:
            encoder = make_encoder(self.observation, self.dim, phi=phi)
        else:
            made = self.encoder if isinstance(self.encoder, nn.Module) else self.encoder(self.observation)
            encoder = as_encoder(made, self.observation)
        return encoder if sees is None else show_only(encoder, self.observation, sees)

    def new_pair(self) -> tuple[nn.Module, nn.Module]:
        """Two encoders of one architecture with different random weights."""
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


class NoBonus(Bonus):
    """Zero everywhere: the baseline without exploration."""

    def score(self, features: None, unroll: Unroll, memory: object) -> Tensor:
        return torch.zeros(unroll.done.shape, device=unroll.done.device)


def _e3b(
    spaces: Spaces,
    *,
    representation: str = "inverse",
    hidden: int = 256,
    sees: str | Sequence[str] | None = None,
    **elliptical: Any,
) -> Bonus:
    phi: Representation
    if representation == "inverse":
        phi = InverseDynamics(spaces.new_encoder(sees=sees), spaces.action, hidden=hidden)
    elif representation == "random":
        phi = Frozen(spaces.new_encoder(sees=sees))
    elif representation == "policy":
        if sees is not None:
            raise ValueError(
                f"the policy's features cannot be blinded to all but {sees!r}: leave out sees=, or say sees=null where "
                "a preset sets it"
            )
        phi = PolicyFeatures()
    else:
        raise ValueError(f"unknown representation {representation!r}; choose from inverse, random, policy")
    return Elliptical(phi, **elliptical)


def _rnd(spaces: Spaces) -> RND:
    return RND(*spaces.new_pair())


def _noveld(spaces: Spaces, *, key: str | Key | None = "full", alpha: float = 0.1) -> Bonus:
    gain = NoveltyGain(_rnd(spaces), alpha)
    return gain if key is None else gain * FirstVisit(spaces.key(key))


def _ride(
    spaces: Spaces,
    *,
    key: str | Key | None = "full",
    hidden: int = 256,
    inverse_coef: float = 0.1,
    forward_coef: float = 1.0,
) -> Bonus:
    impact = Impact(_dynamics(spaces, hidden, inverse_coef, forward_coef))
    return impact if key is None else impact * InverseSqrtCount(spaces.key(key))


def _icm(spaces: Spaces, *, hidden: int = 256, inverse_coef: float = 0.1, forward_coef: float = 1.0) -> Bonus:
    return Curiosity(_dynamics(spaces, hidden, inverse_coef, forward_coef))


def _dynamics(spaces: Spaces, hidden: int, inverse_coef: float, forward_coef: float) -> InverseForwardDynamics:
    return InverseForwardDynamics(
        spaces.new_encoder(),
        spaces.action,
        hidden=hidden,
        inverse_coef=inverse_coef,
        forward_coef=forward_coef,
    )


def _agac(spaces: Spaces, *, key: str | Key | None = "full", count_coef: float = 1.0) -> Bonus:
    divergence = PolicyDivergence(spaces.new_encoder(), spaces.action)
    return divergence if key is None else divergence + count_coef * InverseSqrtCount(spaces.key(key))


def _count(spaces: Spaces, *, key: str | Key = "full", episodic: bool = True) -> Bonus:
    return InverseSqrtCount(spaces.key(key), episodic=episodic)


def _first_visit(spaces: Spaces, *, key: str | Key = "full", episodic: bool = True) -> Bonus:
    return FirstVisit(spaces.key(key), episodic=episodic)


def _e3b_x_rnd(spaces: Spaces, **e3b: Any) -> Bonus:
    return _e3b(spaces, **e3b) * _rnd(spaces)


def _e3b_x_noveld(spaces: Spaces, *, alpha: float = 0.1, **e3b: Any) -> Bonus:
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
        observation_space, action_space: of one environment (not batched).
        num_envs: how many environments run side by side.
        encoder: your own network (an nn.Module, tree of [rows, ...] -> [rows, d]) or a function of the observation
            space that makes it; None for a generic one.
        dim: size of the generic encoder's embedding.
        seed: for the initial weights, leaving the global random state alone; None draws from the global state.
        **overrides: options of the method; a wrong one is answered with the list.
    """
    if name not in METHODS:
        raise ValueError(f"unknown method {name!r}; choose from {', '.join(sorted(METHODS))}")
    if num_envs < 1:
        raise ValueError(f"num_envs must be at least 1; got {num_envs}")
    known = method_options(name)
    if wrong := sorted(set(overrides) - known):
        raise ValueError(
            f"method {name!r} has no option {', '.join(wrong)}; it has {', '.join(sorted(known)) or 'none'}"
        )
    spaces = Spaces(observation_space, action_space, encoder, dim)
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        bonus = METHODS[name](spaces, **overrides)
    return bonus.built_for(observation_space, action_space, num_envs)


def method_options(name: str) -> set[str]:
    """The options that a method takes besides encoder, dim and seed."""
    options = _keywords(METHODS[name])
    if any(p.kind is p.VAR_KEYWORD for p in inspect.signature(METHODS[name]).parameters.values()):
        options |= _keywords(_e3b) | _keywords(Elliptical)  # what is not the method's own goes there
    return options


def _keywords(function: Callable[..., Any]) -> set[str]:
    parameters = inspect.signature(function).parameters
    return {name for name, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY}
