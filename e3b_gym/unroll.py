"""Unroll: T consecutive steps of B environments, the unit of experience that every bonus reads.

    obs[0] -action[0]-> obs[1] -action[1]-> ... -action[T-1]-> obs[T]

`obs` has T+1 rows: consecutive unrolls share one row, so every step has both its observations here. Where a step ends
its episode (`done`), obs[t+1] is the first observation of the next episode; the terminal observation is stored in
`terminal_obs`, and `next_obs` inserts it. A single environment step is an unroll of length 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor

# A tensor, or a nested dict or tuple of tensors: a batch of samples of a Gymnasium Dict or Tuple space.
Tree: TypeAlias = Any


def tree_map(function: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """Applies `function` to the corresponding leaves of trees that have the same structure."""
    if isinstance(tree, dict):
        return {key: tree_map(function, value, *(other[key] for other in others)) for key, value in tree.items()}
    if isinstance(tree, tuple):
        return tuple(tree_map(function, *leaves) for leaves in zip(tree, *others, strict=True))
    return function(tree, *others)


def tree_leaves(tree: Tree) -> list[Any]:
    """Returns the leaves of a tree; the entries of a dict are sorted by key."""
    if isinstance(tree, dict):
        return [leaf for key in sorted(tree) for leaf in tree_leaves(tree[key])]
    if isinstance(tree, tuple):
        return [leaf for part in tree for leaf in tree_leaves(part)]
    return [tree]


def kept_as(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Returns the dtype used to store values of `dtype`: torch has few operations on wide unsigned integers."""
    return np.dtype(np.int64) if dtype.kind == "u" and dtype.itemsize > 1 else dtype


