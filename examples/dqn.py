"""DQN with E3B on MountainCar-v0, whose reward is the same in every step until the flag is reached."""

import numpy as np
from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from e3b_gym import E3BRewardWrapper, EncoderUpdateCallback

STEPS = 120_000

venv = make_vec_env("MountainCar-v0", n_envs=4, seed=0)
venv = E3BRewardWrapper(venv, beta=0.1, seed=0)  # each step costs 1, so a bonus of one deviation is a tenth of a step
model = DQN(
    "MlpPolicy",
    venv,
    learning_rate=4e-3,
    batch_size=128,
    buffer_size=20_000,
    learning_starts=1_000,
    target_update_interval=600,
    train_freq=16,
    gradient_steps=8,
    exploration_fraction=0.2,
    exploration_final_eps=0.07,
    policy_kwargs={"net_arch": [256, 256]},
    seed=0,
    device="cpu",
)
# Off-policy algorithms have short rollouts: the encoder learns every 256 calls of env.step() instead.
model.learn(STEPS, callback=EncoderUpdateCallback(every=256))

mean, deviation = evaluate_policy(model, make_vec_env("MountainCar-v0", n_envs=4, seed=100), n_eval_episodes=20)
print(f"return without the bonus {mean:.0f} +- {np.round(deviation)} (-200: the flag was never reached)")
