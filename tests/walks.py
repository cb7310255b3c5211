"""A small deterministic environment for the wrapper tests, and Algorithm 1 written like the paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

PLACES = 7
FEATURES = np.random.default_rng(3).normal(size=(PLACES, 3)).astype(np.float32)
STAY = 1


class Walk(gym.Env[Any, Any]):
    """A ring of seven places; actions 0, 1, 2 go back, stay, go forward. An episode lasts `length` steps.

    Args:
        length: steps of an episode.
        observations: "box" (the place's features), "dict", "tuple", "image" (84 x 84), or "discrete".
        actions: "discrete" or "box" (the sign of its first number is the move).
        wiped: the last observation is not to be used, as after a death in NetHack.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012 (Gymnasium's own attribute)

    def __init__(
        self,
        length: int = 5,
        observations: str = "box",
        actions: str = "discrete",
        wiped: bool = False,
        render_mode: str | None = "rgb_array",
    ) -> None:
        self.length, self.observations, self.wiped = length, observations, wiped
        self.render_mode = render_mode
        box = spaces.Box(-10.0, 10.0, (3,), np.float32)
        self.observation_space = {
            "box": box,
            "dict": spaces.Dict({"features": box, "place": spaces.Discrete(PLACES)}),
            "tuple": spaces.Tuple((box, spaces.Discrete(PLACES))),
            "image": spaces.Box(0, 255, (36, 36, 3), np.uint8),
            "discrete": spaces.Discrete(PLACES),
        }[observations]
        self.action_space = {
            "discrete": spaces.Discrete(3),
            "box": spaces.Box(-1.0, 1.0, (2,), np.float32),
            "multidiscrete": spaces.MultiDiscrete([3, 2]),
            "multibinary": spaces.MultiBinary(2),
        }[actions]
        self.place = self.time = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = self.time = 0
        return self._observation(), {"fresh": True}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        first = np.asarray(action, dtype=np.float64).ravel()[0]
        move = round(first) - STAY if not isinstance(self.action_space, spaces.Box) else round(np.sign(first))
        self.place = (self.place + move) % PLACES
        self.time += 1
        info = {"final_observation_valid": not self.wiped}
        return self._observation(), 0.5 * (self.place == 3), self.time >= self.length, False, info

    def _observation(self) -> Any:
        features = FEATURES[self.place].copy()
        if self.observations == "dict":
            return {"features": features, "place": self.place}
        if self.observations == "tuple":
            return features, self.place
        if self.observations == "image":
            picture = np.zeros((36, 36, 3), np.uint8)
            picture[5 * self.place : 5 * self.place + 5] = 255
            return picture
        return self.place if self.observations == "discrete" else features

    def render(self) -> Any:
        return np.full((4, 4, 3), self.place, np.uint8)

    def action_masks(self) -> Any:
        return np.array([True, True, self.place != 5])

    def move_to(self, place: int) -> int:
        self.place = place
        return place


def walks(count: int, shortest: int = 4, **options: Any) -> list[Callable[[], Walk]]:
    """Makers of environments with episodes of different lengths."""
    return [lambda length=shortest + i: Walk(length, **options) for i in range(count)]


def action_of(env: int, step: int) -> int:
    """What environment `env` does in its `step`-th real step."""
    return (env + 2 * step * step + step // 3) % 3


def algorithm_1(episodes: Sequence[Sequence[Any]], ridge: float = 0.1) -> list[float]:
    """b(s_1), b(s_2), ... of episodes s_0, s_1, ...: solved again at each step, as the paper writes it."""
    bonuses = []
    for episode in episodes:
        covariance = ridge * np.eye(len(episode[0]))
        for features in np.asarray(episode[1:], dtype=np.float64):
            bonuses.append(float(features @ np.linalg.solve(covariance, features)))
            covariance += np.outer(features, features)
    return bonuses


def played_by_hand(env: int, steps: int, shortest: int = 4) -> tuple[list[float], list[float]]:
    """The bonuses of Algorithm 1 on raw features, and the rewards, for environment `env` of `walks`."""
    walk = Walk(shortest + env)
    episodes, rewards = [[walk.reset()[0]]], []
    for step in range(steps):
        obs, reward, done, _, _ = walk.step(action_of(env, step))
        episodes[-1].append(obs)
        rewards.append(reward)
        if done:
            episodes.append([walk.reset()[0]])
    return algorithm_1(episodes), rewards
