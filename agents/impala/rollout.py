"""Rollout: the arrays that one actor fills and the learner reads, an unroll [T, N] with what the learner must know.

The arrays are allocated once, in ordinary or in shared memory, and filled again and again. Room for terminal
observations is as large as it could ever be needed; what is not touched costs no memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from e3b_gym.unroll import Tree, Unroll, kept_as, tree_map

Zeros = Callable[[tuple[int, ...], Any], NDArray[Any]]
NO_SUCCESS_KNOWN = -1


@dataclass(frozen=True)
class Episodes:
    """The episodes that ended in an unroll: the environment's own return, length, success (NaN where unknown)."""

    returns: NDArray[np.float32]
    lengths: NDArray[np.int64]
    successes: NDArray[np.float32]


@dataclass(frozen=True)
class Rollout:
    """Arrays of T steps of N environments.

    Attributes:
        obs: tree of [T+1, N, ...].
        action: int64 [T, N].
        reward: float32 [T, N], the environment's own.
        done: bool [T, N].
        truncated: bool [T, N], the episode ended by its time limit alone.
        logits: float32 [T, N, A], of the policy that acted.
        starts: bool [N], obs[0] opens an episode.
        state: float32 [2, layers, N, H], h and c of the LSTM before obs[0].
        terminal_known: bool [T, N].
        terminal_obs: tree of [T * N, ...]; the first `terminal_known.sum()` rows hold last observations, in row-major
            order of `terminal_known`.
        episode_return, episode_length: float32, int64 [T, N]; of the episode so far.
        success: int8 [T, N]; 1 or 0 where an episode ended and the suite can tell, -1 elsewhere.
        header: int64 [2]: the actor's number, and the version of the weights it acted with.
    """

    obs: Tree
    action: NDArray[np.int64]
    reward: NDArray[np.float32]
    done: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    logits: NDArray[np.float32]
    starts: NDArray[np.bool_]
    state: NDArray[np.float32]
    terminal_known: NDArray[np.bool_]
    terminal_obs: Tree
    episode_return: NDArray[np.float32]
    episode_length: NDArray[np.int64]
    success: NDArray[np.int8]
    header: NDArray[np.int64]

    @classmethod
    def allocate(
        cls,
        observation_space: gym.Space[Any],
        num_actions: int,
        steps: int,
        num_envs: int,
        state_shape: tuple[int, int],
        zeros: Zeros = np.zeros,
    ) -> Rollout:
        """Room for an unroll.

        Args:
            observation_space: of one environment.
            num_actions: A.
            steps: T.
            num_envs: N.
            state_shape: layers and units of the LSTM.
            zeros: (shape, dtype) -> array; shared memory comes in here.
        """
        layers, units = state_shape
        lead = (steps, num_envs)

        def rows(*shape: int) -> Tree:
            return _map_space(lambda s: zeros((*shape, *s.shape), kept_as(s.dtype)), observation_space)

        return cls(
            obs=rows(steps + 1, num_envs),
            action=zeros(lead, np.int64),
            reward=zeros(lead, np.float32),
            done=zeros(lead, np.bool_),
            truncated=zeros(lead, np.bool_),
            logits=zeros((*lead, num_actions), np.float32),
            starts=zeros((num_envs,), np.bool_),
            state=zeros((2, layers, num_envs, units), np.float32),
            terminal_known=zeros(lead, np.bool_),
            terminal_obs=rows(steps * num_envs),
            episode_return=zeros(lead, np.float32),
            episode_length=zeros(lead, np.int64),
            success=zeros(lead, np.int8),
            header=zeros((2,), np.int64),
        )

    @property
    def steps(self) -> int:
        return len(self.action)

    @property
    def num_envs(self) -> int:
        return self.action.shape[1]

    @property
    def actor(self) -> int:
        return int(self.header[0])

    @property
    def version(self) -> int:
        return int(self.header[1])

    def unroll(self) -> Unroll:
        """The experience, as views of the arrays; slots count through the environments of all actors."""
        known = int(self.terminal_known.sum())
        return Unroll(
            obs=tree_map(torch.from_numpy, self.obs),
            action=torch.from_numpy(self.action),
            done=torch.from_numpy(self.done),
            starts=torch.from_numpy(self.starts),
            terminal_obs=tree_map(lambda leaf: torch.from_numpy(leaf[:known]), self.terminal_obs) if known else None,
            terminal_known=torch.from_numpy(self.terminal_known),
            slots=torch.arange(self.num_envs) + self.actor * self.num_envs,
            policy_logits=torch.from_numpy(self.logits),
        )

    def lstm_state(self) -> tuple[Tensor, Tensor]:
        """h and c, each [layers, N, H]."""
        hidden, cell = torch.from_numpy(self.state)
        return hidden, cell

    def episodes(self) -> Episodes:
        """The episodes that ended here."""
        success = self.success[self.done].astype(np.float32)
        success[success == NO_SUCCESS_KNOWN] = np.nan
        return Episodes(self.episode_return[self.done], self.episode_length[self.done], success)


def _map_space(function: Callable[[Any], Any], space: gym.Space[Any]) -> Tree:
    if isinstance(space, gym.spaces.Dict):
        return {key: _map_space(function, part) for key, part in space.spaces.items()}
    if isinstance(space, gym.spaces.Tuple):
        return tuple(_map_space(function, part) for part in space.spaces)
    if space.shape is None or space.dtype is None or space.dtype.kind not in "biuf":
        raise ValueError(f"an observation of space {space} has no fixed-size array; drop or encode it first")
    return function(space)
