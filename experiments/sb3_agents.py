"""AGENT=ppo and AGENT=recurrent_ppo: Stable-Baselines3's PPO and our RecurrentPPO with the networks of IMPALA.

Checkpoints are SB3's zip files with the wrapper's file beside each (`E3BCheckpointCallback`):
`latest_<frames>_steps.zip`, `best_<frames>_steps.zip`. Loading a zip file of SB3 can run code, so load runs of people
you trust.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

from agents.impala.config import Config
from agents.impala.networks import Networks, networks_for
from e3b_gym.explorer import Explorer
from e3b_gym.saving import load_engine
from e3b_gym.sb3 import ENCODER_POLICY, E3BRewardWrapper, make_vec_env
from e3b_gym.sb3.policies import LogitsTap, PolicyEncoder, reads_policy_features
from e3b_gym.sb3.recurrent_ppo import RecurrentPPO
from e3b_gym.unroll import Tree, tree_map
from experiments.ppo_config import PPOConfig

ALGORITHMS: dict[str, type[PPO] | type[RecurrentPPO]] = {"ppo": PPO, "recurrent_ppo": RecurrentPPO}
LATEST, BEST = "latest", "best"


class NetworkExtractor(BaseFeaturesExtractor):
    """The network of a suite (`agents.impala.networks`) as the features extractor of an SB3 policy."""

    def __init__(self, observation_space: gym.Space[Any], env: str, net: str) -> None:
        trunk = networks_for(Config(env=env, net=net, engine="inline")).trunk(observation_space)  # type: ignore[arg-type]
        super().__init__(observation_space, int(trunk.dim))  # type: ignore[arg-type]
        self.trunk = trunk
        parts = observation_space.spaces if isinstance(observation_space, gym.spaces.Dict) else observation_space
        self._kinds = tree_map(lambda part: torch.from_numpy(np.empty(0, part.dtype)).dtype, parts)

    def forward(self, observations: Tree) -> Tensor:
        """SB3 hands everything over as float32; the networks look up symbols and characters."""
        return self.trunk(tree_map(lambda leaf, kind: leaf.to(kind), observations, self._kinds))  # type: ignore[no-any-return]


def sb3_networks(config: PPOConfig) -> Networks:
    """The networks of IMPALA for the same environment."""
    return networks_for(Config(env=config.env, net=config.net, lstm=config.lstm, dim=config.dim, engine="inline"))


def has_own_network(config: PPOConfig) -> bool:
    """Whether the suite has networks of its own; the generic encoder serves the others."""
    return config.env.startswith(("MiniHack-", "Vizdoom", "Habitat-"))


def wrapper_objects(config: PPOConfig) -> dict[str, Any]:
    """The options of E3BRewardWrapper that a file cannot hold."""
    return {"encoder": sb3_networks(config).phi} if has_own_network(config) else {}


def make_envs(config: PPOConfig, starts: int) -> Any:
    """The run's environments; after `starts` earlier parts of the run they are new worlds."""
    options = {**sb3_networks(config).env_options, **config.env_options}
    seed = int(np.random.SeedSequence([config.seed, 0, starts]).generate_state(1)[0])
    return make_vec_env(config.env, config.n_envs, seed=seed, **options)


def add_bonus(config: PPOConfig, venv: Any) -> E3BRewardWrapper:
    """The environments with the run's bonus around them."""
    options = {**config.bonus, **wrapper_objects(config)}
    if not has_own_network(config):
        options["dim"] = config.dim
    return E3BRewardWrapper(venv, config.method, preset=config.bonus_preset, seed=config.seed, **options)


def make_model(agent: str, config: PPOConfig, venv: Any) -> PPO | RecurrentPPO:
    """The algorithm, around environments with their bonus."""
    layers = [config.hidden] if config.hidden else []
    policy_kwargs: dict[str, Any] = {**ENCODER_POLICY, "net_arch": layers, "activation_fn": nn.ReLU}
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
        n_steps=config.n_steps,
        batch_size=config.batch_size,
        n_epochs=config.n_epochs,
        learning_rate=config.learning_rate,
        max_grad_norm=config.max_grad_norm,
        gamma=config.gamma,
        gae_lambda=config.gae_lambda,
        clip_range=config.clip_range,
        ent_coef=config.ent_coef,
        vf_coef=config.vf_coef,
        normalize_advantage=config.normalize_advantage,
        policy_kwargs=policy_kwargs,
        seed=config.seed,
        device="cpu",
    )


def checkpoints(folder: Path, prefix: str) -> list[Path]:
    """The zip files of the checkpoints, oldest first."""
    return sorted(folder.glob(f"{prefix}_*_steps.zip"), key=lambda path: int(path.stem.split("_")[-2]))


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
        saved = checkpoints(folder, which) or checkpoints(folder, LATEST)  # without a score yet, the latest is the best
        if not saved:
            raise FileNotFoundError(f"{folder} holds no checkpoint; one is written now and then, and at the end")
        self._path, self._config, self._spaces, self._greedy = saved[-1], config, spaces, greedy
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

    def bonus_engine(self) -> Explorer:
        objects = wrapper_objects(self._config)
        file = self._path.with_name(f"{self._path.stem}_e3b.pt")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a lifelong memory starts empty: there is one environment now
            engine = load_engine(file, *self._spaces, 1, None, objects)[1]
        if reads_policy_features(engine.bonus):
            engine.bonus.bind_policy(PolicyEncoder(self._model, []))
        engine.training = False
        return engine
