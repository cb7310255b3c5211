"""E3BRewardWrapper: the exploration bonus for Stable-Baselines3, in one line around any VecEnv.

    venv = E3BRewardWrapper(venv)
    PPO("MlpPolicy", venv).learn(1_000_000, callback=EncoderUpdateCallback())

The bonus is part of the reward before the agent sees it, so it takes part in returns and advantages and gives credit to
the steps that led to it. `Monitor` and `make_vec_env` sit inside, so `ep_rew_mean` stays the environment's own.
"""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

from e3b_gym.bonuses import Bonus
from e3b_gym.unroll import Tree
from e3b_gym.wrappers.building import Recipe, build_engine
from e3b_gym.wrappers.engine import BonusEngine

_FORMAT = 1
# Steps (per environment) without training after which a forgotten callback is reported.
_PATIENCE = 4096


class E3BRewardWrapper(VecEnvWrapper):
    """Adds an exploration bonus to the rewards of a VecEnv.

    Every info dict gets `intrinsic_reward` (the bonus's part of the reward) and `extrinsic_reward` (the environment's
    own); at an episode's end also `episode_intrinsic_reward` and `episode_extrinsic_reward`.

    Args:
        venv: any VecEnv.
        bonus: a method by name (`e3b_gym.METHODS`), or a bonus object.
        preset: "default" (what learns), "paper" or "authors"; see `e3b_gym.presets`.
        beta: weight of the bonus.
        extrinsic: weight of the environment's reward; 0 = reward-free.
        normaliser: "std", "official" or "none".
        clip: bound of the total reward; math.inf = none. Like the three above: None = as the preset says.
        training: update the running scale, and record for the encoder. Set False to evaluate.
        norm: divide the bonus by its running scale.
        seed: of the encoder's initial weights.
        **options: of the method, such as `ridge=0.01`, `dim=128`, `encoder=MyNetwork()`.
    """

    def __init__(
        self,
        venv: VecEnv,
        bonus: str | Bonus = "e3b",
        *,
        preset: str = "default",
        beta: float | None = None,
        extrinsic: float | None = None,
        normaliser: str | None = None,
        clip: float | None = None,
        training: bool = True,
        norm: bool = True,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(venv, VecEnv):
            raise ValueError(
                f"E3BRewardWrapper wraps a Stable-Baselines3 VecEnv; got {type(venv).__name__}. Make one with "
                "make_vec_env, or use e3b_gym.wrappers.gymnasium for Gymnasium environments"
            )
        if find_wrapper(venv) is not None:
            raise ValueError("this VecEnv is inside an E3BRewardWrapper already; to mix bonuses, add them: bonus=a + b")
        super().__init__(venv)
        mixer = {"beta": beta, "extrinsic": extrinsic, "normaliser": normaliser, "clip": clip}
        self._build(Recipe.of(bonus, preset, seed, **mixer, **options), bonus)
        self.training = training
        self.norm = norm

    def _build(self, recipe: Recipe, bonus: str | Bonus) -> None:
        self._recipe = recipe
        self.engine: BonusEngine = build_engine(recipe, bonus, self.observation_space, self.action_space, self.num_envs)
        self._untrained_steps = 0
        self._actions: NDArray[Any] | None = None
        self._policy_logits: Any = None  # a function of no arguments, set by the callback for AGAC
        self._start_episodes()

    def _start_episodes(self) -> None:
        self._original_reward = np.zeros(self.num_envs, dtype=np.float32)
        self._episode_sums = np.zeros((2, self.num_envs))  # intrinsic, extrinsic

    @property
    def bonus(self) -> Bonus:
        return self.engine.bonus

    @property
    def training(self) -> bool:
        """Whether the running scale is updated and steps are recorded for the encoder."""
        return self.engine.training

    @training.setter
    def training(self, value: bool) -> None:
        self.engine.training = value

    @property
    def norm(self) -> bool:
        """Whether the bonus is divided by its running scale."""
        return self.engine.mixer.norm

    @norm.setter
    def norm(self, value: bool) -> None:
        self.engine.mixer.norm = value

    @property
    def reset_infos(self) -> list[dict[str, Any]]:
        return self.venv.reset_infos

    @reset_infos.setter
    def reset_infos(self, value: list[dict[str, Any]]) -> None:
        """VecEnv's constructor sets this; the inner VecEnv's are the ones that count."""

    def reset(self) -> VecEnvObs:
        obs = self.venv.reset()
        self.engine.reset(obs)
        self._start_episodes()
        return obs

    def step_async(self, actions: NDArray[Any]) -> None:
        self._actions = np.array(actions)
        super().step_async(actions)

    def step_wait(self) -> VecEnvStepReturn:
        obs, rewards, dones, infos = self.venv.step_wait()
        logits = None if self._policy_logits is None else self._policy_logits()
        terminals = {int(env): last for env in np.flatnonzero(dones) if (last := _terminal(infos[env])) is not None}
        paid = self.engine.step(self._actions, obs, rewards, dones, terminals, policy_logits=logits)  # type: ignore[arg-type]
        self._original_reward = np.asarray(rewards, dtype=np.float32).copy()
        self._annotate(paid.intrinsic, dones, infos)
        self._warn_if_untrained()
        return obs, paid.total, dones, infos

    def _annotate(self, intrinsic: NDArray[np.float32], dones: NDArray[np.bool_], infos: list[dict[str, Any]]) -> None:
        self._episode_sums += intrinsic, self._original_reward
        pairs = zip(infos, intrinsic.tolist(), self._original_reward.tolist(), strict=True)
        for info, inner, outer in pairs:
            info["intrinsic_reward"], info["extrinsic_reward"] = inner, outer
        for env in np.flatnonzero(dones):
            inner, outer = self._episode_sums[:, env].tolist()
            infos[env]["episode_intrinsic_reward"], infos[env]["episode_extrinsic_reward"] = inner, outer
            self._episode_sums[:, env] = 0.0

    def _warn_if_untrained(self) -> None:
        if not self.training or self.engine.trainer.optimizer is None or self._untrained_steps > _PATIENCE:
            return
        self._untrained_steps += 1
        if self._untrained_steps > _PATIENCE:
            warnings.warn(
                f"the encoder of {type(self.bonus).__name__} has not been trained in {_PATIENCE} steps; pass "
                "callback=EncoderUpdateCallback() to learn(), or call train_encoder() after each rollout",
                stacklevel=2,
            )

    def train_encoder(self) -> dict[str, float]:
        """Trains the encoder on what was recorded since the last call. `EncoderUpdateCallback` does this for you."""
        self._untrained_steps = 0
        return self.engine.train()

    def get_original_reward(self) -> NDArray[np.float32]:
        """The environment's own rewards of the last step."""
        return self._original_reward.copy()

    def evaluation(self, venv: VecEnv) -> E3BRewardWrapper:
        """`venv` wrapped like this one but with the bonus off, for EvalCallback: rewards are the environment's own."""
        return type(self)(venv, "none", extrinsic=1.0, clip=float("inf"), training=False)

    def save(self, path: str | Path) -> None:
        """Writes everything that was learned: encoder, optimiser, running scale, lifelong memory, settings."""
        state = {
            "format": _FORMAT,
            "recipe": self._recipe.as_dict(),
            "norm": self.norm,
            "spaces": (str(self.observation_space), str(self.action_space)),
            "engine": self.engine.state_dict(),
        }
        temporary = Path(path).with_name(Path(path).name + ".part")
        torch.save(state, temporary)
        temporary.replace(path)

    @classmethod
    def load(cls, path: str | Path, venv: VecEnv, bonus: Bonus | None = None) -> E3BRewardWrapper:
        """Wraps `venv` with what `save` wrote. No code in the file is run.

        Args:
            path: the file.
            venv: with the same spaces. Another number of environments is fine; a lifelong memory then starts empty.
            bonus: a bonus object made as before, if the saved wrapper had one of your own (or an own encoder).
        """
        state = _read(path)
        ours = (str(venv.observation_space), str(venv.action_space))
        if ours != tuple(state["spaces"]):
            raise ValueError(f"{path} was saved for the spaces {state['spaces']}, but this VecEnv has {ours}")
        recipe = Recipe(**state["recipe"])
        chosen = bonus if bonus is not None else recipe.bonus
        if chosen is None:
            raise ValueError(f"{path} holds a bonus of your own making: pass it, load(path, venv, bonus=...)")
        wrapper = cls(venv, "none")
        wrapper._build(recipe, chosen)
        wrapper.norm = state["norm"]
        if state["engine"]["num_envs"] != venv.num_envs and not wrapper.bonus.episodic:
            warnings.warn(
                f"{path} remembers {state['engine']['num_envs']} environments, this VecEnv has {venv.num_envs}: the "
                "lifelong memory starts empty. Load with the same number to keep it",
                stacklevel=2,
            )
        wrapper.engine.load_state_dict(state["engine"])
        return wrapper

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the venv, which may not be picklable; see `set_venv`."""
        dropped = ("venv", "class_attributes", "_policy_logits")
        return {name: value for name, value in self.__dict__.items() if name not in dropped}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, venv=None, _policy_logits=None)

    def set_venv(self, venv: VecEnv) -> None:
        """Gives an unpickled wrapper its VecEnv; call `reset` before stepping."""
        if self.venv is not None:
            raise ValueError("this wrapper has its VecEnv already; set_venv is for a wrapper that was unpickled")
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


def _terminal(info: dict[str, Any]) -> Tree:
    """The last observation of an ended episode, or None where the simulator has wiped it."""
    return info.get("terminal_observation") if info.get("final_observation_valid", True) else None


def _read(path: str | Path) -> dict[str, Any]:
    try:
        state = torch.load(path, weights_only=True)
    except FileNotFoundError:
        raise
    except Exception as error:
        raise ValueError(
            f"{path} is not a file that E3BRewardWrapper.save wrote, or it is damaged ({error})"
        ) from error
    if not isinstance(state, dict) or state.get("format") != _FORMAT:
        raise ValueError(f"{path} is not a file that this version of E3BRewardWrapper.save wrote")
    return state
