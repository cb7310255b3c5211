"""An environment of the old `gym` (four values from step, seed()) comes in through shimmy."""

from __future__ import annotations

from typing import Any

import gym
import numpy as np
import shimmy
from stable_baselines3 import PPO
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor

from e3b_gym.gymnasium import E3BReward
from e3b_gym.sb3 import E3BRewardWrapper, EncoderUpdateCallback


class OldCorridor(gym.Env):
    """Written for gym 0.21: reset gives an observation, step four values, and time runs out silently."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def seed(self, seed: int | None = None) -> list[int | None]:
        return [seed]

    def reset(self) -> Any:
        self.place = self.time = 0
        return np.zeros(2, np.float32)

    def step(self, action: int) -> Any:
        self.place, self.time = self.place + 2 * int(action) - 1, self.time + 1
        obs = np.array([self.place / 8, self.time / 8], np.float32)
        return obs, float(self.place == 3), self.time == 8, {"TimeLimit.truncated": self.time == 8}


def modern() -> Any:
    return shimmy.GymV21CompatibilityV0(env=OldCorridor())


def test_old_environments_learn_with_a_bonus() -> None:
    wrapper = E3BRewardWrapper(make_vec_env(modern, n_envs=2), beta=0.5, seed=0)
    model = PPO("MlpPolicy", wrapper, n_steps=16, batch_size=32, n_epochs=1, seed=0, device="cpu")
    model.learn(64, callback=EncoderUpdateCallback())
    assert (model.rollout_buffer.rewards > 0).all()
    assert {episode["l"] for episode in model.ep_info_buffer} == {8}
    assert wrapper.explorer.optimizer.state


def test_an_old_single_environment_passes_the_checker_and_ends_in_truncation() -> None:
    env = E3BReward(Monitor(modern()), "count", beta=1.0, normaliser="none")
    check_env(env)
    env.reset()
    steps = [env.step(1) for _ in range(8)]
    assert [info["intrinsic_reward"] for *_, info in steps] == [1.0] * 8
    assert [(terminated, truncated) for _, _, terminated, truncated, _ in steps] == [(False, False)] * 7 + [
        (False, True)
    ]
