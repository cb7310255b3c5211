"""make_vec_env: any id of `e3b_gym.envs` as a Stable-Baselines3 VecEnv.

SB3's own make_vec_env takes any Gymnasium id too, but it stops at observations that SB3 cannot batch (MiniGrid's text),
and it steps environments one by one where a suite has a batch loop.
"""

from __future__ import annotations

from typing import Any, Literal

from stable_baselines3.common.vec_env import VecEnv, VecMonitor

from e3b_gym.envs import make_vec
from e3b_gym.sb3.vec_env import GymnasiumVecEnv


def make_vec_env(
    env_id: str,
    n_envs: int = 1,
    seed: int | None = None,
    kind: Literal["inline", "process"] = "inline",
    **options: Any,
) -> VecEnv:
    """Environments with episode statistics, ready for any SB3 algorithm.

    Args:
        env_id: an id of this library (`python -m e3b_gym.envs` lists them) or any other Gymnasium id.
        n_envs: how many.
        seed: environment i starts with seed + i.
        kind: all in this process, or one process each.
        **options: options of the environment.
    """
    return VecMonitor(GymnasiumVecEnv(make_vec(env_id, n_envs, seed=seed, kind=kind, **options)))
