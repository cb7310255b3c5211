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
import torch
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper
from gymnasium.wrappers import Autoreset

from e3b_gym.bonuses import Bonus
from e3b_gym.buffer import EndingReader, autoreset_mode, last_of_single
from e3b_gym.building import RECORD_STEPS, build_explorer, config_of
from e3b_gym.config import BonusConfig
from e3b_gym.online import OnlineExplorer
from e3b_gym.options import Count, check
from e3b_gym.reward import StepRewards
from e3b_gym.saving import load_explorer, save_explorer
from e3b_gym.unroll import tree_map

_MARK = "train_encoder"  # an attribute that only our wrappers have


class _Explored:
    """The common part of the two wrappers: an explorer for `_spaces`, trained on request, saved and loaded."""

    config: BonusConfig
    explorer: OnlineExplorer

    @property
    def _spaces(self) -> tuple[gym.Space[Any], gym.Space[Any]]:
        raise NotImplementedError

    @property
    def bonus(self) -> Bonus:
        return self.explorer.bonus

    def train_encoder(self, **settings: Any) -> dict[str, float]:
        """Trains on the steps since the last call (at most `record_steps`); returns losses and diagnostics.

        Args:
            **settings: learning_rate, epochs, batch_size, ... of `TrainerConfig`, to change from now on.
        """
        return self.explorer.train(**settings)

    def save(self, path: str | Path) -> None:
        """Writes everything that was learned: encoder, optimiser, running scale, lifelong memory, settings."""
        save_explorer(path, self.config, self.explorer, *self._spaces)

    @classmethod
    def load(
        cls,
        path: str | Path,
        env: Any,
        bonus: Bonus | None = None,
        *,
        record_steps: int = RECORD_STEPS,
        device: str | torch.device = "auto",
        **objects: Any,
    ) -> Self:
        """Wraps `env` with what `save` wrote. No code in the file is run. Arguments as in `E3BRewardWrapper.load`."""
        record_steps = check("record_steps", record_steps, Count)
        wrapper = cls(env, "none")  # type: ignore[call-arg]
        count = wrapper.explorer.num_envs
        wrapper.config, explorer = load_explorer(path, *wrapper._spaces, count, bonus, objects, record_steps)
        wrapper.explorer = _placed(explorer, device)
        return wrapper


