"""AGENT=ppo and AGENT=recurrent_ppo: Stable-Baselines3's PPO and our RecurrentPPO with the networks of IMPALA.

A checkpoint has weights, optimisers and the state of the bonus as tensors and plain values (`agents.checkpoint`); the
model is built from the run's config.yaml, so that reading a run executes no code from it.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecTransposeImage
from torch import Tensor, nn

from agents.checkpoint import load_checkpoint, loading
from agents.networks import env_options_for, has_own_networks, networks_for
from agents.ppo.config import PPOConfig
from e3b_gym.building import build_explorer
from e3b_gym.config import BonusConfig
from e3b_gym.devices import find_device
from e3b_gym.diagnosis import Episode, Setup
from e3b_gym.encoders.networks import Factory
from e3b_gym.online import OnlineExplorer
from e3b_gym.sb3 import ENCODER_POLICY, E3BRewardWrapper, GymnasiumVecEnv, make_vec_env
from e3b_gym.sb3.diagnosing import record
from e3b_gym.sb3.policies import LogitsTap, PolicyEncoder, reads_policy_features
from e3b_gym.sb3.recurrent_ppo import RecurrentPPO
from e3b_gym.unroll import Tree, tree_map


def algorithm_of(config: PPOConfig) -> type[PPO] | type[RecurrentPPO]:
    """Returns Stable-Baselines3's PPO, or our RecurrentPPO."""
    return RecurrentPPO if config.recurrent else PPO


class NetworkExtractor(BaseFeaturesExtractor):
    """The network of a suite as the features extractor of an SB3 policy."""

    def __init__(self, observation_space: gym.Space[Any], make_trunk: Factory) -> None:
        trunk = make_trunk(observation_space)
        super().__init__(observation_space, int(trunk.dim))  # type: ignore[arg-type]
        self.trunk = trunk
        parts = observation_space.spaces if isinstance(observation_space, gym.spaces.Dict) else observation_space
        self._kinds = tree_map(lambda part: torch.from_numpy(np.empty(0, part.dtype)).dtype, parts)

    def forward(self, observations: Tree) -> Tensor:
        """Converts SB3's float32 observations to the dtypes of the space, for the look-up of symbols and characters."""
        return self.trunk(tree_map(lambda leaf, kind: leaf.to(kind), observations, self._kinds))  # type: ignore[no-any-return]


def make_envs(config: PPOConfig, starts: int) -> Any:
    """Makes the environments of the run, with other seeds than its `starts` earlier parts."""
    return make_vec_env(config.env, config.n_envs, seed=config.env_seed(0, starts), **env_options_for(config))


def bonus_config(config: PPOConfig) -> BonusConfig:
    """The run's bonus, with its encoder and its seed."""
    bonus = dataclasses.replace(config.bonus, seed=config.seed)
    if has_own_networks(config.env):
        return bonus.with_encoder(networks_for(config).phi)
    return dataclasses.replace(bonus, options={**bonus.options, "dim": config.dim or 256})


def add_bonus(config: PPOConfig, venv: Any) -> E3BRewardWrapper:
    """The environments with the run's bonus around them."""
    return E3BRewardWrapper(venv, bonus_config(config))


