"""Exploration via Elliptical Episodic Bonuses: wrappers, bonuses and worlds for reinforcement learning."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from e3b_gym.version import __version__

if TYPE_CHECKING:
    from e3b_gym.bonuses import METHODS, Bonus, make_bonus
    from e3b_gym.checks import check_bonus
    from e3b_gym.memory import EllipticalMemory
    from e3b_gym.presets import PRESETS
    from e3b_gym.reward import RewardMixer
    from e3b_gym.unroll import Unroll
    from e3b_gym.wrappers.gymnasium import E3BReward, E3BVectorReward
    from e3b_gym.wrappers.sb3 import E3BCheckpointCallback, E3BRewardWrapper, EncoderUpdateCallback, make_vec_env

# Each name is imported when first used: `import e3b_gym` loads neither torch nor Stable-Baselines3, so that the worker
# processes of environments start at once.
_HOMES = {
    "METHODS": "bonuses",
    "PRESETS": "presets",
    "Bonus": "bonuses",
    "E3BCheckpointCallback": "wrappers.sb3",
    "E3BReward": "wrappers.gymnasium",
    "E3BRewardWrapper": "wrappers.sb3",
    "E3BVectorReward": "wrappers.gymnasium",
    "EllipticalMemory": "memory",
    "EncoderUpdateCallback": "wrappers.sb3",
    "RewardMixer": "reward",
    "Unroll": "unroll",
    "check_bonus": "checks",
    "make_bonus": "bonuses",
    "make_vec_env": "wrappers.sb3",
}

__all__ = [
    "METHODS",
    "PRESETS",
    "Bonus",
    "E3BCheckpointCallback",
    "E3BReward",
    "E3BRewardWrapper",
    "E3BVectorReward",
    "EllipticalMemory",
    "EncoderUpdateCallback",
    "RewardMixer",
    "Unroll",
    "__version__",
    "check_bonus",
    "make_bonus",
    "make_vec_env",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
