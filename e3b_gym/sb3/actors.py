"""Acting with a Stable-Baselines3 model while reading its action probabilities and values, where it has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported
from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor

from e3b_gym.unroll import Tree

Floats = NDArray[np.float64]


class Actor:
    """Acts as the model explores: actions are drawn, not the most probable ones.

    Attributes:
        probabilities: [N, A], in the states of the last call of `act`; None without a table of discrete actions.
        values: [N, 1], of the same states; None without a value function of states.
    """

    def __init__(self, model: BaseAlgorithm, venv: VecEnv) -> None:
        self._model, self._venv = model, venv
        self._policy: Any = model.policy
        self.probabilities: Floats | None = None
        self.values: Floats | None = None

    def act(self, obs: Any, starts: NDArray[np.bool_]) -> NDArray[Any]:
        """Actions [N] for obs, tree of [N, ...]; `starts` [N] marks those that open an episode."""
        return self._model.predict(obs, deterministic=False)[0]

    def value_of(self, env: int, last_obs: Tree) -> Floats | None:
        """[1]: the value of an observation that environment `env` has just arrived in."""
        return None

    def _table(self, distribution: Any) -> Floats | None:
        if not isinstance(self._model.action_space, spaces.Discrete):
            return None
        return _floats(distribution.distribution.probs)  # [N, A]


class ActorCritic(Actor):
    """PPO, A2C, TRPO, MaskablePPO."""

    @torch.no_grad()
    def act(self, obs: Any, starts: NDArray[np.bool_]) -> NDArray[Any]:
        masks: dict[str, Any] = {}
        if isinstance(self._model, MaskablePPO) and is_masking_supported(self._venv):
            masks = {"action_masks": get_action_masks(self._venv)}
        actions, _ = self._model.predict(obs, deterministic=False, **masks)
        rows = self._policy.obs_to_tensor(obs)[0]
        self.values = _floats(self._policy.predict_values(rows))  # [N, 1]
        self.probabilities = self._table(self._policy.get_distribution(rows, **masks))
        return actions

    @torch.no_grad()
    def value_of(self, env: int, last_obs: Tree) -> Floats | None:
        values = _floats(self._policy.predict_values(self._policy.obs_to_tensor(last_obs)[0]))  # [1, 1]
        return values.reshape(1)


class RecurrentActorCritic(Actor):
    """RecurrentPPO, sb3-contrib's and ours."""

    def __init__(self, model: BaseAlgorithm, venv: VecEnv) -> None:
        super().__init__(model, venv)
        lstm = self._policy.lstm_actor
        zeros = torch.zeros(lstm.num_layers, venv.num_envs, lstm.hidden_size, device=model.device)
        self._states = RNNStates((zeros, zeros), (zeros, zeros))
        self._policy.set_training_mode(False)

    @torch.no_grad()
    def act(self, obs: Any, starts: NDArray[np.bool_]) -> NDArray[Any]:
        rows, first = self._policy.obs_to_tensor(obs)[0], torch.from_numpy(starts).float().to(self._policy.device)
        self.probabilities = self._table(self._policy.get_distribution(rows, self._states.pi, first)[0])
        drawn, values, _, self._states = self._policy(rows, self._states, first)
        self.values = _floats(values)
        actions: NDArray[Any] = drawn.cpu().numpy()
        space = self._model.action_space
        return np.clip(actions, space.low, space.high) if isinstance(space, spaces.Box) else actions

    @torch.no_grad()
    def value_of(self, env: int, last_obs: Tree) -> Floats | None:
        state = tuple(part[:, env : env + 1].contiguous() for part in self._states.vf)
        rows, first = self._policy.obs_to_tensor(last_obs)[0], torch.zeros(1, device=self._policy.device)
        return _floats(self._policy.predict_values(rows, state, first)).reshape(1)


def make_actor(model: BaseAlgorithm, venv: VecEnv) -> Actor:
    """The most specific actor for this kind of model."""
    if isinstance(model.policy, RecurrentActorCriticPolicy):
        return RecurrentActorCritic(model, venv)
    if isinstance(model, OnPolicyAlgorithm) and hasattr(model.policy, "get_distribution"):
        return ActorCritic(model, venv)
    return Actor(model, venv)


def _floats(values: Tensor) -> Floats:
    return values.double().cpu().numpy()
