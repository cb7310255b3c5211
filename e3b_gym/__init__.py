"""Exploration via Elliptical Episodic Bonuses: wrappers, bonuses and worlds for sparse-reward reinforcement learning."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from e3b_gym.bonuses import METHODS, Bonus, make_bonus
from e3b_gym.checks import check_bonus
from e3b_gym.memory import EllipticalMemory
from e3b_gym.presets import PRESETS
from e3b_gym.reward import RewardMixer
from e3b_gym.unroll import Unroll
from e3b_gym.version import __version__

if TYPE_CHECKING:
    from e3b_gym.wrappers.gymnasium import E3BReward, E3BVectorReward
    from e3b_gym.wrappers.sb3 import E3BCheckpointCallback, E3BRewardWrapper, EncoderUpdateCallback
    from e3b_gym.wrappers.sb3_envs import make_vec_env

# Imported when first used, so that `import e3b_gym` does not load Stable-Baselines3.
_LAZY = {
    "E3BCheckpointCallback": "e3b_gym.wrappers.sb3",
    "E3BReward": "e3b_gym.wrappers.gymnasium",
    "E3BRewardWrapper": "e3b_gym.wrappers.sb3",
    "E3BVectorReward": "e3b_gym.wrappers.gymnasium",
    "EncoderUpdateCallback": "e3b_gym.wrappers.sb3",
    "make_vec_env": "e3b_gym.wrappers.sb3_envs",
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
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
