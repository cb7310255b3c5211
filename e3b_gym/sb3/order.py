"""Order of E3BRewardWrapper and the other VecEnv wrappers, with warnings about orders that drop or mix the bonus."""

from __future__ import annotations

import warnings

from sb3_contrib import ARS
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecMonitor, VecNormalize
from stable_baselines3.her import HerReplayBuffer

from e3b_gym.sb3.wrapper import E3BRewardWrapper, is_env_wrapped


def wrappers_outside(venv: VecEnv, wrapper: E3BRewardWrapper) -> list[VecEnvWrapper]:
    """The VecEnv wrappers around `wrapper`, outermost first; `venv` is the outermost of all."""
    outside = []
    while isinstance(venv, VecEnvWrapper) and venv is not wrapper:
        outside.append(venv)
        venv = venv.venv
    return outside


def wrappers_inside(wrapper: E3BRewardWrapper) -> list[VecEnvWrapper]:
    """The VecEnv wrappers inside `wrapper`, outermost first."""
    inside, venv = [], wrapper.venv
    while isinstance(venv, VecEnvWrapper):
        inside.append(venv)
        venv = venv.venv
    return inside


def warn_about_order(model: BaseAlgorithm, venv: VecEnv, wrapper: E3BRewardWrapper) -> None:
    """Warns if the order of wrappers would drop the bonus or add it to the wrong statistics.

    Args:
        model: the algorithm that learns from `venv`.
        venv: the outermost VecEnv.
        wrapper: somewhere in `venv`.
    """
    outside, inside = wrappers_outside(venv, wrapper), wrappers_inside(wrapper)
    name = type(model).__name__
    monitored = any(isinstance(outer, VecMonitor) for outer in outside)
    if isinstance(model, ARS):
        if not monitored and (_has(inside, VecMonitor) or is_env_wrapped(wrapper, Monitor)):
            _warn(
                "ARS learns from the episode rewards of Monitor, which does not see the bonus: it would have no "
                "effect. Right order: VecMonitor(E3BRewardWrapper(venv))"
            )
    elif monitored:
        _warn(
            "VecMonitor is outside E3BRewardWrapper, so ep_rew_mean will be the environment's reward plus the bonus. "
            "Right order: E3BRewardWrapper(VecMonitor(venv))"
        )
    if isinstance(model, OffPolicyAlgorithm):
        if _has(inside, VecNormalize):
            _warn(
                f"VecNormalize is inside E3BRewardWrapper, and {name} stores VecNormalize's original reward in its "
                "replay buffer: the bonus would be lost. Right order: VecNormalize(E3BRewardWrapper(venv))"
            )
        if isinstance(model.replay_buffer, HerReplayBuffer):
            _warn(
                "HerReplayBuffer computes the reward of relabelled transitions with compute_reward(), so only the "
                "original ones carry the bonus. To give it to all, use the algorithm's ordinary replay buffer"
            )


def _has(wrappers: list[VecEnvWrapper], kind: type[VecEnvWrapper]) -> bool:
    return any(isinstance(wrapper, kind) for wrapper in wrappers)


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=3)
