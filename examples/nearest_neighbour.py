"""A custom bonus: the distance to the nearest earlier state of the episode, in a random embedding.

Run it to check the bonus against the library's contract and to train with it: python examples/nearest_neighbour.py
"""

import gymnasium as gym
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from e3b_gym import check_bonus
from e3b_gym.bonuses import Bonus, embed_unroll
from e3b_gym.encoders import make_encoder
from e3b_gym.sb3 import E3BRewardWrapper


class Seen:
    """Memory: the embeddings of the current episode of each environment."""

    def __init__(self, num_envs, dim):
        self.states = [torch.empty(0, dim) for _ in range(num_envs)]

    def state_dict(self):
        return {"states": list(self.states)}

    def load_state_dict(self, state):
        self.states = list(state["states"])


class NearestNeighbour(Bonus):
    def __init__(self, observation_space, dim=16):
        super().__init__()
        self.encoder = make_encoder(observation_space, dim, seed=0).requires_grad_(False)

    def new_memory(self, num_envs):
        return Seen(num_envs, self.encoder.dim)

    def embed(self, unroll, previous=None):
        return embed_unroll(self.encoder, unroll, previous)

    @torch.no_grad()
    def score(self, features, unroll, memory):
        bonus = torch.zeros(unroll.done.shape)
        slots = range(unroll.num_envs) if unroll.slots is None else unroll.slots.tolist()
        for t, first in enumerate(unroll.first):
            for b, slot in enumerate(slots):
                if first[b]:
                    memory.states[slot] = features.current[t, b, None]
                bonus[t, b] = torch.cdist(features.next[t, b, None], memory.states[slot]).min()
                memory.states[slot] = torch.cat([memory.states[slot], features.next[t, b, None]])
        return unroll.masked(bonus)


if __name__ == "__main__":
    env = gym.make("MountainCar-v0")
    check_bonus(NearestNeighbour(env.observation_space), env.observation_space, env.action_space)
    venv = make_vec_env("MountainCar-v0", n_envs=4)
    PPO("MlpPolicy", E3BRewardWrapper(venv, NearestNeighbour(env.observation_space)), n_steps=64).learn(2048)
    print("the bonus satisfies the contract, and PPO has trained with it")
