"""Features: the embeddings of an unroll, and the forward pass that computes them.

An unroll has (T+1) B observations and K terminal observations. `embed_unroll` passes all of them through the network in
one batch and returns the embedding before and after every step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from e3b_gym.unroll import Tree, Unroll, tree_map


@dataclass(frozen=True)
class Features:
    """Embeddings of an unroll.

    Example:
        >>> import torch
        >>> from e3b_gym import Unroll, embed_unroll
        >>> done, starts = torch.zeros(2, 1, dtype=torch.bool), torch.ones(1, dtype=torch.bool)
        >>> unroll = Unroll(torch.arange(3.0).reshape(3, 1, 1), torch.zeros(2, 1), done, starts)
        >>> features = embed_unroll(lambda rows: 10 * rows, unroll)
        >>> features.current.flatten().tolist(), features.next.flatten().tolist()
        ([0.0, 10.0], [10.0, 20.0])
    """

    trajectory: Tensor
    """[T+1, B, d]: embeddings of `unroll.obs`."""

    next: Tensor
    """[T, B, d]: embeddings of `unroll.next_obs`, terminal observations included."""

    @property
    def current(self) -> Tensor:
        """[T, B, d]: embeddings of the observation that each step starts from."""
        return self.trajectory[:-1]


def embed_unroll(encode: Callable[[Tree], Tensor], unroll: Unroll, previous: Features | None = None) -> Features:
    """Embeds every observation of an unroll in one call of `encode` (tree of [rows, ...] -> [rows, d]).

    Args:
        encode: the network.
        unroll: the experience.
        previous: features of the preceding unroll, computed with the same weights; obs[0] is then not embedded again.
            For a wrapper that scores single steps, this halves the work.
    """
    skip = 0 if previous is None else 1
    rows = tree_map(lambda leaf: leaf[skip:].flatten(0, 1), unroll.obs)  # [(T+1-skip) B, ...]
    if unroll.terminal_obs is not None:
        rows = tree_map(lambda leaf, last: torch.cat([leaf, last.to(leaf.dtype)]), rows, unroll.terminal_obs)
    phi = encode(rows)  # [(T+1-skip) B + K, d]
    steps, envs = unroll.num_steps, unroll.num_envs
    trajectory = phi[: (steps + 1 - skip) * envs].reshape(steps + 1 - skip, envs, -1)
    if previous is not None:
        trajectory = torch.cat([previous.trajectory[-1:], trajectory])  # [T+1, B, d]
    terminals = None if unroll.terminal_obs is None else phi[(steps + 1 - skip) * envs :]
    return Features(trajectory, unroll.put_terminals(trajectory[1:], terminals))
