"""The `env` argument of `IMPALA`: an id, a function that makes an environment, or a Stable-Baselines3 VecEnv."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

from agents.impala.actor import EnvMaker, make_envs
from agents.impala.config import Config
from e3b_gym.buffer import VALID, last_of_sb3
from e3b_gym.config import BonusConfig, option_types
from e3b_gym.envs import FirstSeed
from e3b_gym.options import check, closest, field_types
from e3b_gym.sb3 import find_wrapper
from e3b_gym.space_identity import space_identity

Spaces = tuple[gym.Space[Any], gym.Space[Any]]


@dataclass(frozen=True)
class Environments:
    """The source of a model's environments.

    Attributes:
        name: the id; for custom environments, what made them, in parentheses.
        make: makes a batch of them.
        vec_env: the user's VecEnv, if they came as one.
    """

    name: str
    make: EnvMaker
    vec_env: VecEnv | None = None

    @classmethod
    def of(cls, env: str | Callable[[], gym.Env[Any, Any]] | VecEnv) -> Environments:
        """Reads the `env` argument of a model."""
        if isinstance(env, str):
            if is_custom(env):
                raise ValueError(f"this model was trained in a custom environment, {env}; pass env=")
            return cls(env, make_envs)
        if isinstance(env, VecEnv):
            if find_wrapper(env) is not None:
                raise ValueError(
                    "the VecEnv has an E3BRewardWrapper, and IMPALA adds the bonus itself; pass the VecEnv inside it "
                    "and choose the bonus with bonus="
                )
            return cls(f"({type(env.unwrapped).__name__})", lambda _, __, seed: VecEnvBatch(env, seed), env)
        if isinstance(env, gym.Env) or not callable(env):
            raise ValueError(
                f"env must be an id, a function that makes an environment, or a VecEnv; got {type(env).__name__}. "
                "A model needs many environments: pass the function, such as lambda: MyEnv()"
            )
        return cls(f"({getattr(env, '__name__', type(env).__name__)})", _from_function(env))

    def check(self, n_envs: int, engine: str, learners: int) -> None:
        """Raises ValueError where a VecEnv has another number of environments, or would be needed in processes."""
        if self.vec_env is None:
            return
        if learners > 1:
            raise ValueError(
                "a VecEnv is stepped in this process, so it supports only learners=1; pass a function that makes the "
                "environment"
            )
        if engine != "inline":
            raise ValueError("a VecEnv is stepped in this process; pass engine='inline', or a function for processes")
        if n_envs != self.vec_env.num_envs:
            raise ValueError(f"n_envs is {n_envs}, but the VecEnv has {self.vec_env.num_envs} environments")

    def spaces(self, config: Config) -> Spaces:
        """Observation and action space of one environment."""
        if self.vec_env is not None:
            return self.vec_env.observation_space, self.vec_env.action_space
        envs = self.make(config, 1, config.seed)
        envs.close()
        return envs.single_observation_space, envs.single_action_space


def is_custom(name: str) -> bool:
    """Whether `name` is that of custom environments, which cannot be made from it."""
    return name.startswith("(")


def _from_function(function: Callable[[], gym.Env[Any, Any]]) -> EnvMaker:
    def make(config: Config, num_envs: int, seed: int) -> VectorEnv[Any, Any, Any]:
        return FirstSeed(SyncVectorEnv([function] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP), seed)

    return make


def choose_bonus(bonus: str | BonusConfig, options: Mapping[str, Any], preset: str | None) -> BonusConfig:
    """The bonus of a model, from its arguments; what the model would not use is an error."""
    if not isinstance(bonus, (str, BonusConfig)):
        raise ValueError(
            f"bonus must be a method's name or a BonusConfig; got {type(bonus).__name__}. Add your own bonus to "
            "e3b_gym.METHODS and pass its name (docs/extending.md)"
        )
    if isinstance(bonus, BonusConfig):
        if options or preset is not None:
            raise ValueError("bonus_options and bonus_preset have no effect with a BonusConfig; set the options in it")
        return bonus
    for name in (name for name in ("dim", "seed") if name in options):
        raise ValueError(f"bonus_options[{name!r}] has no effect: the model's {name} is used; pass {name}= to IMPALA")
    if "encoder" in options:
        raise ValueError("bonus_options['encoder'] has no effect: the encoder is that of the suite, or the generic one")
    return BonusConfig.of(bonus, preset or "default", **options)


def config_for(
    environments: Environments,
    env_options: Mapping[str, Any],
    n_envs: int | None,
    options: Mapping[str, Any],
    inherited: Collection[str] = (),
) -> Config:
    """The config of a model.

    Args:
        options: further fields of it.
        inherited: those that come from another config, so that they may have no effect.
    """
    given = [name for name, value in options.items() if value is not None and name not in inherited]
    options = _checked(options if n_envs is None else {**options, "n_envs": n_envs})
    venv = environments.vec_env
    if venv is not None:
        options = {"engine": "inline", "n_envs": venv.num_envs, **options}
        environments.check(options["n_envs"], options["engine"], options.get("learners", 1))
    if env_options and is_custom(environments.name):
        raise ValueError("env_options apply only to environments by id; pass them to your environment's constructor")
    fields = {"env": environments.name, "env_options": dict(env_options), **options}
    if "batch_size" not in fields:
        steps, envs = fields.get("n_steps", Config.n_steps), fields.get("n_envs", Config.n_envs)
        learners = fields.get("learners", 1)
        fitting = [count for count in range(learners, min(envs, 8) + 1, learners) if envs % count == 0]
        fields["batch_size"] = steps * max(fitting, default=envs)
    config = Config(**fields)
    reasons = {"steps": "learn(total_timesteps) sets it", **config.without_effect()}
    for name in (name for name in given if name in reasons):
        raise ValueError(f"{name} has no effect: {reasons[name]}; remove it")
    return config


def _checked(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, which must be fields of `Config` with values of their types."""
    types, bonus = field_types(Config), options["bonus"].method
    for name in (name for name in options if name not in types):
        if name in option_types(bonus):
            raise TypeError(f"{name} is an option of the bonus; pass bonus_options={{{name!r}: {options[name]!r}}}")
        raise TypeError(f"IMPALA has no option {name!r}; {closest(name, types)}")
    return {name: check(name, value, types[name]) for name, value in options.items()}


