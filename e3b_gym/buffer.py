"""Buffers of experience: arrays [T+1, N] that an actor or a wrapper fills and that are read as an Unroll.

    obs[0] -action[0]-> obs[1] -action[1]-> ... -> obs[T]

Each observation is stored once. The last observations of ended episodes have an array of their own, of which only the
rows that are written cost memory. `UnrollBuffer` is the layout, in ordinary or in shared memory. `Recorder` fills one
as a ring, so that the latest T steps can be read at any time. The arrays are numpy's, whose small operations cost a
third of torch's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from e3b_gym.errors import NonFiniteError, UnsupportedSpaceError
from e3b_gym.unroll import Tree, Unroll, kept_as, tree_leaves, tree_map

Rows: TypeAlias = slice | list[int]
Zeros: TypeAlias = Callable[[tuple[int, ...], Any], NDArray[Any]]


@dataclass
class UnrollBuffer:
    """Arrays of T steps of N environments. A ring has T+1 rows in every array, the last one unused.

    Attributes:
        obs: tree of [T+1, N, ...].
        action: [T, N, ...].
        done: bool [T, N].
        terminal_known: bool [T, N].
        terminal_obs: tree of [T, N, ...]; filled where `terminal_known`.
        logits: float32 [T, N, A], of the policy that acted, or None.
    """

    obs: Tree
    action: NDArray[Any]
    done: NDArray[np.bool_]
    terminal_known: NDArray[np.bool_]
    terminal_obs: Tree
    logits: NDArray[np.float32] | None

    @classmethod
    def like(cls, obs: Tree, action: NDArray[Any], rows: int) -> UnrollBuffer:
        """Room for `rows` rows of what looks like `obs` and `action`, each [N, ...]."""

        def empty(leaf: NDArray[Any]) -> NDArray[Any]:
            return np.empty((rows, *leaf.shape), kept_as(leaf.dtype))

        lead = (rows, len(action))
        return cls(
            obs=tree_map(empty, obs),
            action=np.empty((rows, *action.shape), action.dtype),
            done=np.zeros(lead, np.bool_),
            terminal_known=np.zeros(lead, np.bool_),
            terminal_obs=tree_map(empty, obs),
            logits=None,
        )

    @property
    def num_envs(self) -> int:
        return self.done.shape[1]

    def write_obs(self, row: int, obs: Tree) -> None:
        """`obs`: tree of [N, ...]."""
        write_row(self.obs, row, obs)

    def write_step(
        self, row: int, action: NDArray[Any], done: NDArray[np.bool_], last_observations: Mapping[int, Tree]
    ) -> None:
        """The step that leaves obs[row]; `last_observations` by environment, where an episode ended and it is known."""
        self.action[row], self.done[row] = action, done
        self.terminal_known[row] = False
        for env, last in last_observations.items():
            self.terminal_known[row, env] = True
            write_row(self.terminal_obs, (row, env), last)

    def read(
        self,
        obs_rows: Rows,
        step_rows: Rows,
        starts: NDArray[np.bool_],
        *,
        slots: Tensor | None = None,
        with_logits: bool = True,
    ) -> Unroll:
        """Some rows as an Unroll, of views where the rows are slices.

        Args:
            obs_rows: of the observations, one more than steps.
            step_rows: of the steps.
            starts: bool [N], the first observation opens an episode.
            slots: which environments the columns are; see `Unroll`.
            with_logits: whether the steps have the policy's logits.
        """
        known = self.terminal_known[step_rows]
        last = None
        if known.any():
            last = tree_map(lambda leaf: torch.from_numpy(leaf[step_rows][known]), self.terminal_obs)
        return Unroll(
            obs=tree_map(lambda leaf: torch.from_numpy(leaf[obs_rows]), self.obs),
            action=torch.from_numpy(self.action[step_rows]),
            done=torch.from_numpy(self.done[step_rows]),
            starts=torch.from_numpy(starts),
            terminal_obs=last,
            terminal_known=torch.from_numpy(known),
            slots=slots,
            policy_logits=torch.from_numpy(self.logits[step_rows]) if with_logits and self.logits is not None else None,
        )


class Recorder:
    """Keeps up to `capacity` consecutive steps of `num_envs` environments.

    Args:
        capacity: how many of the latest steps are kept; older ones are dropped.
        num_envs: how many environments step together.
    """

    def __init__(self, capacity: int, num_envs: int) -> None:
        if capacity < 1:
            raise ValueError(f"at least 1 step must be recorded; got {capacity}")
        self.capacity = capacity
        self.num_envs = num_envs
        self._present: Tree = None  # until the first step, when the buffer is made
        self._buffer: UnrollBuffer | None = None
        self._row = 0  # of the present observation
        self._count = 0  # of recorded steps, which end at `_row`
        self._with_logits = 0  # how many of the latest steps have the policy's logits
        self._starts = np.ones(num_envs, dtype=np.bool_)  # the present observation opens an episode
        self._step_starts = np.ones((capacity + 1, num_envs), dtype=np.bool_)

    def __len__(self) -> int:
        return self._count

    @property
    def full(self) -> bool:
        return self._count == self.capacity

    @property
    def started(self) -> bool:
        """Whether there is a present observation."""
        return self._present is not None or self._buffer is not None

    def start(self, obs: Tree) -> None:
        """All environments were reset to `obs` (tree of arrays [N, ...]), wherever they were before."""
        if self._buffer is None:
            self._present = tree_map(np.array, obs)
        else:
            if self._count:
                # The last step's arrival is overwritten here, so it becomes an end whose observation is not known.
                self._buffer.done[self._row - 1] = True
            self._buffer.write_obs(self._row, obs)
        self._starts = np.ones(self.num_envs, dtype=np.bool_)

    def add(
        self,
        action: NDArray[Any],
        obs: Tree,
        done: NDArray[np.bool_],
        last_observations: Mapping[int, Tree],
        *,
        restarted: NDArray[np.bool_] | None = None,
        policy_logits: Tensor | None = None,
    ) -> Unroll:
        """Records a step and returns it as an unroll of length 1. Arguments as in `OnlineExplorer.step`."""
        ended, starts = np.array(done, dtype=np.bool_), self._starts
        if restarted is not None:
            # A reset is written as a step without a known end: it gets no bonus and no dynamics pair.
            ended, starts = ended | restarted, starts & ~restarted
        buffer, row = self._made_for(action), self._row
        buffer.write_step(row, action, ended, last_observations)
        self._keep_logits(buffer, row, policy_logits)
        self._step_starts[row] = starts
        self._starts = ended
        self._row = (row + 1) % (self.capacity + 1)
        self._count = min(self._count + 1, self.capacity)
        buffer.write_obs(self._row, obs)
        return self._latest(1)

    def _made_for(self, action: NDArray[Any]) -> UnrollBuffer:
        if self._buffer is None:
            self._buffer = UnrollBuffer.like(self._present, action, self.capacity + 1)
            self._buffer.write_obs(0, self._present)
            self._present = None
        return self._buffer

    def _keep_logits(self, buffer: UnrollBuffer, row: int, logits: Tensor | None) -> None:
        self._with_logits = 0 if logits is None else self._with_logits + 1
        if logits is not None:
            if buffer.logits is None:
                buffer.logits = np.zeros((self.capacity + 1, *logits.shape), np.float32)
            buffer.logits[row] = logits.numpy()

    def unroll(self) -> Unroll:
        """The recorded steps, oldest first."""
        return self._latest(self._count)

    def _latest(self, steps: int) -> Unroll:
        if self._buffer is None or steps == 0:
            raise ValueError("nothing is recorded yet; step the environments first")
        first, last = self._row - steps, self._row
        # Rows of a ring that has turned are put in order by a copy. Negative rows count from the ring's end.
        turned = first < 0
        step_rows: Rows = [*range(first, last)] if turned else slice(first, last)
        obs_rows: Rows = [*range(first, last + 1)] if turned else slice(first, last + 1)
        return self._buffer.read(obs_rows, step_rows, self._step_starts[first], with_logits=self._with_logits >= steps)

    def clear(self) -> None:
        """Forgets the steps; the present observation stays."""
        self._count = self._with_logits = 0
        if self._buffer is not None:
            for leaf in tree_leaves(self._buffer.obs):
                leaf[0] = leaf[self._row]
        self._row = 0

    def resized(self, capacity: int) -> Recorder:
        """An empty recorder for `capacity` steps that continues from the present observation."""
        new = Recorder(capacity, self.num_envs)
        if self.started:
            buffer, row = self._buffer, self._row
            new.start(self._present if buffer is None else tree_map(lambda leaf: leaf[row], buffer.obs))
            new._starts = self._starts
        return new


def write_row(tree: Tree, row: int | tuple[int, int], values: Tree) -> None:
    """Writes `values` into a row of every leaf."""
    for leaf, value in zip(tree_leaves(tree), tree_leaves(values), strict=True):
        leaf[row] = value


def allocate_observations(space: gym.Space[Any], lead: tuple[int, ...], zeros: Zeros = np.zeros) -> Tree:
    """Tree of arrays [*lead, ...] for observations of a space.

    Args:
        space: of one environment.
        lead: the leading sizes, such as (T+1, N).
        zeros: (shape, dtype) -> array; shared memory comes in here.
    """
    if isinstance(space, gym.spaces.Dict):
        return {key: allocate_observations(part, lead, zeros) for key, part in space.spaces.items()}
    if isinstance(space, gym.spaces.Tuple):
        return tuple(allocate_observations(part, lead, zeros) for part in space.spaces)
    if space.shape is None or space.dtype is None or space.dtype.kind not in "biuf":
        raise UnsupportedSpaceError("an observation", space, "it has no fixed-size array; drop or encode it first")
    return zeros((*lead, *space.shape), kept_as(space.dtype))


def require_finite_step(obs: Tree, reward: NDArray[Any] | None, last_observations: Mapping[int, Tree]) -> None:
    """The gate for what environments report: NaN or infinity is an error that names the value and the environment."""
    _require_finite(obs, "the observation")
    for env, last in last_observations.items():
        rows = tree_map(lambda leaf: np.asarray(leaf)[None], last)
        _require_finite(rows, "the last observation of an episode", [env])
    if reward is not None and not np.isfinite(reward).all():
        bad = np.flatnonzero(~np.isfinite(reward)).tolist()
        raise NonFiniteError(f"the reward of environment {bad} is NaN or infinite; fix the environment")


def _require_finite(tree: Tree, name: str, envs: list[int] | None = None) -> None:
    """Row i of each leaf is environment i, or `envs[i]`."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            _require_finite(value, f"{name}[{key!r}]", envs)
    elif isinstance(tree, tuple):
        for i, value in enumerate(tree):
            _require_finite(value, f"{name}[{i}]", envs)
    elif tree.dtype.kind == "f" and not np.isfinite(tree).all():
        bad = np.flatnonzero(~np.isfinite(tree).reshape(len(tree), -1).all(axis=1)).tolist()
        raise NonFiniteError(
            f"{name} has NaN or infinite values in environment {bad if envs is None else [envs[i] for i in bad]}; "
            "fix the environment, or clip its observations"
        )
