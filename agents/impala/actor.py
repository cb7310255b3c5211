"""An actor: a batch of environments and a copy of the policy that fills rollouts.

The weights change between rollouts only, so an unroll never mixes two versions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv

from agents.impala.config import Config
from agents.impala.policy import Policy, sample_actions
from agents.impala.rollout import NO_SUCCESS_KNOWN, Rollout
from agents.networks import env_options_for, networks_for
from e3b_gym.buffer import EndingReader
from e3b_gym.envs import make_vec
from e3b_gym.envs.registry import suite_of
from e3b_gym.unroll import Tree, tree_map


def make_envs(config: Config, num_envs: int, seed: int) -> VectorEnv[Any, Any, Any]:
    """The run's environments, made for its network."""
    suite = suite_of(config.env)
    fast = {} if suite is None else suite.rollout_options  # the rollout is the copy
    return make_vec(config.env, num_envs, seed=seed, **{**fast, **env_options_for(config)})


EnvMaker = Callable[[Config, int, int], VectorEnv[Any, Any, Any]]
"""(config, number of environments, seed) -> a batch of them that resets in the step that ends an episode."""


class Actor:
    """Steps `config.n_envs` environments with its copy of the policy.

    Args:
        config: the run.
        number: which actor this is; its environments are slots number * num_envs and on.
        restarts: how often it was started before, in this run or in an earlier part of it.
        make: makes its environments.
    """

    def __init__(self, config: Config, number: int = 0, restarts: int = 0, make: EnvMaker = make_envs) -> None:
        self.number = number
        self.envs = make(config, config.n_envs, seed := config.env_seed(number, restarts))
        spaces = self.envs.single_observation_space, self.envs.single_action_space
        self.policy = Policy(networks_for(config), *spaces, config.value_heads).eval()
        self.policy.remember_rows()
        self._endings = EndingReader(type(self.envs.unwrapped).__name__)
        self.version = -1
        self._generator = torch.Generator().manual_seed(seed)
        self._obs: Tree = None
        self._starts = np.ones(config.n_envs, np.bool_)
        self._state = self.policy.initial_state(config.n_envs)
        self._return = np.zeros(config.n_envs, np.float32)
        self._length = np.zeros(config.n_envs, np.int64)

    def load(self, weights: dict[str, torch.Tensor], version: int) -> None:
        """Takes over the learner's weights."""
        self.policy.load_state_dict(weights)
        self.policy.weights_changed()
        self.version = version

    @torch.no_grad()
    def fill(self, rollout: Rollout) -> None:
        """Acts for one unroll, from where the last one ended."""
        if self._obs is None:
            self._obs, _ = self.envs.reset()
        rollout.header[:] = self.number, self.version
        rollout.starts[:] = self._starts
        rollout.state[0], rollout.state[1] = self._state[0].numpy(), self._state[1].numpy()
        rollout.write_obs(0, self._obs)
        for t in range(rollout.steps):
            action = self._act(rollout, t)
            obs, reward, terminated, truncated, infos = self.envs.step(action)
            done = terminated | truncated
            last = self._endings.from_vector(done, obs, infos, AutoresetMode.SAME_STEP)
            rollout.write_step(t, action, done, last)
            rollout.reward[t], rollout.truncated[t] = reward, truncated & ~terminated
            self._count(rollout, t, done, infos)
            self._starts = done
            rollout.write_obs(t + 1, obs)
        self._obs = tree_map(lambda leaf: leaf[-1].copy(), rollout.obs)  # the rollout will be written to by others

    def _act(self, rollout: Rollout, t: int) -> Any:
        obs = tree_map(lambda leaf: torch.from_numpy(leaf[t : t + 1]), rollout.obs)
        out = self.policy(obs, torch.from_numpy(self._starts)[None], self._state)
        self._state = out.state
        logits = out.logits[0]
        rollout.logits[t] = logits.numpy()
        return sample_actions(logits, self._generator).numpy()

    def _count(self, rollout: Rollout, t: int, done: Any, infos: dict[str, Any]) -> None:
        self._return += rollout.reward[t]
        self._length += 1
        rollout.episode_return[t], rollout.episode_length[t] = self._return, self._length
        final = infos.get("final_info", {})
        if "is_success" in final:
            rollout.success[t] = np.where(done & final.get("_is_success", done), final["is_success"], NO_SUCCESS_KNOWN)
        else:
            rollout.success[t] = NO_SUCCESS_KNOWN
        if "episode_return" in final:  # where `reward` is scaled, a monitor below has the environment's own
            known = done & ~np.isnan(final["episode_return"])
            rollout.episode_return[t, known] = final["episode_return"][known]
        self._return[done], self._length[done] = 0.0, 0

    def close(self) -> None:
        self.envs.close()
