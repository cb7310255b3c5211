"""Data of the acting Stable-Baselines3 policy that some bonuses need: features (e3b-policy) or logits (agac)."""

from __future__ import annotations

from typing import Any

import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.preprocessing import preprocess_obs
from stable_baselines3.common.vec_env import VecEnvWrapper, VecTransposeImage
from torch import Tensor, nn

from e3b_gym.bonuses import Bonus, PolicyDivergence, PolicyFeatures
from e3b_gym.encoders import sample_rows
from e3b_gym.unroll import Tree, tree_leaves, tree_map


class PolicyEncoder:
    """The acting policy's network up to its last layer, without recurrence: what `PolicyFeatures` embeds with.

    Args:
        model: the algorithm.
        outside: the VecEnv wrappers between the policy and E3BRewardWrapper; they must leave observations as they
            are, apart from VecTransposeImage, which is repeated here.
    """

    def __init__(self, model: BaseAlgorithm, outside: list[VecEnvWrapper]) -> None:
        if changed := [type(outer).__name__ for outer in outside if not isinstance(outer, VecTransposeImage)]:
            raise ValueError(
                f"the policy encoder must see what the policy sees, but {', '.join(changed)} is between them; put "
                "E3BRewardWrapper outermost"
            )
        self._model = model
        self._transposers = [outer for outer in outside if isinstance(outer, VecTransposeImage)]
        self.dim = int(self._latent(sample_rows(model.observation_space, 1, seed=0)).shape[-1])

    def encode(self, obs: Tree) -> Tensor:
        """[rows, dim] of a tree of [rows, ...], as the wrapper sees it."""
        there = tree_leaves(obs)[0].device
        for transposer in self._transposers:
            seen = transposer.transpose_observations(tree_map(lambda leaf: leaf.cpu().numpy(), obs))
            obs = tree_map(torch.as_tensor, seen)
        return self._latent(obs).to(there)

    @torch.no_grad()
    def _latent(self, obs: Tree) -> Tensor:
        policy: Any = self._model.policy
        if policy.training:  # CrossQ's batch normalisation must not learn here; every train() of SB3 switches it on
            policy.set_training_mode(False)
        obs = tree_map(lambda leaf: leaf.to(policy.device), obs)
        rows = preprocess_obs(obs, self._model.observation_space, normalize_images=policy.normalize_images)
        if hasattr(policy, "mlp_extractor"):  # actor-critic: PPO, A2C, TRPO, MaskablePPO, RecurrentPPO
            features = policy.pi_features_extractor(rows)
            return features if hasattr(policy, "lstm_actor") else policy.mlp_extractor.forward_actor(features)  # type: ignore[no-any-return]
        for network, layers, dropped in (
            ("q_net", "q_net", 1),  # DQN
            ("quantile_net", "quantile_net", 1),  # QRDQN
            ("actor", "latent_pi", 0),  # SAC, TQC, CrossQ
            ("actor", "mu", 2),  # TD3, DDPG: the last layer and its tanh
        ):
            part = getattr(getattr(policy, network, None), layers, None)
            if part is not None:
                features = getattr(policy, network).features_extractor(rows)
                return part[: len(part) - dropped](features)  # type: ignore[no-any-return]
        raise ValueError(f"the policy encoder does not support the network of {type(self._model).__name__}")


class LogitsTap:
    """Keeps the last output of the policy's action layer, so that an unroll can hold the policy's logits."""

    def __init__(self, model: BaseAlgorithm) -> None:
        layer = getattr(model.policy, "action_net", None)
        if not isinstance(model, OnPolicyAlgorithm) or not isinstance(layer, nn.Module):
            raise ValueError(
                f"AGAC needs the policy's action probabilities, which {type(model).__name__} does not have; use PPO, "
                "A2C, TRPO, MaskablePPO or RecurrentPPO"
            )
        self._last: Tensor | None = None
        self._hook = layer.register_forward_hook(self._keep)

    def _keep(self, layer: nn.Module, inputs: Any, output: Tensor) -> None:
        self._last = output.detach()

    def close(self) -> None:
        """Removes the hook from the policy."""
        self._hook.remove()

    def __call__(self) -> Tensor:
        if self._last is None:
            raise ValueError("the policy has not acted yet, so AGAC has no action probabilities to compare")
        return self._last.cpu()


def reads_policy_features(bonus: Bonus) -> bool:
    return any(isinstance(part, PolicyFeatures) for part in bonus.modules())


def reads_policy_logits(bonus: Bonus) -> bool:
    return any(isinstance(part, PolicyDivergence) for part in bonus.modules())
