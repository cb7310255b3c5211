"""Exploration via Elliptical Episodic Bonuses: wrappers, bonuses and environments for reinforcement learning."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from e3b_gym.version import __version__

if TYPE_CHECKING:
    from e3b_gym.bonuses import METHODS, Bonus, Features, embed_unroll, make_bonus
    from e3b_gym.checks import check_bonus
    from e3b_gym.config import PRESETS, BonusConfig
    from e3b_gym.envs import make, make_vec
    from e3b_gym.gymnasium import E3BReward, E3BVectorReward
    from e3b_gym.memory import EllipticalMemory
    from e3b_gym.reward import RewardMixer
    from e3b_gym.sb3 import (
        ENCODER_POLICY,
        E3BCheckpointCallback,
        E3BRewardWrapper,
        EncoderUpdateCallback,
        RecurrentPPO,
        diagnose,
        make_vec_env,
        resume,
    )
    from e3b_gym.unroll import Unroll

# Each name is imported when first used: `import e3b_gym` loads neither torch nor Stable-Baselines3, so that the worker
# processes of environments start at once.
_MODULES = {
    "ENCODER_POLICY": "sb3",
    "METHODS": "bonuses",
    "PRESETS": "config",
    "Bonus": "bonuses",
    "BonusConfig": "config",
    "E3BCheckpointCallback": "sb3",
    "E3BReward": "gymnasium",
    "E3BRewardWrapper": "sb3",
    "E3BVectorReward": "gymnasium",
    "EllipticalMemory": "memory",
    "EncoderUpdateCallback": "sb3",
    "Features": "bonuses",
    "RecurrentPPO": "sb3",
    "RewardMixer": "reward",
    "Unroll": "unroll",
    "check_bonus": "checks",
    "diagnose": "sb3",
    "embed_unroll": "bonuses",
    "make": "envs",
    "make_bonus": "bonuses",
    "make_vec": "envs",
    "make_vec_env": "sb3",
    "resume": "sb3",
}

__all__ = [
    "ENCODER_POLICY",
    "METHODS",
    "PRESETS",
    "Bonus",
    "BonusConfig",
    "E3BCheckpointCallback",
    "E3BReward",
    "E3BRewardWrapper",
    "E3BVectorReward",
    "EllipticalMemory",
    "EncoderUpdateCallback",
    "Features",
    "RecurrentPPO",
    "RewardMixer",
    "Unroll",
    "__version__",
    "check_bonus",
    "diagnose",
    "embed_unroll",
    "make",
    "make_bonus",
    "make_vec",
    "make_vec_env",
    "resume",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
