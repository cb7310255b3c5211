"""Rollout: the arrays that one actor fills and the learner reads: an unroll [T, N], rewards, logits and LSTM states.

The arrays are allocated once, in ordinary or in shared memory, and reused. There is room for the largest possible
number of terminal observations; rows that are never written use no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, TypeAlias

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agents.protocols import Episodes
from e3b_gym.buffer import UnrollBuffer
from e3b_gym.errors import UnsupportedSpaceError
from e3b_gym.options import Bound
from e3b_gym.unroll import Tree, Unroll, kept_as, tree_leaves, tree_map

Zeros: TypeAlias = Callable[[tuple[int, ...], Any], NDArray[Any]]

NO_SUCCESS_KNOWN = -1
# What `header` can hold.
Count: TypeAlias = Annotated[int, Bound(lambda value: 0 <= value < 2**62, "an integer from 0 to 2**62")]


@dataclass(frozen=True)
class StepRecord:
    """Results of the steps of an unroll, without observations: the arrays of `Rollout` with these names."""

    reward: NDArray[np.float32]
    done: NDArray[np.bool_]
    episode_return: NDArray[np.float32]
    episode_length: NDArray[np.int64]
    success: NDArray[np.int8]

    @classmethod
    def joined(cls, parts: Sequence[StepRecord]) -> StepRecord:
        """Returns several [T, N] as one, with the environments of all."""
        return cls(*(np.concatenate(arrays, axis=1) for arrays in zip(*(vars(p).values() for p in parts), strict=True)))

    def episodes(self) -> Episodes:
        """The episodes that ended here."""
        success = self.success[self.done].astype(np.float32)
        success[success == NO_SUCCESS_KNOWN] = np.nan
        return Episodes(self.episode_return[self.done], self.episode_length[self.done], success)


@dataclass
class Rollout(UnrollBuffer):
    """An `UnrollBuffer` with the other data that the learner needs.

    Attributes:
        reward: float32 [T, N], the environment's own.
        truncated: bool [T, N], the episode ended by its time limit alone.
        starts: bool [N], obs[0] opens an episode.
        state: float32 [2, layers, N, H], h and c of the LSTM before obs[0].
        episode_return, episode_length: float32, int64 [T, N]; of the episode so far.
        success: int8 [T, N]; 1 or 0 where an episode ended and the suite can tell, -1 elsewhere.
        header: int64 [2]: the actor's number, and the version of the weights it acted with.
    """

    logits: NDArray[np.float32]
    reward: NDArray[np.float32]
    truncated: NDArray[np.bool_]
    starts: NDArray[np.bool_]
    state: NDArray[np.float32]
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
            observation_space: observation space of one environment.
            num_actions: A.
            steps: T.
            num_envs: N.
            state_shape: layers and units of the LSTM.
            zeros: (shape, dtype) -> array; shared memory comes in here.
        """
        layers, units = state_shape
        lead = (steps, num_envs)
        return cls(
            obs=allocate_observations(observation_space, (steps + 1, num_envs), zeros),
            action=zeros(lead, np.int64),
            done=zeros(lead, np.bool_),
            terminal_known=zeros(lead, np.bool_),
            terminal_obs=allocate_observations(observation_space, lead, zeros),
            logits=zeros((*lead, num_actions), np.float32),
            reward=zeros(lead, np.float32),
            truncated=zeros(lead, np.bool_),
            starts=zeros((num_envs,), np.bool_),
            state=zeros((2, layers, num_envs, units), np.float32),
            episode_return=zeros(lead, np.float32),
            episode_length=zeros(lead, np.int64),
            success=zeros(lead, np.int8),
            header=zeros((2,), np.int64),
        )

    @property
    def steps(self) -> int:
        return len(self.action)

    @property
    def actor(self) -> int:
        return int(self.header[0])

    @property
    def version(self) -> int:
        return int(self.header[1])

    def unroll(self) -> Unroll:
        """The experience, as views of the arrays; slots count through the environments of all actors."""
        everything, slots = slice(None), torch.arange(self.num_envs) + self.actor * self.num_envs
        return self.read(everything, everything, self.starts, slots=slots)

    def packed(self) -> dict[str, Any]:
        """The arrays by name, for sending; of the terminal observations only the known ones, [K, ...]."""
        known = tree_map(lambda leaf: leaf[self.terminal_known], self.terminal_obs)
        return {**vars(self), "terminal_obs": known}

    def unpack(self, packed: Mapping[str, Any]) -> None:
        """Copies what `packed` gave into these arrays."""
        for name in vars(self):
            rows = self.terminal_known if name == "terminal_obs" else ...  # those were copied before
            for ours, theirs in zip(tree_leaves(getattr(self, name)), tree_leaves(packed[name]), strict=True):
                ours[rows] = theirs

    def lstm_state(self) -> tuple[Tensor, Tensor]:
        """h and c, each [layers, N, H]."""
        hidden, cell = torch.from_numpy(self.state)
        return hidden, cell

    def record(self) -> StepRecord:
        """A copy of the results of the steps."""
        copies = {field.name: getattr(self, field.name).copy() for field in fields(StepRecord)}
        return StepRecord(**copies)

    def episodes(self) -> Episodes:
        """The episodes that ended here."""
        return self.record().episodes()


def allocate_observations(space: gym.Space[Any], lead: tuple[int, ...], zeros: Zeros = np.zeros) -> Tree:
    """Tree of arrays [*lead, ...] for observations of a space.

    Args:
        space: space of one environment.
        lead: the leading sizes, such as (T+1, N).
        zeros: (shape, dtype) -> array, such as one in shared memory.
    """
    if isinstance(space, gym.spaces.Dict):
        return {key: allocate_observations(part, lead, zeros) for key, part in space.spaces.items()}
    if isinstance(space, gym.spaces.Tuple):
        return tuple(allocate_observations(part, lead, zeros) for part in space.spaces)
    if space.shape is None or space.dtype is None or space.dtype.kind not in "biuf":
        raise UnsupportedSpaceError("an observation", space, "it has no fixed-size array; drop or encode it first")
    return zeros((*lead, *space.shape), kept_as(space.dtype))
