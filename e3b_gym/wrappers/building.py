"""From what a user writes (a method's name and a few numbers) to a bonus at work; the same for every wrapper."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import gymnasium as gym

from e3b_gym.bonuses import Bonus, make_bonus
from e3b_gym.presets import get_preset
from e3b_gym.reward import RewardMixer
from e3b_gym.wrappers.engine import BonusEngine

_PLAIN = (str, int, float, bool, type(None))
_MIXER = ("beta", "extrinsic", "normaliser", "clip", "floor")
# Steps (per environment) kept for training the encoder when nobody says otherwise.
RECORD_STEPS = 128


@dataclass(frozen=True)
class Recipe:
    """What a wrapper was asked for; enough to build it again, where everything in it is plain.

    Attributes:
        bonus: a method's name, or None for a bonus object of the user's own.
        preset: where unnamed settings come from.
        mixer: settings of RewardMixer that were given.
        options: settings of `make_bonus` that were given.
        seed: of the initial weights.
    """

    bonus: str | None
    preset: str
    mixer: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None

    @classmethod
    def of(cls, bonus: str | Bonus, preset: str = "default", seed: int | None = None, **settings: Any) -> Recipe:
        """From a wrapper's arguments: settings of the mixer (None = as the preset says) and options of the method."""
        mixer = {name: value for name in _MIXER if (value := settings.pop(name, None)) is not None}
        return cls(None if isinstance(bonus, Bonus) else bonus, preset, mixer, settings, seed)

    @property
    def plain(self) -> bool:
        """It can be written to a file and read back without running code from it."""
        return self.bonus is not None and all(isinstance(value, _PLAIN) for value in self.options.values())

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) if self.plain else {**asdict(self), "bonus": None, "options": {}}


def build_engine(
    recipe: Recipe,
    bonus: str | Bonus,
    observation_space: gym.Space[Any],
    action_space: gym.Space[Any],
    num_envs: int,
    record_steps: int = RECORD_STEPS,
) -> BonusEngine:
    """The engine that a recipe describes, for these spaces. `bonus` is a method's name or the user's own object."""
    preset = get_preset(recipe.preset, recipe.bonus or "none")
    if isinstance(bonus, str):
        options = {**preset.bonus, **recipe.options}
        bonus = make_bonus(bonus, observation_space, action_space, num_envs, seed=recipe.seed, **options)
    else:
        if recipe.options:
            raise ValueError(f"options ({', '.join(recipe.options)}) are for methods by name; set them on the bonus")
        check_spaces(bonus, observation_space, action_space)
    mixer = RewardMixer(**{**preset.mixer, **recipe.mixer})
    return BonusEngine(bonus, mixer, num_envs, record_steps=record_steps)


def check_spaces(bonus: Bonus, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:
    """A bonus built for other spaces is an error here, not a shape mismatch somewhere inside its network."""
    for name, ours, theirs in (
        ("observation", bonus.observation_space, observation_space),
        ("action", bonus.action_space, action_space),
    ):
        if ours is not None and ours != theirs:
            raise ValueError(
                f"this bonus was built for the {name} space {ours}, but the environment has {theirs}; "
                "build it from the environment you wrap: make_bonus(name, env.observation_space, env.action_space, n)"
            )