@dataclass(frozen=True)
class Unroll:
    """T steps of B environments. All tensors are time-major.

    Examples:
        >>> import torch
        >>> from e3b_gym import Unroll
        >>> unroll = Unroll(
        ...     obs=torch.zeros(3, 1, 4),  # T = 2 steps of B = 1 environment
        ...     action=torch.zeros(2, 1, dtype=torch.int64),
        ...     done=torch.tensor([[True], [False]]),  # the first step ends its episode
        ...     starts=torch.tensor([True]),
        ...     terminal_obs=torch.ones(1, 4),  # the observation that the first step arrived in
        ... )
        >>> unroll.next_obs[:, 0, 0]
        tensor([1., 0.])
        >>> unroll.first[:, 0]
        tensor([True, True])
    """

    obs: Tree
    """Tree of [T+1, B, ...]: action[t] was chosen at obs[t]."""

    action: Tensor
    """[T, B, ...]."""

    done: Tensor
    """[T, B] bool: True where the step ended its episode, by termination or truncation."""

    starts: Tensor
    """[B] bool: True where obs[0] is the first observation of an episode."""

    terminal_obs: Tree = None
    """Tree of [K, ...]: terminal observations, one row for every True of `terminal_known` in row-major order.
    None if K = 0."""

    terminal_known: Tensor | None = None
    """[T, B] bool: the done steps that have a row in `terminal_obs`. Default: all of them if `terminal_obs` is given,
    otherwise none. A done step without a row gets no bonus and no dynamics pair."""

    slots: Tensor | None = None
    """[B] int64: index of each column's environment; default 0..B-1. Memories are indexed by slot."""

    policy_logits: Tensor | None = None
    """[T, B, A]: logits of the acting policy at obs[:-1]; read by policy-divergence bonuses only."""

    mean_count: Tensor | None = None
    """Scalar: what `mean` divides by; default: the number of `valid` steps. Learners that average their gradients set
    their average number, so that the average of their means is the mean over the steps of all."""

    def __post_init__(self) -> None:
        if self.done.ndim != 2 or self.done.dtype != torch.bool:
            raise ValueError(f"done must be bool [T, B]; got {self.done.dtype} {tuple(self.done.shape)}")
        steps, envs = self.done.shape
        if self.starts.shape != (envs,) or self.starts.dtype != torch.bool:
            raise ValueError(f"starts must be bool [{envs}]; got {self.starts.dtype} {tuple(self.starts.shape)}")
        for leaf in tree_leaves(self.obs):
            if leaf.shape[:2] != (steps + 1, envs):
                raise ValueError(
                    f"every leaf of obs must be [T+1, B, ...] = [{steps + 1}, {envs}, ...] for done [{steps}, {envs}]; "
                    f"got {tuple(leaf.shape)}"
                )
        if self.action.shape[:2] != (steps, envs):
            raise ValueError(f"action must be [{steps}, {envs}, ...]; got {tuple(self.action.shape)}")
        if self.slots is not None and self.slots.shape != (envs,):
            raise ValueError(f"slots must be [{envs}]; got {tuple(self.slots.shape)}")
        self._check_terminals()

    def _check_terminals(self) -> None:
        """Sets the default of `terminal_known` and checks it against `terminal_obs`."""
        known = self.terminal_known
        if known is None:
            known = self.done if self.terminal_obs is not None else torch.zeros_like(self.done)
            object.__setattr__(self, "terminal_known", known)
        elif known.shape != self.done.shape or bool((known & ~self.done).any()):
            raise ValueError(f"terminal_known must mark done steps only, in the shape {tuple(self.done.shape)} of done")
        if self.terminal_obs is None:
            if bool(known.any()):
                raise ValueError("terminal_known marks steps, but terminal_obs is missing; pass both or neither")
            return
        rows = int(known.sum())
        for leaf in tree_leaves(self.terminal_obs):
            if leaf.shape[0] != rows:
                raise ValueError(
                    f"terminal_obs must have one row for each of the {rows} known terminal steps; got {leaf.shape[0]}"
                )
        if rows == 0:
            object.__setattr__(self, "terminal_obs", None)

    @property
    def num_steps(self) -> int:
        return self.done.shape[0]

    @property
    def num_envs(self) -> int:
        return self.done.shape[1]

    @property
    def known(self) -> Tensor:
        """[T, B] bool: `terminal_known` with its default filled in."""
        return cast(Tensor, self.terminal_known)  # set in __post_init__

    @property
    def first(self) -> Tensor:
        """[T, B] bool: step t is the first of its episode, so obs[t] is the episode's first observation."""
        return torch.cat([self.starts[None], self.done[:-1]]) if self.num_steps else self.done

    @property
    def valid(self) -> Tensor:
        """[T, B] bool: the next observation of the step is known."""
        return ~self.done | self.known

    @property
    def next_obs(self) -> Tree:
        """Tree of [T, B, ...]: the next observation of each step, terminal observations included; undefined where not
        `valid`."""
        arrived = tree_map(lambda leaf: leaf[1:], self.obs)
        return self.put_terminals(arrived, self.terminal_obs)

    def put_terminals(self, rows: Tree, terminals: Tree) -> Tree:
        """Returns `rows` [T, B, ...] with `terminals` [K, ...] at the known terminal steps; a copy unless K = 0."""
        if terminals is None:
            return rows

        def put(leaf: Tensor, last: Tensor) -> Tensor:
            return leaf.index_put((self.known,), last)

        return tree_map(put, rows, terminals)

    def masked(self, values: Tensor) -> Tensor:
        """Returns `values` [T, B] with zeros where the next observation is not known."""
        return torch.where(self.valid, values, torch.zeros((), dtype=values.dtype, device=values.device))

    def mean(self, values: Tensor) -> Tensor:
        """Returns the scalar mean of `values` [T, B] over the steps whose next observation is known."""
        count = self.valid.sum().clamp(min=1) if self.mean_count is None else self.mean_count
        return self.masked(values).sum() / count

    def to(self, device: torch.device) -> Unroll:
        """Returns the unroll on `device`; itself if it is there."""
        if self.done.device == device:
            return self

        def move(tree: Tree) -> Tree:
            return None if tree is None else tree_map(lambda leaf: leaf.to(device), tree)

        return replace(self, **{name: move(value) for name, value in vars(self).items()})

    def window(self, start: int, stop: int) -> Unroll:
        """Returns steps start..stop-1 as a separate unroll."""
        if not 0 <= start <= stop <= self.num_steps:
            raise ValueError(f"a window must lie within 0..{self.num_steps}; got {start}..{stop}")
        before, within = int(self.known[:start].sum()), int(self.known[start:stop].sum())
        return replace(
            self,
            obs=tree_map(lambda leaf: leaf[start : stop + 1], self.obs),
            action=self.action[start:stop],
            done=self.done[start:stop],
            starts=self.done[start - 1] if start else self.starts,
            terminal_obs=tree_map(lambda leaf: leaf[before : before + within], self.terminal_obs)
            if self.terminal_obs is not None
            else None,
            terminal_known=self.known[start:stop],
            mean_count=None,
            policy_logits=None if self.policy_logits is None else self.policy_logits[start:stop],
        )

    def columns(self, index: Tensor) -> Unroll:
        """Returns the environments in columns `index` [B'], in that order, as a separate unroll."""
        row = torch.full(self.done.shape, -1, dtype=torch.int64, device=self.done.device)
        row[self.known] = torch.arange(int(self.known.sum()), device=row.device)
        chosen = row[:, index]  # [T, B'] the row of terminal_obs, or -1
        rows = chosen[chosen >= 0]
        slots = self.slots if self.slots is not None else torch.arange(self.num_envs, device=row.device)
        return replace(
            self,
            obs=tree_map(lambda leaf: leaf[:, index], self.obs),
            action=self.action[:, index],
            done=self.done[:, index],
            starts=self.starts[index],
            terminal_obs=None if self.terminal_obs is None else tree_map(lambda leaf: leaf[rows], self.terminal_obs),
            terminal_known=self.known[:, index],
            slots=slots[index],
            mean_count=None,
            policy_logits=None if self.policy_logits is None else self.policy_logits[:, index],
        )
