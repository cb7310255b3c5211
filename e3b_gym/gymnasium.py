"""The exploration bonus for Gymnasium without Stable-Baselines3: around a VectorEnv, or a single Env.

    envs = E3BVectorReward(gymnasium.make_vec("CartPole-v1", num_envs=8))
    ...                                                   # act; rewards carry the bonus
    envs.train_encoder()                                  # after each rollout

Infos carry `intrinsic_reward` and `extrinsic_reward`, and at an episode's end `episode_intrinsic_reward` and
`episode_extrinsic_reward`. RecordEpisodeStatistics inside counts the environment's own reward, outside the sum.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper
from gymnasium.wrappers import Autoreset
from numpy.typing import NDArray

from e3b_gym.bonuses import Bonus
from e3b_gym.building import RECORD_STEPS, build_explorer, config_of
from e3b_gym.config import BonusConfig
from e3b_gym.explorer import Explorer, Paid
from e3b_gym.saving import load_engine, save_engine
from e3b_gym.unroll import Tree, tree_map

_MARK = "train_encoder"  # an attribute that only our wrappers have


class _Engined:
    """What the two wrappers share: an engine for `_spaces`, trained by hand, saved and loaded."""

    config: BonusConfig
    engine: Explorer

    @property
    def _spaces(self) -> tuple[gym.Space[Any], gym.Space[Any]]:
        raise NotImplementedError

    @property
    def bonus(self) -> Bonus:
        return self.engine.bonus

    def train_encoder(self, **settings: Any) -> dict[str, float]:
        """Trains on the steps since the last call (at most `record_steps`); returns losses and diagnostics.

        Args:
            **settings: learning_rate, epochs, batch_size, ... of `TrainerConfig`, to change from now on.
        """
        return self.engine.train(**settings)

    def save(self, path: str | Path) -> None:
        """Writes everything that was learned: encoder, optimiser, running scale, lifelong memory, settings."""
        save_engine(path, self.config, self.engine, *self._spaces)

    @classmethod
    def load(
        cls,
        path: str | Path,
        env: Any,
        bonus: Bonus | None = None,
        *,
        record_steps: int = RECORD_STEPS,
        **objects: Any,
    ) -> Self:
        """Wraps `env` with what `save` wrote. No code in the file is run. Arguments as in `E3BRewardWrapper.load`."""
        wrapper = cls(env, "none")  # type: ignore[call-arg]
        count = wrapper.engine.num_envs
        wrapper.config, wrapper.engine = load_engine(path, *wrapper._spaces, count, bonus, objects, record_steps)
        return wrapper


class E3BVectorReward(_Engined, VectorWrapper):
    """Adds an exploration bonus to the rewards of a Gymnasium VectorEnv, in either autoreset mode.

    Args:
        env: the vector environment. With SAME_STEP autoreset the last observations come from `infos["final_obs"]`;
            with NEXT_STEP they are the observations themselves, and the step that only resets is not scored.
        bonus: a method by name (`e3b_gym.METHODS`), or a bonus object.
        record_steps: how many of the latest steps `train_encoder` trains on.
        **settings: preset, beta, extrinsic, normaliser, clip, seed and the method's options, as in `E3BRewardWrapper`.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        bonus: str | Bonus = "e3b",
        *,
        record_steps: int = RECORD_STEPS,
        **settings: Any,
    ) -> None:
        if not isinstance(env, VectorEnv):
            raise ValueError(f"E3BVectorReward wraps a gymnasium.vector.VectorEnv; got {type(env).__name__}")
        refuse_second_bonus(env)
        super().__init__(env)
        self._same_step = _autoreset_mode(env) == AutoresetMode.SAME_STEP
        self.config = config_of(bonus, **settings)
        self.engine = build_explorer(self.config, bonus, *self._spaces, env.num_envs, record_steps)
        self._ended = np.zeros(env.num_envs, dtype=bool)
        self._blind_ends = False  # an episode ended without its last observation, and this was reported

    @property
    def _spaces(self) -> tuple[gym.Space[Any], gym.Space[Any]]:
        return self.env.single_observation_space, self.env.single_action_space

    def reset(self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None) -> Any:
        if options is not None and "reset_mask" in options:
            raise ValueError("E3BVectorReward follows the autoreset of its environments; reset() resets all of them")
        obs, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        self.engine.reset(obs)
        self._ended = np.zeros_like(self._ended)
        return obs, infos

    def step(self, actions: Any) -> Any:
        obs, rewards, terminated, truncated, infos = self.env.step(actions)
        done = np.logical_or(terminated, truncated)
        paid = self.engine.step(
            np.array(actions),
            obs,
            rewards,
            done,
            self._last_observations(obs, done, infos) if done.any() else {},
            restarted=None if self._same_step else self._ended,
        )
        self._ended = done
        return obs, paid.total.astype(np.float64), terminated, truncated, self._annotated(infos, paid)

    def _last_observations(self, obs: Tree, done: NDArray[np.bool_], infos: dict[str, Any]) -> dict[int, Tree]:
        """By environment, the true last observations; not those that the simulator has wiped."""
        told = infos.get("final_info", {}) if self._same_step else infos
        envs = np.flatnonzero(done & told.get("final_observation_valid", True)).tolist()
        if not self._same_step:
            return {env: tree_map(lambda leaf, env=env: leaf[env], obs) for env in envs}
        if "final_obs" in infos:
            return {env: infos["final_obs"][env] for env in envs}
        if not self._blind_ends:
            self._blind_ends = True
            warnings.warn(
                f"episodes of {type(self.env.unwrapped).__name__} end without infos['final_obs'], so their last steps "
                "get no bonus; a VectorEnv with SAME_STEP autoreset must report it",
                stacklevel=3,
            )
        return {}

    def _annotated(self, infos: dict[str, Any], paid: Paid) -> dict[str, Any]:
        everyone = np.ones(self.num_envs, dtype=bool)
        told = {**infos, "intrinsic_reward": paid.intrinsic, "extrinsic_reward": paid.extrinsic}
        told |= {"_intrinsic_reward": everyone, "_extrinsic_reward": everyone}
        if paid.episodes:
            ended = list(paid.episodes)
            sums, mask = np.zeros((2, self.num_envs)), ~everyone
            sums[:, ended], mask[ended] = np.transpose(list(paid.episodes.values())), True
            told |= {"episode_intrinsic_reward": sums[0], "episode_extrinsic_reward": sums[1]}
            told |= {"_episode_intrinsic_reward": mask, "_episode_extrinsic_reward": mask}
        return told


