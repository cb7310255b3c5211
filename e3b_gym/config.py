"""BonusConfig: all settings of an exploration bonus and of its weight in the reward.

    BonusConfig.of("e3b")                              preset "default"
    BonusConfig.of("e3b", "paper", beta=0.1, ridge=0.01)

Overrides win over the preset, the preset over the defaults of the method. Only this module resolves them, for wrappers
and learners. Presets:

    default   for small machines: phi at unit length, the first observation in the ellipse, a small beta
    paper     Algorithm 1 and the tables of the paper's appendix (MiniHack), with a correct running deviation
    authors   what the authors' released code computes: the bonus of a step is that of its current state, the first
              step has none, the running deviation is 20 to 34 times too large, the total reward is clipped to [-1, 1]

Variants of a method (noveld-position, e3b-random, ...) share its preset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import gymnasium as gym
from torch import nn

from e3b_gym.bonuses import Bonus
from e3b_gym.bonuses.methods import METHODS, check_options, make_bonus, method_defaults, method_types
from e3b_gym.options import UNSET, NotNegative, Positive, Seed, check_fields, closest, field_types, parse
from e3b_gym.reward import Normaliser, RewardMixer

_ALGORITHM_1 = {"ridge": 0.1, "unit_length": False, "include_first": False, "bonus_of": "next", "zero_first": False}
_DYNAMICS = {"forward_coef": 1.0, "inverse_coef": 0.1}
_RUNNING = {"beta": 1.0, "normaliser": "std"}
_AUTHORS = {"beta": 1.0, "normaliser": "authors", "clip": 1.0}

PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "default": {
        "": {"beta": 0.01, "normaliser": "std"},
        "e3b": {"beta": 0.01, "normaliser": "std", "dim": 64}
        | {**_ALGORITHM_1, "unit_length": True, "include_first": True},
    },
    "paper": {
        "": {"beta": 1.0, "normaliser": "none"},
        "e3b": {**_RUNNING, **_ALGORITHM_1},
        "noveld": {**_RUNNING, "alpha": 0.1},
        "ride": {"beta": 0.1, "normaliser": "none", **_DYNAMICS},
        "icm": {"beta": 0.1, "normaliser": "none", **_DYNAMICS},
    },
    "authors": {
        "": {"beta": 1.0, "normaliser": "none", "clip": 1.0},
        "e3b": {**_AUTHORS, **_ALGORITHM_1, "bonus_of": "current", "zero_first": True},
        "noveld": {**_AUTHORS, "alpha": 0.1},
        "ride": {"beta": 0.1, "normaliser": "none", "clip": 1.0, **_DYNAMICS},
        "icm": {"beta": 0.1, "normaliser": "none", "clip": 1.0, **_DYNAMICS},
    },
}
"""preset -> family of methods ("" for all others) -> options."""


@dataclass(frozen=True)
class BonusConfig:
    """A bonus and its weight in the reward, r = clip(extrinsic * w(r_env) + beta * bonus / sigma); see `RewardMixer`.

    Examples:
        >>> from e3b_gym import BonusConfig
        >>> config = BonusConfig.of("e3b", "paper", beta=0.1)
        >>> config.beta, config.normaliser, config.options["ridge"]
        (0.1, 'std', 0.1)
    """

    method: str | None = "e3b"
    """A name of `e3b_gym.METHODS`; None for the user's bonus object."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """All options of the method, with `dim` (size of the generic encoder) or `encoder` (the user's network)."""
    beta: NotNegative = 1.0
    """Weight of the bonus."""
    extrinsic: NotNegative = 1.0
    """Weight of the environment's reward; 0 for reward-free exploration."""
    penalties: NotNegative = 1.0
    """Further weight of the environment's negative rewards; 0 ignores them."""
    normaliser: Normaliser = "std"
    """Divisor of the bonus: "std" (running deviation), "authors" (the authors' deviation, too large) or "none"."""
    clip: Positive | None = None
    """The total reward is clipped to [-clip, clip]; None for no clipping."""
    floor: NotNegative = 0.1
    """The running deviation is at least this share of the mean of the bonus."""
    seed: Seed | None = None
    """Seed of the initial weights; None: drawn from torch's global state."""

    MIXING: ClassVar[tuple[str, ...]] = ("beta", "extrinsic", "penalties", "normaliser", "clip", "floor")
    """The fields of `RewardMixer`."""

    def __post_init__(self) -> None:
        check_fields(self)
        options = {} if self.method is None else check_options(self.method, self.options)
        object.__setattr__(self, "options", options)

    @classmethod
    def of(cls, method: str | None = "e3b", preset: str = "default", **given: Any) -> Self:
        """Returns the config of a method with a preset and overrides.

        Args:
            method: a name of `e3b_gym.METHODS`; None for the user's bonus object.
            preset: "default", "paper" or "authors".
            **given: overrides: fields of this class and options of the method; UNSET: not given.

        Raises:
            ValueError: A name is unknown, a value has the wrong type or range, or an override has no effect.
        """
        config = cls._resolved(method, preset, given)
        reasons = config.without_effect()
        for name in (name for name, value in given.items() if value is not UNSET and value is not None):
            if name in reasons:
                raise ValueError(f"{name} has no effect: {reasons[name]}; remove it")
        return config

    @classmethod
    def _resolved(cls, method: str | None, preset: str, given: Mapping[str, Any]) -> Self:
        if preset not in PRESETS:
            raise ValueError(f"unknown preset {preset!r}; choose from {', '.join(PRESETS)}")
        known = option_types(method)
        chosen = {name: value for name, value in given.items() if value is not UNSET}
        unknown = [name for name in chosen if name not in known]
        if unknown and method is None:
            raise ValueError(
                f"options ({', '.join(unknown)}) apply only to a method given by name; set them on the bonus object"
            )
        if unknown:
            raise ValueError(f"method {method!r} has no option {unknown[0]}; {closest(unknown[0], known)}")
        families = PRESETS[preset]
        family = families.get(family_of(method), families[""])
        values = {**method_defaults(method), **family, **chosen} if method is not None else {**family, **chosen}
        if "encoder" in chosen:
            values.pop("dim", None)
        if values.get("representation", "inverse") != "inverse":
            values.pop("hidden", None)
        return cls.from_dict({"method": method, **{name: value for name, value in values.items() if name in known}})

    @classmethod
    def parsed(cls, method: str | None, preset: str = "default", **texts: Any) -> Self:
        """`of`, for values of a command line or a YAML file: text is converted to the type of its option.

        A file has options for several methods, so those without effect are accepted; `without_effect` names them.
        """
        known = option_types(method)
        return cls._resolved(method, preset, {n: parse(n, v, known[n]) if n in known else v for n, v in texts.items()})

    def without_effect(self) -> dict[str, str]:
        """Returns the options that have no effect with the others, with the reasons.

        What only some methods use (beta, dim) is not among them: methods are compared with the same options.
        """
        reasons = {}
        if self.normaliser != "std":
            reasons["floor"] = f"it bounds the running deviation of normaliser='std', and this is {self.normaliser!r}"
        if self.extrinsic == 0:
            reasons["penalties"] = "extrinsic=0 ignores all rewards of the environment"
        if self.method is None:
            return {**reasons, "seed": "the bonus object has its weights already"}
        if "encoder" in self.options:
            reasons["dim"] = "it is the size of the generic encoder, and encoder= is given"
        representation = (method_defaults(self.method) | dict(self.options)).get("representation", "inverse")
        if representation != "inverse":
            reasons["hidden"] = (
                f"it is the size of the inverse model, which representation={representation!r} does not train"
            )
        return reasons

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of `as_dict`."""
        own = {name: values[name] for name in field_types(cls) if name in values}
        return cls(**own, options={name: value for name, value in values.items() if name not in own})

    def as_dict(self) -> dict[str, Any]:
        """Returns all values in one flat dict: `method`, `beta`, ..., and the options of the method."""
        own = {name: getattr(self, name) for name in field_types(type(self)) if name != "options"}
        if self.seed is None:
            del own["seed"]
        return {**own, **self.options}

    def with_encoder(self, encoder: nn.Module | Callable[[gym.Space[Any]], nn.Module]) -> Self:
        """Returns the same bonus with this network, or function that makes one, in place of the generic encoder."""
        options = {name: value for name, value in self.options.items() if name != "dim"}
        return replace(self, options={**options, "encoder": encoder})

    def make_bonus(self, observation_space: gym.Space[Any], action_space: gym.Space[Any], num_envs: int) -> Bonus:
        """Builds the bonus for an environment; see `e3b_gym.make_bonus`."""
        if self.method is None:
            raise ValueError("this config has no method; pass the bonus object")
        return make_bonus(self.method, observation_space, action_space, num_envs, seed=self.seed, **self.options)

    def make_mixer(self) -> RewardMixer:
        """Builds the mixer of reward and bonus."""
        return RewardMixer(**{name: getattr(self, name) for name in self.MIXING})


def family_of(method: str | None) -> str:
    """The family of a method, which shares settings: "e3b" for e3b and e3b-random; "" for None."""
    return (method or "").split("-")[0]


def option_types(method: str | None) -> dict[str, Any]:
    """Returns name -> annotation of all overrides of `BonusConfig.of` for a method."""
    if method is not None and method not in METHODS:
        raise ValueError(f"unknown method {method!r}; {closest(method, METHODS)}")
    mixing = {name: kind for name, kind in field_types(BonusConfig).items() if name not in ("method", "options")}
    return mixing if method is None else {**mixing, **method_types(method)}