class E3BVectorReward(_Explored, VectorWrapper):
    """Adds an exploration bonus to the rewards of a Gymnasium VectorEnv, in either autoreset mode.

    Args:
        env: the vector environment. With SAME_STEP autoreset the last observations come from `infos["final_obs"]`;
            with NEXT_STEP they are the observations themselves, and the step that only resets is not scored.
        bonus: a method by name (`e3b_gym.METHODS`), or a bonus object.
        record_steps: how many of the latest steps `train_encoder` trains on.
        device: of the encoder, its optimiser and the memory; "auto" leaves them where the bonus is, usually on the
            CPU, whose kernels are faster for small encoders that see one step at a time.
        **settings: preset, beta, extrinsic, penalties, normaliser, clip, seed and the method's options, as in
            `E3BRewardWrapper`.

    Examples:
        >>> import gymnasium
        >>> from e3b_gym import E3BVectorReward
        >>> envs = E3BVectorReward(gymnasium.make_vec("CartPole-v1", num_envs=2), "e3b", beta=0.1, seed=0)
        >>> obs, infos = envs.reset(seed=0)
        >>> obs, rewards, terminated, truncated, infos = envs.step(envs.action_space.sample())
        >>> bool((rewards > infos["extrinsic_reward"]).all())
        True
        >>> sorted(envs.train_encoder())[:3]
        ['bonus_mean', 'bonus_std', 'inverse_accuracy']
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        bonus: str | Bonus | BonusConfig = "e3b",
        *,
        record_steps: int = RECORD_STEPS,
        device: str | torch.device = "auto",
        **settings: Any,
    ) -> None:
        if not isinstance(env, VectorEnv):
            raise ValueError(f"E3BVectorReward wraps a gymnasium.vector.VectorEnv; got {type(env).__name__}")
        record_steps = check("record_steps", record_steps, Count)
        refuse_second_bonus(env)
        super().__init__(env)
        self._mode = _autoreset_mode(env)
        self.config = config_of(bonus, **settings)
        explorer = build_explorer(self.config, bonus, *self._spaces, env.num_envs, record_steps)
        self.explorer = _placed(explorer, device)
        self._ended = np.zeros(env.num_envs, dtype=bool)
        self._endings = EndingReader(type(env.unwrapped).__name__)

    @property
    def _spaces(self) -> tuple[gym.Space[Any], gym.Space[Any]]:
        return self.env.single_observation_space, self.env.single_action_space

    def reset(self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None) -> Any:
        if options is not None and "reset_mask" in options:
            raise ValueError("E3BVectorReward follows the autoreset of its environments; reset() resets all of them")
        obs, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        self.explorer.reset(obs)
        self._ended = np.zeros_like(self._ended)
        return obs, infos

    def step(self, actions: Any) -> Any:
        obs, rewards, terminated, truncated, infos = self.env.step(actions)
        done = np.logical_or(terminated, truncated)
        last = self._endings.from_vector(done, obs, infos, self._mode)
        restarted = self._ended if self._mode == AutoresetMode.NEXT_STEP else None
        scored = self.explorer.step(np.array(actions), obs, rewards, done, last, restarted=restarted)
        self._ended = done
        return obs, scored.total.astype(np.float64), terminated, truncated, self._annotated(infos, scored)

    def _annotated(self, infos: dict[str, Any], scored: StepRewards) -> dict[str, Any]:
        all_envs = np.ones(self.num_envs, dtype=bool)
        annotated = {**infos, "intrinsic_reward": scored.intrinsic, "extrinsic_reward": scored.extrinsic}
        annotated |= {"_intrinsic_reward": all_envs, "_extrinsic_reward": all_envs}
        if scored.episodes:
            ended = list(scored.episodes)
            sums, mask = np.zeros((2, self.num_envs)), ~all_envs
            sums[:, ended], mask[ended] = np.transpose(list(scored.episodes.values())), True
            annotated |= {"episode_intrinsic_reward": sums[0], "episode_extrinsic_reward": sums[1]}
            annotated |= {"_episode_intrinsic_reward": mask, "_episode_extrinsic_reward": mask}
        return annotated


class E3BReward(_Explored, gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Adds an exploration bonus to the rewards of a single Gymnasium environment. Arguments as in `E3BVectorReward`.

    Around Gymnasium's Autoreset wrapper the step that only resets gets no bonus.
    Its `spec` says `nondeterministic`: the reward also depends on earlier episodes.

    Examples:
        >>> import gymnasium
        >>> from e3b_gym import E3BReward
        >>> env = E3BReward(gymnasium.make("CartPole-v1"), "e3b", beta=0.1, seed=0)
        >>> obs, info = env.reset(seed=0)
        >>> obs, reward, terminated, truncated, info = env.step(0)
        >>> reward == info["extrinsic_reward"] + info["intrinsic_reward"], info["intrinsic_reward"] > 0
        (True, True)
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        bonus: str | Bonus | BonusConfig = "e3b",
        *,
        record_steps: int = RECORD_STEPS,
        device: str | torch.device = "auto",
        **settings: Any,
    ) -> None:
        if not isinstance(env, gym.Env):
            raise ValueError(f"E3BReward wraps a gymnasium.Env; got {type(env).__name__}")
        record_steps = check("record_steps", record_steps, Count)
        refuse_second_bonus(env)
        RecordConstructorArgs.__init__(self, bonus=bonus, record_steps=record_steps, device=str(device), **settings)
        gym.Wrapper.__init__(self, env)
        self.config = config_of(bonus, **settings)
        self.explorer = _placed(build_explorer(self.config, bonus, *self._spaces, 1, record_steps), device)
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
        self.explorer.reset(tree_map(lambda leaf: np.array(leaf)[None], obs))
        return obs, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        restarts = any(layer.autoreset for layer in self._autoresets)  # this step will only reset
        obs, reward, terminated, truncated, info = self.env.step(action)
        done = bool(terminated or truncated)
        scored = self.explorer.step(
            np.array(action)[None],
            tree_map(lambda leaf: np.asarray(leaf)[None], obs),
            np.array([reward]),
            np.array([done]),
            last_of_single(done, obs, info),
            restarted=np.array([True]) if restarts else None,
        )
        info = {**info, "intrinsic_reward": float(scored.intrinsic[0]), "extrinsic_reward": float(reward)}
        if done:
            info["episode_intrinsic_reward"], info["episode_extrinsic_reward"] = scored.episodes[0]
        return obs, float(scored.total[0]), terminated, truncated, info


def _placed(explorer: OnlineExplorer, device: str | torch.device) -> OnlineExplorer:
    return explorer if device == "auto" else explorer.to(device)


def _autoreset_mode(env: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    mode = autoreset_mode(env)
    if mode is None:
        warnings.warn(
            f"{type(env.unwrapped).__name__} does not declare its autoreset mode; NEXT_STEP is assumed. Set "
            'metadata["autoreset_mode"] to gymnasium.vector.AutoresetMode.NEXT_STEP or SAME_STEP',
            stacklevel=4,
        )
        return AutoresetMode.NEXT_STEP
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
    if any(inner) or any(isinstance(layer, _Explored) for layer in layers):
        raise ValueError("this environment has an exploration bonus already; to use two, add them: bonus=a + b")


def _layers(env: Any) -> Iterator[Any]:
    """The wrappers of an environment, outermost first, and the environment itself."""
    yield env
    while isinstance(env, (gym.Wrapper, VectorWrapper)):
        env = env.env
        yield env
