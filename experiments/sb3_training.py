"""A run of PPO or RecurrentPPO in training: the run folder, the progress and the commands are those of IMPALA."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback

from agents.impala.rollout import Episodes
from agents.impala.training import Update
from e3b_gym.errors import DivergedError, NonFiniteError
from e3b_gym.sb3 import E3BCheckpointCallback, EncoderUpdateCallback, resume
from e3b_gym.sb3.recurrent_ppo import RecurrentPPO
from experiments.ppo_config import PPOConfig
from experiments.sb3_agents import (
    ALGORITHMS,
    BEST,
    LATEST,
    add_bonus,
    checkpoints,
    make_envs,
    make_model,
    wrapper_objects,
)
from experiments.settings import RunOptions


class SB3Trainee:
    """A run of PPO or RecurrentPPO in progress.

    Args:
        agent: a key of ALGORITHMS.
        config: the run.
        run: its options.
        resume_from: the folder of checkpoints to go on from; None for a new run.
    """

    def __init__(self, agent: str, config: PPOConfig, run: RunOptions, resume_from: Path | None = None) -> None:
        torch.set_num_threads(config.threads)
        self._config, self._keep = config, run.keep
        self.extra: dict[str, Any] = {}
        self._best: float | None = None
        self._starts = 0
        self.seconds: dict[str, float] = {}
        saved = checkpoints(resume_from, LATEST) if resume_from is not None else []
        self.model = self._loaded(agent, saved[-1]) if saved else self._new(agent)
        if resume_from is not None:
            self.save_into(resume_from)

    def _new(self, agent: str) -> PPO | RecurrentPPO:
        venv = make_envs(self._config, 0)
        try:
            return make_model(agent, self._config, add_bonus(self._config, venv))
        except AssertionError as error:  # SB3's way to refuse a space
            venv.close()
            raise ValueError(f"{agent} cannot learn in {self._config.env}: {error}") from error
        except BaseException:
            venv.close()
            raise

    def _loaded(self, agent: str, path: Path) -> PPO | RecurrentPPO:
        saved = json.loads(extra_file(path).read_text())
        self._best, self._starts, self.extra = saved["best"], saved["starts"], saved["extra"]
        venv, objects = make_envs(self._config, self._starts), wrapper_objects(self._config)
        model, _ = resume(path.parent, ALGORITHMS[agent], venv, LATEST, wrapper_objects=objects, device="cpu")
        model.set_random_seed(self._config.seed + self._starts)  # another part of the run, other draws
        return model

    def save_into(self, folder: Path) -> None:
        """Checkpoints go there."""
        self._folder = folder
        self._savers = {}
        for prefix, keep in ((LATEST, self._keep), (BEST, 1)):
            self._savers[prefix] = E3BCheckpointCallback(sys.maxsize, folder, prefix, keep=keep)
            self._savers[prefix].init_callback(self.model)

    @property
    def frames(self) -> int:
        return self.model.num_timesteps

    def train(self, observe: Callable[[Update], None], stop: Callable[[], bool]) -> None:
        """Learns until all steps are done or `stop` says so."""
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
        """A checkpoint, with `extra` plain data in it; the best one too, if this is it."""
        better = score is not None and (self._best is None or score > self._best)
        self._best = score if better else self._best
        saved = {"best": self._best, "score": score, "starts": self._starts + 1, "extra": extra}
        for prefix in (LATEST, BEST) if better else (LATEST,):
            saver = self._savers[prefix]
            saver.num_timesteps = self.frames
            # Before the model's zip, with which a checkpoint counts.
            extra_file(self._folder / f"{prefix}_{self.frames}_steps.zip").write_text(json.dumps(saved))
            saver.save()

    def close(self) -> None:
        if self.model.env is not None:
            self.model.env.close()


class _Watcher(BaseCallback):
    """Turns what SB3 does into updates, one per rollout, reported when the algorithm has learned from it."""

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
        else:  # stopped in mid-rollout: nothing was learned from its steps, so they do not count
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


def extra_file(path: Path) -> Path:
    """What we keep beside a checkpoint's zip file."""
    return path.with_name(f"{path.stem}_extra.json")
