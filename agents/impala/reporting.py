"""Reports rollouts to Stable-Baselines3's callbacks and logger."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback, CallbackList, ConvertCallback, ProgressBarCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.type_aliases import MaybeCallback
from stable_baselines3.common.utils import configure_logger

from agents.protocols import Update


class Logged(Protocol):
    """The attributes of a model that the reporter needs."""

    verbose: int
    tensorboard_log: str | None
    num_timesteps: int


def as_callback(callback: MaybeCallback, progress_bar: bool) -> BaseCallback:
    """One callback for what `learn` takes."""
    if isinstance(callback, list):
        callback = CallbackList(callback)
    if not isinstance(callback, BaseCallback):
        callback = ConvertCallback(callback)
    return CallbackList([callback, ProgressBarCallback()]) if progress_bar else callback


class Reporter:
    """Keeps the last episodes and statistics, and logs them under SB3's names.

    Args:
        window: episodes behind the means.
    """

    def __init__(self, window: int) -> None:
        self.ep_info_buffer: deque[dict[str, float]] = deque(maxlen=window)
        self.ep_success_buffer: deque[float] = deque(maxlen=window)
        self._stats: list[dict[str, float]] = []
        self._logger: Logger | None = None
        self._custom = False

    @property
    def logger(self) -> Logger:
        if self._logger is None:
            raise AttributeError("the model has no logger before `learn`; call set_logger, or learn first")
        return self._logger

    def set_logger(self, logger: Logger) -> None:
        self._logger, self._custom = logger, True

    def start(self, model: Logged, name: str, reset: bool) -> None:
        """Called when `learn` starts."""
        if not self._custom:
            self._logger = configure_logger(model.verbose, model.tensorboard_log, name, reset)
        if reset:
            self.ep_info_buffer.clear()
            self.ep_success_buffer.clear()
        self._stats.clear()
        self._start, self._first = time.time(), model.num_timesteps

    def add(self, update: Update) -> None:
        """Adds the results of a rollout."""
        self._stats += update.stats
        episodes = update.episodes
        for episode in zip(episodes.returns.tolist(), episodes.lengths.tolist(), strict=True):
            self.ep_info_buffer.append({"r": episode[0], "l": episode[1], "t": time.time() - self._start})
        self.ep_success_buffer.extend(episodes.successes[~np.isnan(episodes.successes)].tolist())

    def replay(self, model: Logged, update: Update, callback: BaseCallback) -> bool:
        """Calls `on_step` for each step of a rollout; False if one of them stops the training."""
        for frames, variables in self._steps(update):
            model.num_timesteps = frames
            callback.update_locals(variables)
            if not callback.on_step():
                model.num_timesteps = update.frames
                return False
        return True

    def _steps(self, update: Update) -> Iterator[tuple[int, dict[str, Any]]]:
        """The step count and the local variables that SB3's callbacks read, after each step of the rollout."""
        if update.done is None or update.reward is None:
            raise ValueError("the update has no steps; it must come from agents.impala.training")
        steps, envs = update.done.shape
        first = update.frames - steps * envs
        episodes = iter(zip(*vars(update.episodes).values(), strict=True))  # in the order of `done`
        for t in range(steps):
            infos: list[dict[str, Any]] = [{} for _ in range(envs)]
            for env in np.flatnonzero(update.done[t]):
                total, length, success = next(episodes)
                infos[env]["episode"] = {"r": float(total), "l": int(length), "t": time.time() - self._start}
                if not np.isnan(success):
                    infos[env]["is_success"] = bool(success)
            variables = {"dones": update.done[t], "rewards": update.reward[t], "infos": infos}
            yield first + (t + 1) * envs, variables

    def dump(self, frames: int, iterations: int) -> None:
        """Writes one row of logs."""
        log = self.logger
        if self.ep_info_buffer:
            log.record("rollout/ep_rew_mean", float(np.mean([episode["r"] for episode in self.ep_info_buffer])))
            log.record("rollout/ep_len_mean", float(np.mean([episode["l"] for episode in self.ep_info_buffer])))
        if self.ep_success_buffer:
            log.record("rollout/success_rate", float(np.mean(self.ep_success_buffer)))
        for name in dict.fromkeys(name for stats in self._stats for name in stats):
            log.record(f"train/{name}", float(np.mean([stats[name] for stats in self._stats if name in stats])))
        self._stats.clear()
        seconds = max(time.time() - self._start, 1e-9)
        log.record("time/iterations", iterations, exclude="tensorboard")
        log.record("time/fps", int((frames - self._first) / seconds))
        log.record("time/time_elapsed", int(seconds), exclude="tensorboard")
        log.record("time/total_timesteps", frames, exclude="tensorboard")
        log.dump(step=frames)
