"""Recorder: the latest steps of all environments, each observation stored once.

Observations go into a ring of buffers, so that the unroll of one step is a view of two neighbouring rows, and the whole
record is a view too as long as the ring has not turned. This is the wrapper's only copy of the experience.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from e3b_gym.unroll import Tree, Unroll, tree_leaves, tree_map


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
        self._steps: deque[Unroll] = deque(maxlen=capacity)
        self._ring: Tree = None  # tree of [capacity + 1, N, ...]
        self._row = 0  # of the present observation
        self._starts = torch.ones(num_envs, dtype=torch.bool)

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def full(self) -> bool:
        return len(self._steps) == self.capacity

    @property
    def started(self) -> bool:
        """Whether there is a present observation."""
        return self._ring is not None

    def start(self, obs: Tree) -> None:
        """All environments were reset to `obs` (tree of arrays [N, ...]), wherever they were before."""
        obs = as_tensors(obs)
        if self._ring is None:
            self._ring = tree_map(lambda leaf: leaf.new_empty((self.capacity + 1, *leaf.shape)), obs)
        if self._steps:
            # The last step's arrival is overwritten here, so it becomes an end that nobody saw.
            last = self._steps.pop()
            self._steps.append(replace(last, done=torch.ones_like(last.done)))
        self._write(obs)
        self._starts = torch.ones(self.num_envs, dtype=torch.bool)

    def add(
        self,
        action: NDArray[Any],
        obs: Tree,
        done: NDArray[np.bool_],
        terminals: Mapping[int, Tree],
        *,
        restarted: NDArray[np.bool_] | None = None,
        policy_logits: Tensor | None = None,
    ) -> Unroll:
        """Records a step and returns it as an unroll of length 1. Arguments as in `BonusEngine.step`."""
        ended, starts = torch.as_tensor(done, dtype=torch.bool), self._starts
        if restarted is not None and restarted.any():
            # A reset is written as a step without a known end: it pays nothing and pairs nothing.
            again = torch.as_tensor(restarted, dtype=torch.bool)
            ended, starts = ended | again, starts & ~again
        known, last = torch.zeros_like(ended), None
        if terminals:
            envs = sorted(terminals)
            known[envs] = True
            rows = tree_map(lambda *leaves: np.stack(leaves), *(terminals[env] for env in envs))
            last = as_tensors(rows, "the last observation of an episode", envs)
        step = Unroll(
            obs=self._advance(as_tensors(obs)),  # [2, N, ...]
            action=torch.as_tensor(action)[None],
            done=ended[None],
            starts=starts,
            terminal_obs=last,
            terminal_known=known[None],
            policy_logits=None if policy_logits is None else policy_logits[None],
        )
        self._starts = ended
        self._steps.append(step)
        return step

    def _advance(self, obs: Tree) -> Tree:
        """Writes `obs` behind the present observation; returns both."""
        before, self._row = self._row, (self._row + 1) % (self.capacity + 1)
        self._write(obs)
        if self._row > before:
            return tree_map(lambda leaf: leaf[before : before + 2], self._ring)
        return tree_map(lambda leaf: leaf[[before, self._row]], self._ring)

    def _write(self, obs: Tree) -> None:
        for row, leaf in zip(tree_leaves(self._ring), tree_leaves(obs), strict=True):
            row[self._row] = leaf

    def unroll(self) -> Unroll:
        """The recorded steps, oldest first."""
        steps = list(self._steps)
        terminals = [step.terminal_obs for step in steps if step.terminal_obs is not None]
        logits = [step.policy_logits for step in steps if step.policy_logits is not None]
        first = self._row - len(steps)
        # A ring that has turned is put in order by a copy.
        rows = slice(first, self._row + 1) if first >= 0 else [*range(first, self._row + 1)]
        return Unroll(
            obs=tree_map(lambda leaf: leaf[rows], self._ring),
            action=torch.cat([step.action for step in steps]),
            done=torch.cat([step.done for step in steps]),
            starts=steps[0].starts,
            terminal_obs=tree_map(lambda *leaves: torch.cat(leaves), *terminals) if terminals else None,
            terminal_known=torch.cat([step.known for step in steps]),
            policy_logits=torch.cat(logits) if len(logits) == len(steps) else None,
        )

    def clear(self) -> None:
        """Forgets the steps; the present observation stays."""
        self._steps.clear()
        if self._ring is not None:
            for leaf in tree_leaves(self._ring):
                leaf[0] = leaf[self._row]
        self._row = 0

    def resized(self, capacity: int) -> Recorder:
        """An empty recorder for `capacity` steps that goes on from the present observation."""
        new = Recorder(capacity, self.num_envs)
        if self._ring is not None:
            new.start(tree_map(lambda leaf: leaf[self._row].numpy(), self._ring))
            new._starts = self._starts
        return new


def as_tensors(tree: Tree, name: str = "the observation", envs: list[int] | None = None) -> Tree:
    """A tree of arrays [rows, ...] as tensors, sharing memory where they can.

    NaN is an error that names the leaf and the environment: row i is environment i, or `envs[i]`.
    """
    if isinstance(tree, dict):
        return {key: as_tensors(value, f"{name}[{key!r}]", envs) for key, value in tree.items()}
    if isinstance(tree, tuple):
        return tuple(as_tensors(value, f"{name}[{i}]", envs) for i, value in enumerate(tree))
    array = np.ascontiguousarray(tree)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        bad = np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(axis=1)).tolist()
        raise ValueError(
            f"{name} has NaN or infinite values in environment {bad if envs is None else [envs[i] for i in bad]}; "
            "fix the environment, or clip its observations"
        )
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)  # torch has few operations on wide unsigned integers
    if not array.flags.writeable:
        array = array.copy()
    return torch.from_numpy(array)
