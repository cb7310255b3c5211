"""Your own encoder on pixels: a small CNN embeds MiniGrid's images for the bonus; the policy has SB3's CNN."""

import gymnasium as gym
import torch
from minigrid.wrappers import ImgObsWrapper, RGBImgPartialObsWrapper
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from torch import nn

from e3b_gym import E3BRewardWrapper, EncoderUpdateCallback

STEPS = 300_000


class PixelEncoder(nn.Module):
    """[rows, 56, 56, 3] bytes to [rows, 64]: any nn.Module from observations to vectors will do."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 8, 4), nn.ReLU(), nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(64)
        )
        self.layers(torch.zeros(1, 3, 56, 56))  # fixes the size of the lazy layer

    def forward(self, images):
        return self.layers(images.permute(0, 3, 1, 2).float() / 255)


def make():
    env = gym.make("MiniGrid-MultiRoom-N2-S4-v0")
    return ImgObsWrapper(RGBImgPartialObsWrapper(env, tile_size=8))


venv = E3BRewardWrapper(make_vec_env(make, n_envs=8, seed=0), encoder=PixelEncoder(), seed=0)
model = PPO("CnnPolicy", venv, n_steps=128, batch_size=256, ent_coef=0.01, vf_coef=10.0, seed=0, device="cpu")
model.learn(STEPS, callback=EncoderUpdateCallback())
returns = [episode["r"] for episode in model.ep_info_buffer]
print(f"mean return of the last {len(returns)} episodes, without the bonus: {sum(returns) / max(len(returns), 1):.2f}")