def require_same_spaces(ours: Spaces, theirs: Spaces) -> None:
    """Raises ValueError where observation or action spaces differ."""
    for name, one, other in zip(("observation", "action"), ours, theirs, strict=True):
        if space_identity(one) != space_identity(other):
            raise ValueError(f"the {name} space of the model is {one}, that of env is {other}; they must be the same")


class VecEnvBatch(VectorEnv[Any, Any, Any]):
    """A Stable-Baselines3 VecEnv as a Gymnasium VectorEnv. The VecEnv remains the user's: `close` leaves it open.

    Args:
        venv: the VecEnv.
        seed: for the first reset.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(self, venv: VecEnv, seed: int) -> None:
        self._venv = venv
        self._seed: int | None = seed
        self.num_envs = venv.num_envs
        self.single_observation_space, self.single_action_space = venv.observation_space, venv.action_space
        self.observation_space = batch_space(venv.observation_space, self.num_envs)
        self.action_space = batch_space(venv.action_space, self.num_envs)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        if self._seed is not None:
            self._venv.seed(self._seed)
        self._seed = None
        return self._venv.reset(), {}

    def step(self, actions: NDArray[Any]) -> tuple[Any, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        obs, reward, done, infos = self._venv.step(actions)
        done = np.asarray(done, np.bool_)
        limited = np.array([bool(info.get("TimeLimit.truncated", False)) for info in infos])
        return obs, reward, done & ~limited, done & limited, self._final(done, infos) if done.any() else {}

    def _final(self, done: NDArray[np.bool_], infos: list[dict[str, Any]]) -> dict[str, Any]:
        """The final observations and infos of the ended episodes, under Gymnasium's names."""
        observations = np.full(self.num_envs, None, dtype=object)
        valid, known, success = np.zeros((3, self.num_envs), np.bool_)
        returns = np.full(self.num_envs, np.nan, np.float32)
        for i in np.flatnonzero(done):
            info = infos[i]
            observations[i] = last_of_sb3(info)
            valid[i] = observations[i] is not None
            known[i], success[i] = "is_success" in info, bool(info.get("is_success", False))
            if "episode" in info:  # a Monitor below has the return without any scaling
                returns[i] = info["episode"]["r"]
        final = {VALID: valid, "episode_return": returns}
        if known.any():
            final |= {"is_success": success, "_is_success": known}
        return {"final_obs": observations, "final_info": final}

    def close(self, **kwargs: Any) -> None:
        """Leaves the VecEnv open."""


class ActorEnvs(VecEnv):
    """Placeholder for environments owned by a model's actors: their number and spaces, for callbacks that ask."""

    def __init__(self, num_envs: int, spaces: Spaces) -> None:
        super().__init__(num_envs, *spaces)

    def reset(self) -> VecEnvObs:
        raise RuntimeError(_ELSEWHERE)

    def step_async(self, actions: NDArray[Any]) -> None:
        raise RuntimeError(_ELSEWHERE)

    def step_wait(self) -> VecEnvStepReturn:
        raise RuntimeError(_ELSEWHERE)

    def close(self) -> None:
        """There is nothing to close."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        if attr_name == "render_mode":
            return [None] * self.num_envs
        raise AttributeError(f"{attr_name}: {_ELSEWHERE}")

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise RuntimeError(_ELSEWHERE)

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        raise RuntimeError(_ELSEWHERE)

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


_ELSEWHERE = "the model's environments live in its actors; make others with model.make_env(n_envs)"