def make_model(config: PPOConfig, venv: Any, **changes: Any) -> PPO | RecurrentPPO:
    """The algorithm, around environments with their bonus; `changes` are options of the algorithm."""
    layers = [config.hidden] * config.hidden_layers if config.hidden else []
    policy_kwargs: dict[str, Any] = {"net_arch": layers, "activation_fn": nn.ReLU}
    networks = networks_for(config)
    if config.features == "encoder":
        policy_kwargs |= ENCODER_POLICY
    if config.features == "encoder" and has_own_networks(config.env):
        policy_kwargs |= {
            "features_extractor_class": NetworkExtractor,
            "features_extractor_kwargs": {"make_trunk": networks.trunk},
        }
    if config.recurrent:
        policy_kwargs |= {"lstm_hidden_size": networks.lstm, "n_lstm_layers": networks.lstm_layers}
        policy_kwargs |= {"shared_lstm": True, "enable_critic_lstm": False}  # one LSTM, as in IMPALA
    kind = "MultiInput" if isinstance(venv.observation_space, gym.spaces.Dict) else "Mlp"
    options = {
        "n_steps": config.n_steps,
        "batch_size": config.batch_size,
        "n_epochs": config.n_epochs,
        "learning_rate": config.learning_rate,
        "max_grad_norm": config.max_grad_norm,
        "gamma": config.gamma,
        "gae_lambda": config.gae_lambda,
        "clip_range": config.clip_range,
        "ent_coef": config.ent_coef,
        "vf_coef": config.vf_coef,
        "normalize_advantage": config.normalize_advantage,
        "policy_kwargs": policy_kwargs,
        "seed": config.seed,
        "device": find_device(config.device),
    }
    return algorithm_of(config)(f"{kind}{'Lstm' if config.recurrent else ''}Policy", venv, **{**options, **changes})


class _Shell(gym.Env[Any, Any]):
    """Spaces without an environment, to build a model that only predicts."""

    def __init__(self, spaces: tuple[gym.Space[Any], gym.Space[Any]]) -> None:
        self.observation_space, self.action_space = spaces


class SB3Player:
    """Plays what a checkpoint holds, in a batch of environments; see `agents.protocols.Player`."""

    def __init__(
        self,
        config: PPOConfig,
        checkpoints: Path,
        which: str,
        spaces: tuple[gym.Space[Any], gym.Space[Any]],
        greedy: bool,
        seed: int,
    ) -> None:
        checkpoint = load_checkpoint(checkpoints, algorithm_of(config).__name__, which)
        self._checkpoint, self._config, self._spaces, self._greedy = checkpoint, config, spaces, greedy
        self.model = make_model(config, DummyVecEnv([lambda: _Shell(spaces)]), n_steps=2, batch_size=2, device="cpu")
        with loading(checkpoint):
            self.model.policy.load_state_dict(checkpoint.state["model"]["policy"])
        self.model.set_random_seed(seed)
        self._tap = LogitsTap(self.model)
        self._state: Any = None
        self.frames = checkpoint.frames

    @property
    def logits(self) -> Tensor:
        return self._tap()

    def act(self, obs: Tree, starts: NDArray[np.bool_]) -> NDArray[Any]:
        actions, self._state = self.model.predict(obs, self._state, starts, deterministic=self._greedy)
        return actions

    def bonus_explorer(self, num_envs: int = 1) -> OnlineExplorer:
        explorer = build_explorer(bonus_config(self._config), None, *self._spaces, num_envs)
        bind_policy(explorer, self.model)
        with loading(self._checkpoint):
            explorer.load_learned(self._checkpoint.state["bonus"])
        explorer.training = False
        return explorer


def record_episodes(
    config: PPOConfig, player: SB3Player, envs: VectorEnv[Any, Any, Any], seeds: list[int], episodes: int, seed: int
) -> tuple[list[Episode], Setup]:
    """Plays for `make doctor`."""
    venv = E3BRewardWrapper(GymnasiumVecEnv(envs), "none")
    venv.explorer = player.bonus_explorer(len(seeds))
    venv.venv.seed(seeds[0])
    return record(player.model, venv, episodes, seed=seed)


def bind_policy(explorer: OnlineExplorer, model: PPO | RecurrentPPO) -> None:
    """Connects a bonus that reads the policy's features to the policy. Call it before the bonus's state is loaded."""
    if reads_policy_features(explorer.bonus):
        transposed = [model.env] if isinstance(model.env, VecTransposeImage) else []
        explorer.bonus.bind_policy(PolicyEncoder(model, [*transposed]))
