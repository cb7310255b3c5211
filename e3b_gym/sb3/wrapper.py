"""E3BRewardWrapper: the exploration bonus for Stable-Baselines3, in one line around any VecEnv.

    venv = E3BRewardWrapper(venv)
    PPO("MlpPolicy", venv).learn(1_000_000, callback=EncoderUpdateCallback())

The bonus is part of the reward before the agent sees it, so it takes part in returns and advantages and gives credit to
the steps that led to it. `Monitor` and `make_vec_env` sit inside, so `ep_rew_mean` stays the environment's own.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn
from torch import Tensor

from e3b_gym.bonuses import Bonus
from e3b_gym.buffer import EndingReader
from e3b_gym.building import build_explorer, config_of
from e3b_gym.config import BonusConfig
from e3b_gym.gymnasium import E3BReward, refuse_second_bonus
from e3b_gym.online import OnlineExplorer
from e3b_gym.options import UNSET, Unset, check
from e3b_gym.reward import StepRewards
from e3b_gym.saving import load_explorer, save_explorer
from e3b_gym.sb3.vec_env import GymnasiumVecEnv

# Steps (per environment) without any training after which a forgotten callback is reported: the length of PPO's default
# rollout, so that training by hand after each rollout is not reported.
PATIENCE = 2048


class E3BRewardWrapper(VecEnvWrapper):
    """Adds an exploration bonus to the rewards of a VecEnv.

    Every info dict gets `intrinsic_reward` (the bonus's part of the reward) and `extrinsic_reward` (the reward of
    `venv`); at an episode's end also `episode_intrinsic_reward` and `episode_extrinsic_reward`, their sums.

    Args:
        venv: any VecEnv.
        bonus: a method by name (`e3b_gym.METHODS`), a `BonusConfig`, or a bonus object.
        preset: "default" (tuned for a small machine), "paper" or "authors"; see `e3b_gym.config`.
        beta: weight of the bonus.
        extrinsic: weight of the environment's reward; 0 = reward-free.
        penalties: further weight of the environment's negative rewards; 0 ignores them.
        normaliser: "std", "authors" or "none".
        clip: bound of the total reward; None for no clipping.
        floor: the running scale is at least this share of the bonus's mean. These six are the preset's by default.
        training: update the running scale, and record for the encoder. Set False to evaluate.
        norm: divide the bonus by its running scale.
        seed: seed of the encoder's initial weights.
        device: device of the encoder, its optimiser and the memory; "auto": that of the model, as soon as
            EncoderUpdateCallback has it, and until then that of the bonus, usually the CPU.
        **options: options of the method, such as `ridge=0.01`, `dim=128`, `encoder=MyNetwork()`.

    Attributes:
        config: every number of the bonus and of its mixing that is in effect.
        watched: True once something trains the encoder; silences the "not trained" warning.
        policy_logits: returns the policy's logits of the last step; set by the callback for AGAC.

    Examples:
        >>> from stable_baselines3 import PPO
        >>> from stable_baselines3.common.env_util import make_vec_env
        >>> from e3b_gym import E3BRewardWrapper, EncoderUpdateCallback
        >>> venv = E3BRewardWrapper(make_vec_env("CartPole-v1", n_envs=4), "e3b", beta=0.1, seed=0)
        >>> model = PPO("MlpPolicy", venv, n_steps=32, batch_size=64, device="cpu")
        >>> model = model.learn(256, callback=EncoderUpdateCallback())
        >>> obs, rewards, dones, infos = venv.step([0, 1, 0, 1])
        >>> infos[0]["intrinsic_reward"] > 0, infos[0]["extrinsic_reward"]
        (True, 1.0)
    """

    def __init__(
        self,
        venv: VecEnv,
        bonus: str | Bonus | BonusConfig = "e3b",
        *,
        preset: str = "default",
        beta: float | Unset = UNSET,
        extrinsic: float | Unset = UNSET,
        penalties: float | Unset = UNSET,
        normaliser: str | Unset = UNSET,
        clip: float | Unset | None = UNSET,
        floor: float | Unset = UNSET,
        training: bool = True,
        norm: bool = True,
        seed: int | None = None,
        device: str | torch.device = "auto",
        **options: Any,
    ) -> None:
        _check_venv(venv)
        super().__init__(venv)
        mixing: dict[str, Any] = {"beta": beta, "extrinsic": extrinsic, "penalties": penalties}
        mixing |= {"normaliser": normaliser, "clip": clip, "floor": floor}
        config = config_of(bonus, preset, seed=seed, **mixing, **options)
        spaces = self.observation_space, self.action_space
        self._attach(config, build_explorer(config, bonus, *spaces, self.num_envs), device)
        self.training = training
        self.norm = norm

    def _attach(self, config: BonusConfig, explorer: OnlineExplorer, device: str | torch.device) -> None:
        self.config = config
        self.device = str(device)
        self.explorer = explorer if device == "auto" else explorer.to(device)
        self.watched = False
        self.policy_logits: Callable[[], Tensor] | None = None
        self._untrained_steps = 0
        self._endings = EndingReader(type(self.venv.unwrapped).__name__)
        self._actions: NDArray[Any] = np.empty(0)
        self._original_reward = np.zeros(self.num_envs, dtype=np.float32)

    @property
    def bonus(self) -> Bonus:
        return self.explorer.bonus

    @property
    def training(self) -> bool:
        """Whether the running scale is updated and steps are recorded for the encoder."""
        return self.explorer.training

    @training.setter
    def training(self, value: bool) -> None:
        self.explorer.training = check("training", value, bool)

    @property
    def norm(self) -> bool:
        """Whether the bonus is divided by its running scale."""
        return self.explorer.mixer.norm

    @norm.setter
    def norm(self, value: bool) -> None:
        self.explorer.mixer.norm = check("norm", value, bool)

    @property
    def reset_infos(self) -> list[dict[str, Any]]:
        return self.venv.reset_infos

    @reset_infos.setter
    def reset_infos(self, value: list[dict[str, Any]]) -> None:
        """Ignored: VecEnv's constructor sets this, and the getter returns those of the inner VecEnv."""

    def getattr_depth_check(self, name: str, already_found: bool) -> str | None:
        """SB3's search for an attribute that two wrappers have.

        This wrapper has VecNormalize's names (`training`, `save`, ...), so they may refer to a VecNormalize outside it.
        """
        if already_found:
            return self.venv.getattr_depth_check(name, already_found)
        return super().getattr_depth_check(name, already_found)

    def reset(self) -> VecEnvObs:
        obs = self.venv.reset()
        self.explorer.reset(obs)
        self._original_reward = np.zeros(self.num_envs, dtype=np.float32)
        return obs

    def step_async(self, actions: NDArray[Any]) -> None:
        self._actions = np.array(actions)
        super().step_async(actions)

    def step_wait(self) -> VecEnvStepReturn:
        obs, rewards, dones, infos = self.venv.step_wait()
        logits = None if self.policy_logits is None else self.policy_logits()
        last = self._endings.from_sb3(dones, infos)
        scored = self.explorer.step(self._actions, obs, rewards, dones, last, policy_logits=logits)
        self._original_reward = scored.extrinsic
        if not self.watched:
            self._notice_if_untrained()
        return obs, scored.total, dones, _annotated(infos, scored)

    def _notice_if_untrained(self) -> None:
        """Warns once if the encoder could be trained and never was."""
        if not self.training or self.explorer.optimizer is None or self._untrained_steps > PATIENCE:
            return
        self._untrained_steps += 1
        if self._untrained_steps > PATIENCE:
            warnings.warn(
                f"the encoder of {type(self.bonus).__name__} has not been trained in {PATIENCE} steps; pass "
                "callback=EncoderUpdateCallback() to learn(), or call train_encoder() after each rollout",
                stacklevel=3,
            )

    def train_encoder(self, **settings: Any) -> dict[str, float]:
        """Trains the encoder on what was recorded since the last call. `EncoderUpdateCallback` does this for you.

        Args:
            **settings: learning_rate, epochs, batch_size, ... of `TrainerConfig`, to change from now on.
        """
        self.watched = True
        return self.explorer.train(**settings)

    def get_original_reward(self) -> NDArray[np.float32]:
        """The environment's own rewards of the last step."""
        return self._original_reward.copy()

    @classmethod
    def evaluation(cls, venv: VecEnv) -> E3BRewardWrapper:
        """Wraps `venv` with the bonus turned off, for EvalCallback: rewards are the environment's own."""
        return cls(venv, "none", extrinsic=1.0, penalties=1.0, clip=None, training=False)

    def save(self, path: str | Path) -> None:
        """Writes everything that was learned: encoder, optimiser, running scale, lifelong memory, settings."""
        save_explorer(path, self.config, self.explorer, self.observation_space, self.action_space)

    @classmethod
    def load(
        cls,
        path: str | Path,
        venv: VecEnv,
        bonus: Bonus | None = None,
        *,
        device: str | torch.device = "auto",
        **objects: Any,
    ) -> E3BRewardWrapper:
        """Wraps `venv` with what `save` wrote. No code in the file is run.

        Args:
            path: the file.
            venv: with the same spaces. Another number of environments is fine; a lifelong memory then starts empty.
            bonus: the bonus object, rebuilt, if the saved wrapper had a custom one.
            device: as in the constructor; the file may come from another one.
            **objects: options that cannot be stored in a file, such as `encoder=MyNetwork()`, rebuilt.
        """
        wrapper = cls(venv, "none")
        spaces = venv.observation_space, venv.action_space
        wrapper._attach(*load_explorer(path, *spaces, venv.num_envs, bonus, objects), device)
        return wrapper

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state without the venv, which may not be picklable; see `set_venv`."""
        dropped = ("venv", "class_attributes", "policy_logits")
        return {name: value for name, value in self.__dict__.items() if name not in dropped}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, venv=None, policy_logits=None)

    def set_venv(self, venv: VecEnv) -> None:
        """Sets the VecEnv of an unpickled wrapper; call `reset` before stepping."""
        if self.venv is not None:
            raise ValueError("this wrapper has its VecEnv already; set_venv is for a wrapper that was unpickled")
        _check_venv(venv)
        for name, ours, theirs in (
            ("observation space", self.observation_space, venv.observation_space),
            ("action space", self.action_space, venv.action_space),
            ("number of environments", self.num_envs, venv.num_envs),
        ):
            if ours != theirs:
                raise ValueError(f"this wrapper was made for the {name} {ours}, but the VecEnv has {theirs}")
        self.venv = venv
        self.class_attributes = dict(inspect.getmembers(self.__class__))
        self.render_mode = venv.render_mode


def find_wrapper(venv: VecEnv | None) -> E3BRewardWrapper | None:
    """The E3BRewardWrapper in a chain of VecEnv wrappers, if there is one."""
    while isinstance(venv, VecEnvWrapper):
        if isinstance(venv, E3BRewardWrapper):
            return venv
        venv = venv.venv
    return None


def _check_venv(venv: VecEnv) -> None:
    if not isinstance(venv, VecEnv):
        raise ValueError(
            f"E3BRewardWrapper wraps a Stable-Baselines3 VecEnv; got {type(venv).__name__}. Make one with "
            "make_vec_env, or use e3b_gym.gymnasium for Gymnasium environments"
        )
    if find_wrapper(venv) is not None or is_env_wrapped(venv, E3BReward):
        raise ValueError("this VecEnv has an exploration bonus already; to use two, add them in one: bonus=a + b")
    if isinstance(adapter := venv.unwrapped, GymnasiumVecEnv):
        refuse_second_bonus(adapter.venv)


def is_env_wrapped(venv: VecEnv, kind: type[gym.Wrapper[Any, Any, Any, Any]]) -> bool:
    """Whether an environment in `venv` has the wrapper; False if `venv` cannot tell."""
    try:
        return any(venv.env_is_wrapped(kind))
    except NotImplementedError:  # a VecEnv without environments of Gymnasium inside
        return False


def _annotated(infos: list[dict[str, Any]], scored: StepRewards) -> list[dict[str, Any]]:
    """Copies of the infos with the parts of the reward; an environment may give the same dict at every step."""
    pairs = zip(infos, scored.intrinsic.tolist(), scored.extrinsic.tolist(), strict=True)
    annotated = [{**info, "intrinsic_reward": inner, "extrinsic_reward": outer} for info, inner, outer in pairs]
    for env, (inner, outer) in scored.episodes.items():
        annotated[env]["episode_intrinsic_reward"], annotated[env]["episode_extrinsic_reward"] = inner, outer
    return annotated
