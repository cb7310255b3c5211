"""AGENT=ppo and AGENT=recurrent_ppo for the commands: Stable-Baselines3's PPO, our RecurrentPPO, and E3BRewardWrapper.

The run folder, the progress and the commands are those of IMPALA. Checkpoints are SB3's zip files with the wrapper's
file beside each (`E3BCheckpointCallback`): `latest_<frames>_steps.zip`, `best_<frames>_steps.zip`. Loading a zip file
of SB3 can run code, so load runs of people you trust.
"""

from __future__ import annotations

import json
import math
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

from agents.impala.config import Config
from agents.impala.learner import DivergedError
from agents.impala.networks import Networks, networks_for
from agents.impala.rollout import Episodes
from agents.impala.training import Update
from agents.recurrent_ppo import RecurrentPPO
from e3b_gym.encoders import UnsupportedSpaceError
from e3b_gym.unroll import Tree
from e3b_gym.wrappers.engine import BonusEngine
from e3b_gym.wrappers.saving import load_engine
from e3b_gym.wrappers.sb3 import E3BCheckpointCallback, E3BRewardWrapper, EncoderUpdateCallback, make_vec_env, resume
from e3b_gym.wrappers.sb3_extractor import ENCODER_POLICY
from e3b_gym.wrappers.sb3_policy import LogitsTap, PolicyEncoder, reads_policy_features
from experiments.ppo_config import PPOConfig
from experiments.settings import RunOptions

ALGORITHMS: dict[str, type[PPO] | type[RecurrentPPO]] = {"ppo": PPO, "recurrent_ppo": RecurrentPPO}
LATEST, BEST = "latest", "best"


class NetworkExtractor(BaseFeaturesExtractor):
    """The network of a suite (`agents.impala.networks`) as the features extractor of an SB3 policy."""

    def __init__(self, observation_space: gym.Space[Any], env: str, net: str) -> None:
        trunk = networks_for(Config(env=env, net=net, engine="inline")).trunk(observation_space)  # type: ignore[arg-type]
        super().__init__(observation_space, int(trunk.dim))  # type: ignore[arg-type]
        self.trunk = trunk

    def forward(self, observations: Tree) -> Tensor:
        return self.trunk(observations)  # type: ignore[no-any-return]


def sb3_networks(config: PPOConfig) -> Networks:
    """The networks of IMPALA for the same environment."""
    return networks_for(Config(env=config.env, net=config.net, lstm=config.lstm, dim=config.dim, engine="inline"))


def has_own_network(config: PPOConfig) -> bool:
    """Whether the suite has networks of its own; the generic encoder serves the others."""
    return config.env.startswith(("MiniHack-", "Vizdoom"))


def wrapper_objects(config: PPOConfig) -> dict[str, Any]:
    """The options of E3BRewardWrapper that a file cannot hold."""
    return {"encoder": sb3_networks(config).phi} if has_own_network(config) else {}


def make_envs(config: PPOConfig, starts: int) -> Any:
    """The run's environments; after `starts` earlier parts of the run they are new worlds."""
    options = {**sb3_networks(config).env_options, **config.env_options}
    seed = int(np.random.SeedSequence([config.seed, 0, starts]).generate_state(1)[0])
    return make_vec_env(config.env, config.num_envs, seed=seed, **options)


