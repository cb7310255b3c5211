"""Everything for Stable-Baselines3 users in one place.

from e3b_gym.sb3 import E3BRewardWrapper, EncoderUpdateCallback, make_vec_env

venv = E3BRewardWrapper(make_vec_env("MiniGrid-DoorKey-8x8-v0", n_envs=16))
model = PPO("MultiInputPolicy", venv).learn(1_000_000, callback=EncoderUpdateCallback())
"""

from e3b_gym.sb3.callbacks import EncoderUpdateCallback
from e3b_gym.sb3.checkpoints import E3BCheckpointCallback, resume
from e3b_gym.sb3.diagnosing import diagnose
from e3b_gym.sb3.envs import make_vec_env
from e3b_gym.sb3.extractor import ENCODER_POLICY
from e3b_gym.sb3.recurrent_ppo import RecurrentPPO
from e3b_gym.sb3.vec_env import GymnasiumVecEnv
from e3b_gym.sb3.wrapper import E3BRewardWrapper, find_wrapper

__all__ = [
    "ENCODER_POLICY",
    "E3BCheckpointCallback",
    "E3BRewardWrapper",
    "EncoderUpdateCallback",
    "GymnasiumVecEnv",
    "RecurrentPPO",
    "diagnose",
    "find_wrapper",
    "make_vec_env",
    "resume",
]
