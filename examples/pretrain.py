"""Reward-free pretraining, then fine-tuning: the policy explores without any reward, and then learns the task."""

import numpy as np
from stable_baselines3 import PPO

from e3b_gym import E3BRewardWrapper, EncoderUpdateCallback, make_vec_env

PRETRAIN, STEPS = 500_000, 250_000
SETTINGS = {"learning_rate": 1e-3, "n_steps": 128, "batch_size": 1024, "n_epochs": 3, "ent_coef": 0.01, "device": "cpu"}


def rooms(seed):
    return make_vec_env("Rooms-K5-v0", n_envs=64, seed=seed, clock=True, flat=True)


def success(model):
    return np.mean(model.ep_success_buffer or [0.0])


# 1. The environment's reward has the weight 0: only new states count.
venv = E3BRewardWrapper(rooms(0), extrinsic=0.0, seed=0)
explorer = PPO("MlpPolicy", venv, seed=0, **SETTINGS).learn(PRETRAIN, callback=EncoderUpdateCallback())
print(f"explored without reward: the goal was reached in {success(explorer):.2f} of the last episodes")
explorer.save("explorer")
venv.save("explorer-bonus.pt")  # encoder, optimiser and scale; reading it back runs no code

# 2. The same policy and encoder, now with the task's reward; the bonus stays, with a tenth of its weight.
venv = E3BRewardWrapper.load("explorer-bonus.pt", rooms(1))
venv.explorer.mixer.extrinsic, venv.explorer.mixer.beta = 1.0, 0.001
model = PPO.load("explorer", env=venv, device="cpu").learn(STEPS, callback=EncoderUpdateCallback())
print(f"fine-tuned: success {success(model):.2f}")

# 3. The task from scratch, with as many steps as the fine-tuning had.
scratch = PPO("MlpPolicy", rooms(1), seed=0, **SETTINGS).learn(STEPS)
print(f"from scratch without a bonus: success {success(scratch):.2f}")
