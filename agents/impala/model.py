"""IMPALA with the interface of Stable-Baselines3's algorithms.

`learn` is a loop over `updates`, which is the loop of `agents.impala.training`. SB3's callbacks and logger are called
as by SB3: `on_step` once for each step of the environments, here when the learner has learned from their rollout.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Self

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.type_aliases import MaybeCallback
from stable_baselines3.common.vec_env import VecEnv, VecMonitor, VecNormalize, unwrap_vec_normalize

from agents.impala.config import Config
from agents.impala.environments import ActorEnvs, Environments, choose_bonus, config_for, require_same_spaces
from agents.impala.learner import Learner
from agents.impala.policy import Policy, act, as_batch
from agents.impala.reporting import Reporter, as_callback
from agents.impala.saving import read_model, read_others, warn_of_lost_memory, write_model
from agents.impala.training import Training
from agents.protocols import Update
from e3b_gym.config import BonusConfig
from e3b_gym.optimizers import load_optimizer
from e3b_gym.sb3 import GymnasiumVecEnv
from e3b_gym.unroll import Tree, tree_leaves

Env = str | Callable[[], gym.Env[Any, Any]] | VecEnv
PredictState = tuple[NDArray[np.float32], ...]


class IMPALA:
    """IMPALA with an exploration bonus and the interface of Stable-Baselines3.

    Examples:
        >>> from agents import IMPALA
        >>> from stable_baselines3.common.evaluation import evaluate_policy
        >>> model = IMPALA("Rooms-K3-v0", bonus="e3b", engine="inline", n_envs=8, n_steps=16, seed=0)
        >>> model = model.learn(1_024)
        >>> reward, deviation = evaluate_policy(model, model.make_env(4), n_eval_episodes=4)
        >>> model.num_timesteps
        1024

    Args:
        env: an id; a function that makes an environment; or a VecEnv, stepped in this process (engine "inline").
        bonus: a method of `e3b_gym.METHODS`, "none" for no bonus; or a `BonusConfig`.
        bonus_options: with a method, its options and those of the mixing (beta, ridge, ...), over `bonus_preset`.
        bonus_preset: with a method, "default" (also if None), "paper" or "authors".
        env_options: options of the environment, for an id.
        n_envs: environments per actor; those of the VecEnv, if it is one.
        seed: seed of weights, actions and environments.
        tensorboard_log: folder for TensorBoard; None for no logs.
        verbose: 1 prints the logs.
        stats_window_size: episodes behind `rollout/ep_rew_mean`, `ep_len_mean` and `success_rate`.
        device: where policy, bonus and optimisers are; "auto": a GPU where there is one. Actors act on the CPU.
        **options: any other field of `agents.impala.config.Config`, such as learning_rate, n_steps, ent_coef.
            Without `batch_size`, up to 8 environments are learned from at a time. `learners=K` shares the work between
            K processes (docs/scaling.md).

    Attributes:
        config: every number in effect.
        learner: policy, bonus and optimisers.
    """

    def __init__(
        self,
        env: Env,
        *,
        bonus: str | BonusConfig = "e3b",
        bonus_options: Mapping[str, Any] | None = None,
        bonus_preset: str | None = None,
        env_options: Mapping[str, Any] | None = None,
        n_envs: int | None = None,
        seed: int = 0,
        tensorboard_log: str | None = None,
        verbose: int = 0,
        stats_window_size: int = 100,
        device: str | torch.device = "auto",
        _inherited: Collection[str] = (),
        **options: Any,
    ) -> None:
        self._environments = Environments.of(env)
        bonus = choose_bonus(bonus, bonus_options or {}, bonus_preset)
        options |= {"bonus": bonus, "seed": seed, "device": str(device)}
        self.config = config_for(self._environments, env_options or {}, n_envs, options, _inherited)
        self.observation_space, self.action_space = self._environments.spaces(self.config)
        self.learner = Learner(self.config.part(0), self.observation_space, self.action_space)
        self.num_timesteps = 0
        self.device = self.learner.device
        self.seed, self.verbose, self.tensorboard_log = seed, verbose, tensorboard_log
        self._others: dict[str, Any] = {"engine": None}  # see `Training.state_of_others`
        self._training: Training | None = None
        self._seconds: dict[str, float] = {}
        self._generator = torch.Generator().manual_seed(seed)
        self._reporter = Reporter(stats_window_size)

    @classmethod
    def from_config(cls, config: Config, env: Env | None = None, **options: Any) -> Self:
        """The model of a run's config; `options` are arguments of the constructor that a config does not have."""
        fields = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
        if options.get("n_envs", config.n_envs) != config.n_envs:
            del fields["batch_size"]  # it fits the other number only
        inherited = fields.keys() - options.keys()
        fields |= options
        name = fields.pop("env")
        if env is not None and not isinstance(env, str):
            fields["env_options"] = {}
        return cls(name if env is None else env, _inherited=inherited, **fields)

    @property
    def policy(self) -> Policy:
        return self.learner.policy

    @property
    def n_envs(self) -> int:
        return self.config.n_envs

    @property
    def logger(self) -> Logger:
        return self._reporter.logger

    def set_logger(self, logger: Logger) -> None:
        """Logs go to this logger, whatever `tensorboard_log` and `verbose` say."""
        self._reporter.set_logger(logger)

    def get_env(self) -> VecEnv:
        """The user's VecEnv; if the environments are in actors, one with their number and spaces that cannot step."""
        if self._environments.vec_env is not None:
            return self._environments.vec_env
        return VecMonitor(ActorEnvs(self.config.n_envs, (self.observation_space, self.action_space)))

    def get_vec_normalize_env(self) -> VecNormalize | None:
        return None if self._environments.vec_env is None else unwrap_vec_normalize(self._environments.vec_env)

    def set_env(self, env: Env) -> None:
        """The next `learn` trains in `env`, which must have the same spaces."""
        environments = Environments.of(env)
        environments.check(self.config.n_envs, self.config.engine, self.config.learners)
        env_options = self.config.env_options if environments.name == self.config.env else {}
        config = dataclasses.replace(self.config, env=environments.name, env_options=env_options)
        require_same_spaces((self.observation_space, self.action_space), environments.spaces(config))
        self._environments, self.config = environments, config

    def make_env(self, n_envs: int = 1, seed: int = 0) -> VecEnv:
        """Environments like those of training, with a VecMonitor, for `evaluate_policy` and `EvalCallback`."""
        if self._environments.vec_env is not None:
            raise ValueError("the model trains in a VecEnv that you made; create a second one for evaluation")
        return VecMonitor(GymnasiumVecEnv(self._environments.make(self.config, n_envs, seed)))

    def start(self, total_timesteps: int) -> Training:
        """Starts the actors, for training until `num_timesteps` is `total_timesteps`."""
        self.config = dataclasses.replace(self.config, steps=total_timesteps)
        self.learner.config = self.config.part(0)
        self._training = Training(self.config, self._others, learner=self.learner, make=self._environments.make)
        return self._training

    def updates(self, total_timesteps: int) -> Iterator[Update]:
        """`learn` without SB3: trains up to `total_timesteps` and yields the results of each rollout."""
        training = self._training or self.start(total_timesteps)
        try:
            for update in training:
                self.num_timesteps = update.frames
                yield update
        finally:
            self.close()

    def close(self) -> None:
        """Ends the actors, if there are any."""
        if self._training is not None:
            training, self._training = self._training, None
            try:
                self._seconds, self._others = training.seconds, training.state_of_others()
            finally:
                training.close()

    @property
    def seconds(self) -> dict[str, float]:
        """Spent so far in the current or last training, by stage."""
        return self._seconds if self._training is None else self._training.seconds

    def learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int | None = 1,
        tb_log_name: str = "IMPALA",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Trains for `total_timesteps` more environment steps, rounded up to whole rollouts.

        Args:
            callback: a callback of Stable-Baselines3, a list of callbacks, or a function.
            log_interval: rollouts between two logs; None for none.
            tb_log_name: name of the run in TensorBoard.
            reset_num_timesteps: count, and run schedules, from 0; else from `num_timesteps`.
            progress_bar: show one (needs tqdm and rich).
        """
        if reset_num_timesteps:
            self.num_timesteps = self.learner.frames = 0
        total = self.num_timesteps + total_timesteps
        self._reporter.start(self, tb_log_name, reset_num_timesteps)
        watcher = as_callback(callback, progress_bar)
        watcher.init_callback(self)  # type: ignore[arg-type]  # this class has all that it uses
        watcher.on_training_start({"self": self, "total_timesteps": total, "tb_log_name": tb_log_name}, globals())
        with closing(self.updates(total)) as updates:  # type: ignore[type-var]
            watcher.on_rollout_start()
            for count, update in enumerate(updates, 1):
                self._reporter.add(update)
                going = self._reporter.replay(self, update, watcher)
                watcher.on_rollout_end()
                if log_interval is not None and count % log_interval == 0:
                    self._reporter.dump(self.num_timesteps, count)
                if not going or update.frames >= total:
                    break
                watcher.on_rollout_start()
        watcher.on_training_end()
        return self

    def predict(
        self,
        observation: Tree,
        state: PredictState | None = None,
        episode_start: NDArray[np.bool_] | None = None,
        deterministic: bool = False,
    ) -> tuple[NDArray[np.int64], PredictState]:
        """Actions for observations, and the LSTM's state for the next call.

        Args:
            observation: of one environment, or a batch [N, ...].
            state: what the last call returned; None at the start.
            episode_start: [N], which observations open an episode and so clear their state.
            deterministic: the most probable actions; else they are drawn from the policy.
        """
        obs, batched = as_batch(observation, self.observation_space)
        count = len(tree_leaves(obs)[0])
        before = self.policy.initial_state(count) if state is None else tuple(map(torch.from_numpy, state))
        starts = np.zeros(count, np.bool_) if episode_start is None else np.asarray(episode_start, np.bool_)
        generator = None if deterministic else self._generator
        actions, out = act(self.policy, obs, starts.reshape(count), before, generator)  # type: ignore[arg-type]
        return actions if batched else actions[0], tuple(part.cpu().numpy() for part in out.state)

    def state_dict(self) -> dict[str, Any]:
        """All that was learned, and the seeds that the next training must not repeat."""
        others = self._others if self._training is None else self._training.state_of_others()
        return {"learner": self.learner.state_dict(), **others}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        warn_of_lost_memory(state, self.config, self.learner.explorer)
        self.learner.load_state_dict(state["learner"])
        self._others = read_others(state)
        self.num_timesteps = self.learner.frames

    def get_parameters(self) -> dict[str, dict[str, Any]]:
        """State dicts of policy, bonus and the policy's optimiser."""
        parts = {"policy": self.policy, "bonus": self.learner.explorer.bonus}
        states = {name: part.state_dict() for name, part in parts.items()}
        return states | {"policy_optimizer": self.learner.policy_optimizer.state_dict()}

    def set_parameters(self, parameters: Mapping[str, Mapping[str, Any]]) -> None:
        """Loads what `get_parameters` gave."""
        self.learner.policy.load_state_dict(parameters["policy"])
        self.learner.explorer.bonus.load_state_dict(parameters["bonus"])
        load_optimizer(self.learner.policy_optimizer, parameters["policy_optimizer"])

    def save(self, path: str | Path) -> None:
        """Writes the model: tensors and plain values. A path without an ending gets ".zip", as in SB3."""
        write_model(path, self.config, self.state_dict())

    @classmethod
    def load(cls, path: str | Path, env: Env | None = None, **options: Any) -> Self:
        """A model that `save` wrote, or an exported agent. Reading it runs no code.

        Args:
            path: as given to `save`, or the folder of an exported agent (`make agents`), whose optimisers are new.
            env: needed if the model was trained in a custom environment; default: the saved id.
            **options: arguments of the constructor that replace saved ones, such as tensorboard_log or n_envs.
        """
        saved = read_model(path)
        if isinstance(env, VecEnv):
            options = {"n_envs": env.num_envs, **options}
        model = cls.from_config(saved.config, env, **options)
        with saved.fitting(path):
            if saved.exported_frames is None:
                model.load_state_dict(saved.state)
            else:
                model.learner.load_exported(saved.state["learner"], saved.exported_frames)
                model.num_timesteps = saved.exported_frames
        return model