class E3BReward(_Engined, gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Adds an exploration bonus to the rewards of a single Gymnasium environment. Arguments as in `E3BVectorReward`.

    Around Gymnasium's Autoreset wrapper the step that only resets gets no bonus.
    Its `spec` says `nondeterministic`: the reward depends on what was seen before this episode too.
    """

    def __init__(
        self, env: gym.Env[Any, Any], bonus: str | Bonus = "e3b", *, record_steps: int = RECORD_STEPS, **settings: Any
    ) -> None:
        if not isinstance(env, gym.Env):
            raise ValueError(f"E3BReward wraps a gymnasium.Env; got {type(env).__name__}")
        refuse_second_bonus(env)
        RecordConstructorArgs.__init__(self, bonus=bonus, record_steps=record_steps, **settings)
        gym.Wrapper.__init__(self, env)
        self.config = config_of(bonus, **settings)
        self.engine = build_explorer(self.config, bonus, *self._spaces, 1, record_steps)
        self._autoresets = [layer for layer in _layers(env) if isinstance(layer, Autoreset)]

    @property
    def spec(self) -> EnvSpec | None:  # type: ignore[override]
        spec = super().spec
        if spec is not None:
            spec.nondeterministic = True
        return spec

    @property
    def _spaces(self) -> tuple[gym.Space[Any], gym.Space[Any]]:
        return self.env.observation_space, self.env.action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        self.engine.reset(tree_map(lambda leaf: np.array(leaf)[None], obs))
        return obs, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        restarts = any(layer.autoreset for layer in self._autoresets)  # this step will only reset
        obs, reward, terminated, truncated, info = self.env.step(action)
        done = bool(terminated or truncated)
        seen = done and info.get("final_observation_valid", True)
        paid = self.engine.step(
            np.array(action)[None],
            tree_map(lambda leaf: np.asarray(leaf)[None], obs),
            np.array([reward]),
            np.array([done]),
            {0: obs} if seen else {},
            restarted=np.array([True]) if restarts else None,
        )
        info = {**info, "intrinsic_reward": float(paid.intrinsic[0]), "extrinsic_reward": float(reward)}
        if done:
            info["episode_intrinsic_reward"], info["episode_extrinsic_reward"] = paid.episodes[0]
        return obs, float(paid.total[0]), terminated, truncated, info


def _autoreset_mode(env: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    # The attribute first: SyncVectorEnv writes the metadata entry into a dict shared by all envs of the class.
    mode = getattr(env.unwrapped, "autoreset_mode", None) or env.metadata.get("autoreset_mode")
    if mode is None:
        warnings.warn(
            f"{type(env.unwrapped).__name__} does not say how it resets; NEXT_STEP is assumed. Set "
            'metadata["autoreset_mode"] to gymnasium.vector.AutoresetMode.NEXT_STEP or SAME_STEP',
            stacklevel=4,
        )
        return AutoresetMode.NEXT_STEP
    mode = AutoresetMode(mode)
    if mode == AutoresetMode.DISABLED:
        raise ValueError(
            "autoreset mode DISABLED is not supported; make the vector env with AutoresetMode.NEXT_STEP or SAME_STEP"
        )
    return mode


def refuse_second_bonus(env: gym.Env[Any, Any] | VectorEnv[Any, Any, Any]) -> None:
    """Raises ValueError if `env`, or an environment inside a batch, has an exploration bonus already."""
    layers: list[Any] = [*_layers(env)]
    batch = layers[-1]
    inner = batch.call("has_wrapper_attr", _MARK) if isinstance(batch, (SyncVectorEnv, AsyncVectorEnv)) else ()
    if any(inner) or any(isinstance(layer, _Engined) for layer in layers):
        raise ValueError("this environment has an exploration bonus already; to use two, add them: bonus=a + b")


def _layers(env: Any) -> Iterator[Any]:
    """The wrappers of an environment, outermost first, and the environment itself."""
    yield env
    while isinstance(env, (gym.Wrapper, VectorWrapper)):
        env = env.env
        yield env
