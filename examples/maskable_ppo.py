"""MaskablePPO with E3B: a maze in which the masks forbid walking into walls; reward at the far corner only."""

import gymnasium as gym
import numpy as np
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.utils import get_action_masks
from stable_baselines3.common.env_util import make_vec_env

from e3b_gym import E3BRewardWrapper, EncoderUpdateCallback

STEPS = 200_000
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))


class Maze(gym.Env):
    """A new spanning tree of corridors every episode; the agent sees the walls around it and its position."""

    action_space = gym.spaces.Discrete(4)
    observation_space = gym.spaces.Box(0.0, 1.0, (6,), np.float32)

    def __init__(self, side=6):
        self.side = side

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.open, stack, seen = set(), [(0, 0)], {(0, 0)}
        while stack:  # depth first
            ways = [move for move in self._neighbours(stack[-1]) if move not in seen]
            if not ways:
                stack.pop()
                continue
            new = ways[self.np_random.integers(len(ways))]
            self.open |= {(stack[-1], new), (new, stack[-1])}
            seen.add(new)
            stack.append(new)
        self.at, self.steps = (0, 0), 0
        return self._observe(), {}

    def step(self, action):
        self.at, self.steps = self._to(action), self.steps + 1
        won = self.at == (self.side - 1, self.side - 1)
        return self._observe(), float(won), won, self.steps >= 100, {"is_success": won}

    def action_masks(self):
        """True for the moves that no wall blocks; MaskablePPO asks for it."""
        return np.array([(self.at, self._to(action)) in self.open for action in range(4)])

    def _to(self, action):
        return self.at[0] + MOVES[action][0], self.at[1] + MOVES[action][1]

    def _neighbours(self, cell):
        ways = [(cell[0] + row, cell[1] + column) for row, column in MOVES]
        return [way for way in ways if min(way) >= 0 and max(way) < self.side]

    def _observe(self):
        return np.array([*self.action_masks(), *(np.array(self.at) / self.side)], np.float32)


venv = E3BRewardWrapper(make_vec_env(Maze, n_envs=16, seed=0), seed=0)
model = MaskablePPO("MlpPolicy", venv, n_steps=128, batch_size=512, ent_coef=0.01, seed=0, device="cpu")
model.learn(STEPS, callback=EncoderUpdateCallback())

plain = make_vec_env(Maze, n_envs=1, seed=1)  # without the bonus
obs, returns = plain.reset(), []
while len(returns) < 20:
    action, _ = model.predict(obs, action_masks=get_action_masks(plain))
    obs, _, _, infos = plain.step(action)
    returns += [infos[0]["episode"]["r"]] if "episode" in infos[0] else []
print(f"goal reached in {np.mean(returns):.2f} of 20 unseen mazes")
