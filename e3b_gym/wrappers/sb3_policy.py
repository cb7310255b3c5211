"""What some bonuses need from the acting Stable-Baselines3 policy: its features (e3b-policy) or its logits (agac)."""

from __future__ import annotations

from typing import Any

import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.preprocessing import is_image_space, preprocess_obs
from stable_baselines3.common.vec_env import VecTransposeImage
from stable_baselines3.dqn.policies import QNetwork
from torch import Tensor, nn

from e3b_gym.bonuses import Bonus, PolicyDivergence, PolicyFeatures
from e3b_gym.unroll import Tree


class PolicyEncoder:
    """The policy's network up to its last layer, without recurrence: what `PolicyFeatures` embeds with.

    Args:
        model: the algorithm; its policy must act on the observations that the wrapper sees.
    """

    def __init__(self, model: BaseAlgorithm) -> None:
        self._model = model

    @property
    def dim(self) -> int:
        return int(self.encode(self._sample()).shape[-1])

    @torch.no_grad()
    def encode(self, obs: Tree) -> Tensor:
        """[rows, dim] of a tree of [rows, ...]."""
        policy = self._model.policy
        actor: Any = getattr(policy, "q_net", None) or getattr(policy, "actor", None) or policy
        obs = {k: v.to(policy.device) for k, v in obs.items()} if isinstance(obs, dict) else obs.to(policy.device)
        space = self._model.observation_space
        if not isinstance(obs, dict) and is_image_space(space) and obs.shape[1:] != space.shape:
            obs = VecTransposeImage.transpose_image(obs.cpu().numpy())  # type: ignore[arg-type]
            obs = torch.as_tensor(obs, device=policy.device)
        rows = preprocess_obs(obs, space, normalize_images=policy.normalize_images)
        if isinstance(actor, ActorCriticPolicy):
            features = actor.pi_features_extractor(rows)
            recurrent = hasattr(actor, "lstm_actor")
            return features if recurrent else actor.mlp_extractor.forward_actor(features)
        features = actor.features_extractor(rows)
        if isinstance(actor, QNetwork):
            return actor.q_net[:-1](features)
        return actor.latent_pi(features) if hasattr(actor, "latent_pi") else features

    def _sample(self) -> Tree:
        obs = self._model.observation_space.sample()
        return (
            {k: torch.as_tensor(v)[None] for k, v in obs.items()}
            if isinstance(obs, dict)
            else torch.as_tensor(obs)[None]
        )


class LogitsTap:
    """Keeps the last output of the policy's action layer, so that an unroll can carry what the policy said."""

    def __init__(self, model: BaseAlgorithm) -> None:
        layer = getattr(model.policy, "action_net", None)
        if not isinstance(layer, nn.Module):
            raise ValueError(
                f"AGAC needs the policy's action probabilities, which {type(model).__name__} does not have; use PPO, "
                "A2C, TRPO, MaskablePPO or RecurrentPPO"
            )
        self._last: Tensor | None = None
        layer.register_forward_hook(self._keep)

    def _keep(self, layer: nn.Module, inputs: Any, output: Tensor) -> None:
        self._last = output.detach()

    def __call__(self) -> Tensor:
        if self._last is None:
            raise ValueError("the policy has not acted yet, so AGAC has no action probabilities to compare")
        return self._last.cpu()


def reads_policy_features(bonus: Bonus) -> bool:
    return any(isinstance(part, PolicyFeatures) for part in bonus.modules())


def reads_policy_logits(bonus: Bonus) -> bool:
    return any(isinstance(part, PolicyDivergence) for part in bonus.modules())
