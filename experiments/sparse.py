"""Common tasks with a reward of 1 for reaching the goal and nothing else, for the study `wrapper`.

    ENV=experiments.sparse:SparseMountainCar-v0              the flag of MountainCar-v0
    ENV=experiments.sparse:SparseMountainCarContinuous-v0    the same with continuous actions, which cost nothing
    ENV=experiments.sparse:SparseAcrobot-v0                  the tip of Acrobot-v1 above the bar
    ENV=experiments.sparse:AtariFreeway-v0                   1 for each crossing; needs ale-py (pip install '.[atari]')

`info["is_success"]` says whether the episode reached the goal; in Freeway, whether the chicken crossed at least once.
Importing this module registers the ids with Gymnasium.
"""

from __future__ import annotations

import importlib
from typing import Any, SupportsFloat

import gymnasium as gym
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

FREEWAY_STEPS = 500
"""Steps of four frames each until an episode of Freeway ends."""


class GoalOnly(gym.Wrapper[Any, Any, Any, Any]):
    """Replaces the reward by 1 where the environment terminates, which in these tasks means success."""

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        obs, _, terminated, truncated, info = self.env.step(action)
        return obs, float(terminated), terminated, truncated, {**info, "is_success": bool(terminated)}


class AnyReward(gym.Wrapper[Any, Any, Any, Any]):
    """Success is any reward in the episode."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._rewarded = False
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._rewarded |= float(reward) > 0
        return obs, reward, terminated, truncated, {**info, "is_success": self._rewarded}


def goal_only(source: str, **options: Any) -> gym.Env[Any, Any]:
    """Makes an environment of Gymnasium whose only reward is that of its goal."""
    return GoalOnly(gym.make(source, **options))


def freeway(**options: Any) -> gym.Env[Any, Any]:
    """Freeway with the usual preprocessing, in 42 x 42 pixels and two frames."""
    try:
        ale = importlib.import_module("ale_py")
    except ImportError as error:
        raise ImportError("Freeway needs ale-py; run: pip install 'e3b-gym[atari]'") from error
    gym.register_envs(ale)
    env = gym.make("ALE/Freeway-v5", frameskip=1, repeat_action_probability=0.0, **options)
    small = AtariPreprocessing(env, screen_size=42, noop_max=30)
    return AnyReward(FrameStackObservation(small, 2))


_GOALS = {
    "SparseMountainCar-v0": ("MountainCar-v0", 200),
    "SparseMountainCarContinuous-v0": ("MountainCarContinuous-v0", 999),
    "SparseAcrobot-v0": ("Acrobot-v1", 500),
}
for _id, (_source, _steps) in _GOALS.items():
    gym.register(_id, entry_point=f"{__name__}:goal_only", kwargs={"source": _source}, max_episode_steps=_steps)
gym.register("AtariFreeway-v0", entry_point=f"{__name__}:freeway", max_episode_steps=FREEWAY_STEPS)
