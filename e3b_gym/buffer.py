"""Recorder: the latest steps of all environments, each observation stored once.

Observations go into a ring of buffers, so that the unroll of one step is a view of two neighbouring rows, and the whole
record is a view too as long as the ring has not turned. This is the wrapper's only copy of the experience. The ring is
numpy's, since its small operations cost a third of torch's.
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

from e3b_gym.errors import NonFiniteError
from e3b_gym.unroll import Tree, Unroll, kept_as, tree_leaves, tree_map


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
        self._ring: Tree = None  # tree of numpy arrays [capacity + 1, N, ...]
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
        if self._ring is None:
            self._ring = tree_map(lambda leaf: np.empty((self.capacity + 1, *leaf.shape), kept_as(leaf.dtype)), obs)
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
        """Records a step and returns it as an unroll of length 1. Arguments as in `Explorer.step`."""
        ended, starts = np.array(done, dtype=np.bool_), self._starts
        if restarted is not None and restarted.any():
            # A reset is written as a step without a known end: it pays nothing and pairs nothing.
            ended, starts = ended | restarted, starts & ~torch.from_numpy(restarted)
        known, last = np.zeros_like(ended), None
        if terminals:
            envs = sorted(terminals)
            known[envs] = True
            last = tree_map(lambda *leaves: np.stack(leaves), *(terminals[env] for env in envs))
            require_finite(last, "the last observation of an episode", envs)
            last = tree_map(lambda leaf: torch.from_numpy(leaf.astype(kept_as(leaf.dtype))), last)
        step = Unroll(
            obs=self._advance(obs),  # [2, N, ...]
            action=torch.from_numpy(action[None]),
            done=torch.from_numpy(ended[None]),
            starts=starts,
            terminal_obs=last,
            terminal_known=torch.from_numpy(known[None]),
            policy_logits=None if policy_logits is None else policy_logits[None],
        )
        self._starts = step.done[0]
        self._steps.append(step)
        return step

    def _advance(self, obs: Tree) -> Tree:
        """Writes `obs` behind the present observation; returns both."""
        before, self._row = self._row, (self._row + 1) % (self.capacity + 1)
        self._write(obs)
        if self._row > before:
            return self._rows(slice(before, before + 2))
        return self._rows([before, self._row])

    def _write(self, obs: Tree) -> None:
        require_finite(obs)
        for leaf, new in zip(tree_leaves(self._ring), tree_leaves(obs), strict=True):
            leaf[self._row] = new

    def _rows(self, rows: slice | list[int]) -> Tree:
        return tree_map(lambda leaf: torch.from_numpy(leaf[rows]), self._ring)

    def unroll(self) -> Unroll:
        """The recorded steps, oldest first."""
        steps = list(self._steps)
        terminals = [step.terminal_obs for step in steps if step.terminal_obs is not None]
        logits = [step.policy_logits for step in steps if step.policy_logits is not None]
        first = self._row - len(steps)
        # A ring that has turned is put in order by a copy.
        rows = slice(first, self._row + 1) if first >= 0 else [*range(first, self._row + 1)]
        return Unroll(
            obs=self._rows(rows),
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
            new.start(tree_map(lambda leaf: leaf[self._row], self._ring))
            new._starts = self._starts
        return new


def require_finite(tree: Tree, name: str = "the observation", envs: list[int] | None = None) -> None:
    """NaN is an error that names the leaf and the environment: row i is environment i, or `envs[i]`."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            require_finite(value, f"{name}[{key!r}]", envs)
    elif isinstance(tree, tuple):
        for i, value in enumerate(tree):
            require_finite(value, f"{name}[{i}]", envs)
    elif tree.dtype.kind == "f" and not np.isfinite(tree).all():
        bad = np.flatnonzero(~np.isfinite(tree).reshape(len(tree), -1).all(axis=1)).tolist()
        raise NonFiniteError(
            f"{name} has NaN or infinite values in environment {bad if envs is None else [envs[i] for i in bad]}; "
            "fix the environment, or clip its observations"
        )
