"""Many NetHack games in one process, which write directly into one batch.

Each game owns one row of preallocated [N, ...] arrays, so a step copies nothing per environment; crops are computed for
the whole batch at once. Autoreset is Gymnasium's SAME_STEP: where an episode ends, the returned observation is the
first of the next episode, `infos["final_obs"][i]` is the terminal observation, and `infos["final_info"]` has its info.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from e3b_gym.envs.minihack.crop import crop_into
from e3b_gym.envs.minihack.env import RENDER_MODES, Options, find_task
from e3b_gym.envs.minihack.game import Game
from e3b_gym.envs.minihack.tasks import Task, with_layout
from e3b_gym.envs.seeds import seeds_for
from e3b_gym.options import Count, check

Batch = dict[str, NDArray[Any]]


class MiniHackVectorEnv(gymnasium.vector.VectorEnv[Batch, NDArray[Any], NDArray[Any]]):
    """N copies of one MiniHack task, stepped one after the other in this process.

    Environment i plays the episodes that a single `MiniHackEnv` plays after `reset(seed=seed + i)`.

    Args:
        task: An id of `TASKS`, or your own `Task`.
        num_envs: How many games.
        copy: True returns observations that belong to the caller. False returns the batch arrays themselves,
            which the next step overwrites: for learners that copy them into their own storage at once. Final
            observations are always copies.
        **options: The fields of `Options`.
    """

    metadata: ClassVar[dict[str, Any]] = {  # type: ignore[misc]
        "render_modes": list(RENDER_MODES),
        "render_fps": 10,
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }

    def __init__(self, task: str | Task, num_envs: int, copy: bool = True, **options: Any) -> None:
        self._games: list[Game] = []  # first, so that `close` works after a refused argument
        num_envs = check("num_envs", num_envs, Count)
        self.num_envs = num_envs
        self.copy: bool = check("copy", copy, bool)
        self.options = Options(**options)
        self.task = with_layout(find_task(task), self.options.layout)
        self.render_mode = self.options.render_mode
        self.single_observation_space = self.options.observation_space()
        self.single_action_space = spaces.Discrete(len(self.task.actions))
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._buffers = self.options.new_buffers(num_envs)
        self._crops = np.zeros((num_envs, *self.options.crop_shape), np.int16)
        self._observations: Batch = {key: self._buffers[key] for key in self.options.observation_keys}
        if self.options.crop_shape:
            self._observations["glyphs_crop"] = self._crops
        self._games = [self.options.new_game(self.task, self._buffers, i) for i in range(num_envs)]
        self._generators = [seeding.np_random()[0] for _ in range(num_envs)]
        self._started = False

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Batch, dict[str, Any]]:
        """Starts all games.

        An int seeds game i with seed + i; a list gives each its own (None: continue). `options` are not used.
        """
        self._check_open()
        for i, game_seed in enumerate(seeds_for(seed, self.num_envs)):
            if game_seed is not None:
                self._generators[i] = seeding.np_random(game_seed)[0]
                self._games[i].forget_levels()
            self._games[i].reset(self._generators[i])
        self._started = True
        self._cut_crops(slice(None))
        return self._returned(), {}

    def step(
        self, actions: NDArray[Any]
    ) -> tuple[Batch, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Plays one action in each game and starts the next episode where one ended."""
        self._check_open()
        if not self._started:
            raise ResetNeeded("the games have not begun; call reset() before step()")
        rewards = np.zeros(self.num_envs)
        terminated, truncated = np.zeros((2, self.num_envs), np.bool_)
        finals: list[tuple[int, str]] = []
        for i, (game, action) in enumerate(zip(self._games, self._checked(actions), strict=True)):
            rewards[i], end = game.step(action)
            if end is not None:
                finals.append((i, end))
                terminated[i], truncated[i] = end != "timeout", end == "timeout"
        infos = self._finish_episodes(finals)
        self._cut_crops(slice(None))
        return self._returned(), rewards, terminated, truncated, infos

    def render(self) -> tuple[Any, ...] | None:
        """One picture per game; None without a render mode."""
        if not self._started:
            raise ResetNeeded("nothing to render yet; call reset() first")
        if self.render_mode is None:
            return None
        return tuple(self.options.draw(self._buffers, i) for i in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        """Ends all games and deletes their files."""
        for game in self._games:
            game.close()

    def _finish_episodes(self, finals: list[tuple[int, str]]) -> dict[str, Any]:
        """Copies the terminal observations and starts the next episodes.

        Returns `infos`, laid out as Gymnasium's vector envs do; empty where no episode ended.
        """
        if not finals:
            return {}
        final_obs = np.full(self.num_envs, None, dtype=object)
        ended, success, valid = np.zeros((3, self.num_envs), np.bool_)
        for i, end in finals:
            ended[i], success[i], valid[i] = True, end == "success", end != "death"
            self._cut_crops(slice(i, i + 1))
            final_obs[i] = {key: array[i].copy() for key, array in self._observations.items()}
            self._games[i].reset(self._generators[i])
        final_info = {
            "is_success": success,
            "_is_success": ended.copy(),
            "final_observation_valid": valid,
            "_final_observation_valid": ended.copy(),
        }
        return {
            "final_obs": final_obs,
            "_final_obs": ended,
            "final_info": final_info,
            "_final_info": ended.copy(),
        }

    def _cut_crops(self, rows: slice) -> None:
        if self.options.crop_shape:
            blstats = self._buffers["blstats"][rows]
            glyphs = self._buffers["glyphs"][rows]
            crop_into(glyphs, blstats[:, 0], blstats[:, 1], self.options.crop_pad, self._crops[rows])

    def _returned(self) -> Batch:
        if self.copy:
            return {key: array.copy() for key, array in self._observations.items()}
        return dict(self._observations)

    def _checked(self, actions: NDArray[Any]) -> list[int]:
        actions = np.asarray(actions)
        if actions.shape != (self.num_envs,):
            raise ValueError(
                f"actions have shape {actions.shape}; {self.num_envs} environments need ({self.num_envs},)"
            )
        if actions.min() < 0 or actions.max() >= len(self.task.actions):
            raise ValueError(f"actions {actions} leave the range 0..{len(self.task.actions) - 1} of {self.task.id}")
        return [int(action) for action in actions.tolist()]

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedEnvironmentError(f"this {self.task.id} vector environment is closed; make a new one")
