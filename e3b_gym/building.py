"""Builds an OnlineExplorer from a BonusConfig, for every wrapper."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from e3b_gym.bonuses import Bonus
from e3b_gym.config import BonusConfig
from e3b_gym.errors import UnsupportedSpaceError
from e3b_gym.online import OnlineExplorer
from e3b_gym.options import UNSET

# Steps (per environment) kept for training the encoder by default.
RECORD_STEPS = 128


def config_of(bonus: str | Bonus | BonusConfig, preset: str = "default", **given: Any) -> BonusConfig:
    """The config of a wrapper's arguments: a method by name, a config, or a bonus object."""
    if isinstance(bonus, BonusConfig):
        chosen = [name for name, value in given.items() if value is not UNSET and value is not None]
        if chosen or preset != "default":
            raise ValueError(f"{', '.join(chosen) or 'preset'}: set options in the BonusConfig, which has them all")
        return bonus
    if not isinstance(bonus, (str, Bonus)):
        raise ValueError(f"bonus must be a method's name, a BonusConfig or a Bonus; got {type(bonus).__name__}")
    return BonusConfig.of(bonus if isinstance(bonus, str) else None, preset, **given)


def build_explorer(
    config: BonusConfig,
    bonus: str | Bonus | BonusConfig | None,
    observation_space: gym.Space[Any],
    action_space: gym.Space[Any],
    num_envs: int,
    record_steps: int = RECORD_STEPS,
) -> OnlineExplorer:
    """The explorer for these spaces. `bonus` is the user's object, where the config has no method."""
    if isinstance(action_space, (gym.spaces.Dict, gym.spaces.Tuple)):
        remedy = "give the environment a Box, Discrete, MultiDiscrete or MultiBinary action space"
        raise UnsupportedSpaceError("action_space", action_space, remedy)
    if isinstance(bonus, Bonus):
        check_spaces(bonus, observation_space, action_space)
    else:
        bonus = config.make_bonus(observation_space, action_space, num_envs)
    return OnlineExplorer(bonus, config.make_mixer(), num_envs, record_steps=record_steps)


def check_spaces(bonus: Bonus, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:
    """Raises ValueError for a bonus built for other spaces, before its network fails with a shape mismatch."""
    for name, ours, theirs in (
        ("observation", bonus.observation_space, observation_space),
        ("action", bonus.action_space, action_space),
    ):
        if ours is not None and ours != theirs:
            raise ValueError(
                f"this bonus was built for the {name} space {ours}, but the environment has {theirs}; "
                "build it from the environment you wrap: make_bonus(name, env.observation_space, env.action_space, n)"
            )
