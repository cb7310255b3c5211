"""Named settings of the bonus and of how it is mixed into the reward.

    paper     Algorithm 1 and the tables of the paper's appendix (MiniHack), with a correct running deviation
    authors   what the authors' released code computes: the leaving state is paid, the first step is not, the running
              deviation is 20 to 34 times too large, and the total reward is clipped to [-1, 1]
    default   what learns on a small machine: phi at unit length, the first observation in the ellipse, a small beta

A method's variants (noveld-position, e3b-random, ...) share the settings of the method.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from e3b_gym.bonuses.methods import METHODS, method_options


@dataclass(frozen=True)
class Preset:
    """Options for `make_bonus` and for `RewardMixer`."""

    bonus: Mapping[str, Any] = field(default_factory=dict)
    mixer: Mapping[str, Any] = field(default_factory=dict)


_ALGORITHM_1 = {
    "ridge": 0.1,
    "unit_length": False,
    "include_first": False,
    "bonus_of": "next",
    "zero_first": False,
}
_AUTHORS = {**_ALGORITHM_1, "bonus_of": "current", "zero_first": True}
_LEARNS = {"ridge": 0.1, "unit_length": True, "include_first": True, "bonus_of": "next", "zero_first": False}
_DYNAMICS = {"forward_coef": 1.0, "inverse_coef": 0.1}

PRESETS: dict[str, dict[str, Preset]] = {
    "default": {
        "e3b": Preset({**_LEARNS, "dim": 64}, {"beta": 0.01, "normaliser": "std"}),
        "": Preset({}, {"beta": 0.01, "normaliser": "std"}),
    },
    "paper": {
        "e3b": Preset(_ALGORITHM_1, {"beta": 1.0, "normaliser": "std"}),
        "noveld": Preset({"alpha": 0.1}, {"beta": 1.0, "normaliser": "std"}),
        "ride": Preset(_DYNAMICS, {"beta": 0.1, "normaliser": "none"}),
        "icm": Preset(_DYNAMICS, {"beta": 0.1, "normaliser": "none"}),
        "": Preset({}, {"beta": 1.0, "normaliser": "none"}),
    },
    "authors": {
        "e3b": Preset(_AUTHORS, {"beta": 1.0, "normaliser": "official", "clip": 1.0}),
        "noveld": Preset({"alpha": 0.1}, {"beta": 1.0, "normaliser": "official", "clip": 1.0}),
        "ride": Preset(_DYNAMICS, {"beta": 0.1, "normaliser": "none", "clip": 1.0}),
        "icm": Preset(_DYNAMICS, {"beta": 0.1, "normaliser": "none", "clip": 1.0}),
        "": Preset({}, {"beta": 1.0, "normaliser": "none", "clip": 1.0}),
    },
}


def get_preset(name: str, method: str) -> Preset:
    """The settings of a preset for a method, without the options that the method does not have."""
    if name not in PRESETS:
        raise ValueError(f"unknown preset {name!r}; choose from {', '.join(PRESETS)}")
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}; choose from {', '.join(sorted(METHODS))}")
    family = PRESETS[name]
    preset = family.get(method.split("-")[0], family[""])
    known = method_options(method) | {"dim"}
    return Preset({key: value for key, value in preset.bonus.items() if key in known}, preset.mixer)