def make_model(agent: str, config: PPOConfig, venv: Any) -> PPO | RecurrentPPO:
    """The algorithm, around environments with their bonus."""
    policy_kwargs: dict[str, Any] = {**ENCODER_POLICY, "net_arch": [config.hidden], "activation_fn": nn.ReLU}
    if has_own_network(config):
        policy_kwargs |= {
            "features_extractor_class": NetworkExtractor,
            "features_extractor_kwargs": {"env": config.env, "net": config.net},
        }
    recurrent = agent == "recurrent_ppo"
    if recurrent:
        networks = sb3_networks(config)
        policy_kwargs |= {"lstm_hidden_size": networks.lstm, "n_lstm_layers": networks.lstm_layers}
        policy_kwargs |= {"shared_lstm": True, "enable_critic_lstm": False}  # one LSTM, as in IMPALA
    kind = "MultiInput" if isinstance(venv.observation_space, gym.spaces.Dict) else "Mlp"
    return ALGORITHMS[agent](
        f"{kind}{'Lstm' if recurrent else ''}Policy",
        venv,
        n_steps=config.unroll,
        batch_size=config.batch_size,
        n_epochs=config.epochs,
        learning_rate=config.learning_rate,
        max_grad_norm=config.max_grad_norm,
        gamma=config.discount,
        gae_lambda=config.gae_lambda,
        clip_range=config.clip_range,
        ent_coef=config.entropy,
        vf_coef=config.baseline,
        policy_kwargs=policy_kwargs,
        seed=config.seed,
        device="cpu",
    )


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
        self._best = -math.inf
        self._starts = 0
        self.seconds: dict[str, float] = {}
        if resume_from is None:
            venv = make_envs(config, 0)
            try:
                self.model = make_model(agent, config, self._wrap(venv))
            except BaseException as error:
                venv.close()
                if isinstance(error, UnsupportedSpaceError | AssertionError):
                    raise ValueError(f"{agent} cannot learn in {config.env}: {error}") from error
                raise
            return
        meta = json.loads(
            newest(resume_from, LATEST).with_name(f"{newest(resume_from, LATEST).stem}_extra.json").read_text()
        )
        self._best, self._starts, self.extra = meta["best"], meta["starts"], meta["extra"]
        loaded = resume(
            resume_from,
            ALGORITHMS[agent],
            make_envs(config, self._starts),
            LATEST,
            wrapper_objects=wrapper_objects(config),
            device="cpu",
        )
        self.model = loaded[0]
        self.model.set_random_seed(config.seed + self._starts)
        self.save_into(resume_from)

    def _wrap(self, venv: Any) -> E3BRewardWrapper:
        config = self._config
        options = {**config.bonus, **wrapper_objects(config)}
        if not has_own_network(config):
            options["dim"] = config.dim
        return E3BRewardWrapper(venv, config.method, preset=config.bonus_preset, seed=config.seed, **options)

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
            batch_size=config.encoder_batch,
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
        except ValueError as error:
            for name, weight in self.model.policy.named_parameters():
                if not bool(torch.isfinite(weight).all()):
                    raise DivergedError(f"the policy's {name} has NaN or infinite values ({error})") from error
            raise

    def save(self, score: float | None, extra: dict[str, Any]) -> None:
        """A checkpoint, with `extra` plain data in it; the best one too, if this is it."""
        better = score is not None and score > self._best
        self._best = score if better else self._best  # type: ignore[assignment]
        for prefix in (LATEST, BEST) if better else (LATEST,):
            saver = self._savers[prefix]
            saver.num_timesteps = self.frames
            meta = {"best": self._best, "starts": self._starts + 1, "score": score, "extra": extra}
            (self._folder / f"{prefix}_{self.frames}_steps_extra.json").write_text(json.dumps(meta))
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


def newest(folder: Path, prefix: str) -> Path:
    """The newest checkpoint's zip file."""
    found = sorted(folder.glob(f"{prefix}_*_steps.zip"), key=lambda path: int(path.stem.split("_")[-2]))
    if not found:
        raise ValueError(
            f"there is no {prefix} checkpoint in {folder}; it is written after checkpoint_minutes, or at the end"
        )
    return found[-1]


class SB3Player:
    """Plays what a checkpoint holds, in a batch of environments; see `experiments.players.Player`."""

    def __init__(
        self,
        agent: str,
        config: PPOConfig,
        folder: Path,
        which: str,
        spaces: tuple[gym.Space[Any], gym.Space[Any]],
        greedy: bool,
        seed: int,
    ) -> None:
        self._path, self._config, self._spaces, self._greedy = newest(folder, which), config, spaces, greedy
        self._model = ALGORITHMS[agent].load(self._path, device="cpu")
        self._model.set_random_seed(seed)
        self._tap = LogitsTap(self._model)
        self._state: Any = None
        self.frames = self._model.num_timesteps

    @property
    def logits(self) -> Tensor:
        return self._tap()

    def act(self, obs: Tree, starts: NDArray[np.bool_]) -> NDArray[Any]:
        actions, self._state = self._model.predict(obs, self._state, starts, deterministic=self._greedy)
        return actions

    def bonus_engine(self) -> BonusEngine:
        objects = wrapper_objects(self._config)
        file = self._path.with_name(f"{self._path.stem}_e3b.pt")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a lifelong memory starts empty: there is one environment now
            engine = load_engine(file, *self._spaces, 1, None, objects)[1]
        if reads_policy_features(engine.bonus):
            engine.bonus.bind_policy(PolicyEncoder(self._model, []))
        engine.training = False
        return engine
