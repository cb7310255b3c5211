"""The exploration bonus for Gymnasium without Stable-Baselines3: around a VectorEnv, or a single Env.

    envs = E3BVectorReward(gymnasium.make_vec("CartPole-v1", num_envs=8))
    ...                                                   # act; rewards carry the bonus
    envs.train_encoder()                                  # after each rollout

Infos carry `intrinsic_reward` and `extrinsic_reward`.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from numpy.typing import NDArray

from e3b_gym.bonuses import Bonus
from e3b_gym.unroll import Tree, tree_map
from e3b_gym.wrappers.building import RECORD_STEPS, Recipe, build_engine


class E3BVectorReward(VectorWrapper):
    """Adds an exploration bonus to the rewards of a Gymnasium VectorEnv, in either autoreset mode.

    Args:
        env: the vector environment. With SAME_STEP autoreset the last observations come from `infos["final_obs"]`;
            with NEXT_STEP they are the observations themselves, and the step that only resets is not scored.
        bonus: a method by name (`e3b_gym.METHODS`), or a bonus object.
        record_steps: how many of the latest steps `train_encoder` trains on.
        **settings: preset, beta, extrinsic, normaliser, clip, seed and the method's options, as in `E3BRewardWrapper`.
    """

    def __init__(
        self, env: VectorEnv, bonus: str | Bonus = "e3b", *, record_steps: int = RECORD_STEPS, **settings: Any
    ) -> None:
        super().__init__(env)
        self._mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        if self._mode not in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
            raise ValueError(
                f"autoreset mode {self._mode} is not supported; make the vector env with NEXT_STEP or SAME_STEP"
            )
        spaces = env.single_observation_space, env.single_action_space
        self.engine = build_engine(Recipe.of(bonus, **settings), bonus, *spaces, env.num_envs, record_steps)
        self._ended = np.zeros(env.num_envs, dtype=bool)

    def reset(self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None) -> Any:
        obs, infos = self.env.reset(seed=seed, options=options)
        self.engine.reset(obs)
        self._ended = np.zeros_like(self._ended)
        return obs, infos

    def step(self, actions: Any) -> Any:
        obs, rewards, terminated, truncated, infos = self.env.step(actions)
        done = np.logical_or(terminated, truncated)
        same_step = self._mode == AutoresetMode.SAME_STEP
        paid = self.engine.step(
            np.asarray(actions),
            obs,
            rewards,
            done,
            _final_observations(done, infos) if same_step else _last_observations(obs, done, infos),
            restarted=None if same_step else self._ended,
        )
        self._ended = done
        infos = {**infos, "intrinsic_reward": paid.intrinsic, "extrinsic_reward": np.array(rewards)}
        return obs, paid.total.astype(np.float64), terminated, truncated, infos

    def train_encoder(self) -> dict[str, float]:
        """Trains on the steps since the last call (at most `record_steps`); returns losses and diagnostics."""
        return self.engine.train()


class E3BReward(gym.Wrapper[Any, Any, Any, Any]):
    """Adds an exploration bonus to the rewards of a single Gymnasium environment. Arguments as in `E3BVectorReward`."""

    def __init__(
        self, env: gym.Env[Any, Any], bonus: str | Bonus = "e3b", *, record_steps: int = RECORD_STEPS, **settings: Any
    ) -> None:
        super().__init__(env)
        spaces = env.observation_space, env.action_space
        self.engine = build_engine(Recipe.of(bonus, **settings), bonus, *spaces, 1, record_steps)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        self.engine.reset(tree_map(lambda leaf: np.asarray(leaf)[None], obs))
        return obs, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        batch = tree_map(lambda leaf: np.asarray(leaf)[None], obs)
        done = np.array([terminated or truncated])
        valid = np.array([info.get("final_observation_valid", True)])
        terminals = _last_observations(batch, done, {"final_observation_valid": valid})
        paid = self.engine.step(np.asarray(action)[None], batch, np.array([reward], dtype=np.float32), done, terminals)
        info = {**info, "intrinsic_reward": float(paid.intrinsic[0]), "extrinsic_reward": float(reward)}
        return obs, float(paid.total[0]), terminated, truncated, info

    def train_encoder(self) -> dict[str, float]:
        """Trains on the steps since the last call (at most `record_steps`); returns losses and diagnostics."""
        return self.engine.train()


def _last_observations(obs: Tree, done: NDArray[np.bool_], infos: dict[str, Any]) -> dict[int, Tree]:
    """By environment, the last observations of ended episodes where `obs` still is of those."""
    valid = infos.get("final_observation_valid", np.ones_like(done))
    return {int(env): tree_map(lambda leaf, env=env: leaf[env], obs) for env in np.flatnonzero(done & valid)}


def _final_observations(done: NDArray[np.bool_], infos: dict[str, Any]) -> dict[int, Tree]:
    """By environment, the last observations of ended episodes where `obs` is of the next ones already."""
    if "final_obs" not in infos:
        return {}
    valid = infos.get("final_info", {}).get("final_observation_valid", np.ones_like(done))
    finals = infos["final_obs"]
    return {int(env): finals[env] for env in np.flatnonzero(done) if valid[env] and finals[env] is not None}
