"""A run of PPO or RecurrentPPO in training: the run folder, the progress and the commands are those of IMPALA."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback

from agents.checkpoint import Checkpoint, SavingTrainee, loading
from agents.ppo.config import PPOConfig
from agents.ppo.model import add_bonus, algorithm_of, bind_policy, make_envs, make_model
from agents.protocols import Episodes, Update
from e3b_gym.errors import DivergedError, NonFiniteError
from e3b_gym.optimizers import check_optimizer
from e3b_gym.sb3 import EncoderUpdateCallback


class SB3Trainee(SavingTrainee):
    """A run of PPO or RecurrentPPO in progress.

    Args:
        config: the run.
        keep: how many checkpoints stay.
        resume: the folder of checkpoints to resume from; None for a new run.
    """

    def __init__(self, config: PPOConfig, keep: int, resume: Path | None = None) -> None:
        torch.set_num_threads(config.threads)
        super().__init__(algorithm_of(config).__name__, keep)
        self._config = config
        self.seconds: dict[str, float] = {}
        checkpoint = self.load_from(resume)
        self._starts = 0
        if checkpoint is not None:
            with loading(checkpoint):
                self._starts = int(checkpoint.state["starts"])
        venv = make_envs(config, self._starts)
        try:
            self._bonus = add_bonus(config, venv)
            self.model = make_model(config, self._bonus)
            bind_policy(self._bonus.explorer, self.model)
            if checkpoint is not None:
                self._load(checkpoint)
            self._bonus.explorer.make_memory()
        except (AssertionError, NotImplementedError) as error:  # SB3's errors for an unsupported space
            venv.close()
            name = algorithm_of(config).__name__
            raise ValueError(f"{name} cannot learn in {config.env}: {error}; choose another AGENT=") from error
        except BaseException:
            venv.close()
            raise

    def _load(self, checkpoint: Checkpoint) -> None:
        with loading(checkpoint):
            state = checkpoint.state
            optimizer = self.model.policy.optimizer
            expected = optimizer.state_dict()["param_groups"]
            self.model.set_parameters(state["model"], device=self.model.device)
            check_optimizer(optimizer, expected)
            self._bonus.explorer.load_state_dict(state["bonus"])
            self._bonus.explorer.make_memory()
            self.model.num_timesteps, self.model._n_updates = checkpoint.frames, int(state["updates"])
            self.extra = dict(state["extra"])
        # Each part of the run has other random numbers.
        self.model.set_random_seed((self._config.seed + self._starts) % 2**32)

    @property
    def frames(self) -> int:
        return self.model.num_timesteps

    def train(self, observe: Callable[[Update], None], stop: Callable[[], bool]) -> None:
        """Learns until all steps are done or `stop()` is True."""
        config = self._config
        encoder = EncoderUpdateCallback(
            learning_rate=config.encoder_learning_rate,
            epochs=config.encoder_epochs,
            batch_size=config.encoder_batch_size,
            max_grad_norm=config.encoder_max_grad_norm,
        )
        left = config.steps - self.frames
        try:
            self.model.learn(
                left,
                callback=[encoder, _Watcher(observe, stop, self.seconds)],
                log_interval=None,  # type: ignore[arg-type]  # the watcher reads the logger
                reset_num_timesteps=self.frames == 0,
            )
        except NonFiniteError as error:
            raise DivergedError(str(error)) from error
        except ValueError as error:
            for name, weight in self.model.policy.named_parameters():
                if not bool(torch.isfinite(weight).all()):
                    raise DivergedError(f"the policy's {name} has NaN or infinite values ({error})") from error
            raise

    def save(self, score: float | None, extra: dict[str, Any]) -> None:
        """A checkpoint, with `extra` plain data in it."""
        state = {
            "model": self.model.get_parameters(),
            "bonus": self._bonus.explorer.state_dict(),
            "updates": self.model._n_updates,
            "starts": self._starts + 1,
            "extra": extra,
        }
        self.save_state(state, self.frames, score)

    def close(self) -> None:
        if self.model.env is not None:
            self.model.env.close()


class _Watcher(BaseCallback):
    """Reports one update per rollout, when the algorithm has learned from it."""

    def __init__(self, observe: Callable[[Update], None], stop: Callable[[], bool], seconds: dict[str, float]) -> None:
        super().__init__()
        self._observe, self._stop, self._seconds = observe, stop, seconds
        self._rows: list[tuple[float, int, float]] = []
        self._learned = False  # whether the last rollout was finished
        self._clock = time.perf_counter()

    def _on_rollout_start(self) -> None:
        self._report()
        self._begin, self._learned = self.num_timesteps, False
        self._lap("learn")

    def _on_step(self) -> bool:
        for env in np.flatnonzero(self.locals["dones"]).tolist():
            info = self.locals["infos"][env]
            success = info.get("is_success")
            row = (
                float(info["episode"]["r"]),
                int(info["episode"]["l"]),
                math.nan if success is None else float(success),
            )
            self._rows.append(row)
        return not self._stop()

    def _on_rollout_end(self) -> None:
        self._learned = True
        self._lap("rollout")

    def _on_training_end(self) -> None:
        if self._learned:
            self._report()
        else:  # stopped during a rollout: nothing was learned from its steps, so they do not count
            self.model.num_timesteps = self._begin

    def _report(self) -> None:
        if not self._learned:
            return
        stats = {}
        for name, value in self.logger.name_to_value.items():
            group, _, short = name.partition("/")
            if group not in ("train", "e3b") or not isinstance(value, (int, float, np.number)):
                continue
            if not math.isfinite(value):
                if "loss" in short:
                    raise DivergedError(
                        f"the {short} of SB3's {group} is NaN or infinite, and so may be the weights now"
                    )
                continue  # such as the explained variance of constant returns
            stats["bonus" if short == "bonus_mean" else short] = float(value)
        self.logger.dump(self.num_timesteps)  # clears them
        columns = np.array(self._rows, dtype=np.float64).reshape(-1, 3).T
        episodes = Episodes(columns[0].astype(np.float32), columns[1].astype(np.int64), columns[2].astype(np.float32))
        self._rows.clear()
        self._observe(Update(self.num_timesteps, [stats], episodes))

    def _lap(self, stage: str) -> None:
        now = time.perf_counter()
        self._seconds[stage] = self._seconds.get(stage, 0.0) + now - self._clock
        self._clock = now
