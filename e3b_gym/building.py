"""From what a user writes (a method's name and a few numbers) to a bonus at work; the same for every wrapper."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np

from e3b_gym.bonuses import Bonus, make_bonus
from e3b_gym.errors import UnsupportedSpaceError
from e3b_gym.explorer import Explorer
from e3b_gym.presets import get_preset
from e3b_gym.reward import RewardMixer

_MIXER = ("beta", "extrinsic", "normaliser", "clip", "floor")
# Steps (per environment) kept for training the encoder when nobody says otherwise.
RECORD_STEPS = 128


@dataclass(frozen=True)
class Recipe:
    """What a wrapper is made of, with the preset's settings filled in; enough to build it again.

    Attributes:
        bonus: a method's name, or None for a bonus object of the user's own.
        mixer: settings of RewardMixer.
        options: settings of `make_bonus`.
        seed: of the initial weights.
    """

    bonus: str | None
    mixer: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None

    @classmethod
    def of(cls, bonus: str | Bonus, preset: str = "default", seed: int | None = None, **settings: Any) -> Recipe:
        """From a wrapper's arguments: settings of the mixer (None = as the preset says) and options of the method."""
        if not isinstance(bonus, (str, Bonus)):
            raise ValueError(f"bonus must be a method's name or a Bonus; got {type(bonus).__name__}")
        name = bonus if isinstance(bonus, str) else None
        chosen = get_preset(preset, name or "none")
        # Numbers out of numpy would not come back from a file that is read without running code.
        given = {key: value.item() if isinstance(value, np.generic) else value for key, value in settings.items()}
        mixer = {key: value for key in _MIXER if (value := given.pop(key, None)) is not None}
        if name is None and given:
            raise ValueError(f"options ({', '.join(given)}) are for methods by name; set them on the bonus")
        return cls(name, {**chosen.mixer, **mixer}, {**chosen.bonus, **given}, seed)

    def build(
        self,
        bonus: Bonus | None,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        num_envs: int,
        record_steps: int = RECORD_STEPS,
    ) -> Explorer:
        """The engine for these spaces. `bonus` is the user's own object, where there is no method's name."""
        if isinstance(action_space, (gym.spaces.Dict, gym.spaces.Tuple)):
            remedy = "give the environment a Box, Discrete, MultiDiscrete or MultiBinary action space"
            raise UnsupportedSpaceError("action_space", action_space, remedy)
        if self.bonus is not None:
            spaces = observation_space, action_space
            bonus = make_bonus(self.bonus, *spaces, num_envs, seed=self.seed, **self.options)
        elif bonus is None:
            raise ValueError("this recipe has no method's name, so it needs the bonus itself")
        else:
            check_spaces(bonus, observation_space, action_space)
        return Explorer(bonus, RewardMixer(**self.mixer), num_envs, record_steps=record_steps)


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
