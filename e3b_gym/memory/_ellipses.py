"""Ellipses: the state of the elliptical memory, in the form that both backends use and that is saved."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

BLOCK = 32  # rows scored at once

# Below this share of |z|^2 the float64 difference |z|^2 - |N Z z|^2 has lost too many digits, and b is computed from
# the residual. In a float64 memory the residual is always more accurate.
TRUST = {torch.float32: 1e-6, torch.float64: 1.0}


def capacity(dim: int) -> int:
    """Returns how many rows of an episode are stored before they are folded into the matrix.

    More than d: the condition number is largest when the rows just span the space; after that, rounding the root to
    float32 loses nothing.
    """
    return max(BLOCK, dim + dim // 4)


class Ellipses(ABC):
    """State of `num_envs` ellipses: pending rows Z, and M' where they have been folded; see `elliptical.py`.

    Args:
        num_envs: number of environment slots, S.
        dim: length d of an embedding.
        ridge: lambda > 0.
        like: an empty tensor of the dtype and on the device of the embeddings.
    """

    rows: Tensor  # [S, K, d], Z

    def __init__(self, num_envs: int, dim: int, ridge: float, like: Tensor) -> None:
        self.num_envs = num_envs
        self.dim = dim
        self.ridge = ridge

    @abstractmethod
    def advance(
        self, phi: Tensor, clear: Tensor, slots: Tensor, opening: Tensor | None, entry: Tensor | None
    ) -> Tensor:
        """Scores and adds phi [T, n, d]; `clear` [T, n] clears an ellipse before that row.

        Where `entry` [T, n] >= 0, that row of `opening` [K, d] is added unscored, after clearing.
        """

    @abstractmethod
    def clear(self, slots: Tensor) -> None: ...

    @abstractmethod
    def room(self, folded: bool) -> int:
        """Returns the largest number of pending rows."""

    @abstractmethod
    def export(self, slot: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """Returns copies of the pending rows [k, d], the triangle of their N, and M' [d, d] or None."""

    @abstractmethod
    def restore(self, slot: int, rows: Tensor, triangle: Tensor, matrix: Tensor | None) -> None:
        """The inverse of `export`."""

    def state(self) -> dict[str, Tensor]:
        parts = [self.export(slot) for slot in range(self.num_envs)]
        i, j = torch.tril_indices(self.dim, self.dim)
        empty = torch.empty(0, len(i), dtype=self.rows.dtype, device=self.rows.device)
        return {
            "count": torch.tensor([len(rows) for rows, _, _ in parts]),
            "folded": torch.tensor([matrix is not None for _, _, matrix in parts]),
            "rows": torch.cat([rows for rows, _, _ in parts]),
            "inverse": torch.cat([triangle for _, triangle, _ in parts]),
            "matrix": torch.cat([empty] + [matrix[i, j].unsqueeze(0) for _, _, matrix in parts if matrix is not None]),
        }

    def state_shapes(self, state: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        count, has_matrix = state.get("count"), state.get("folded")
        counts = count.clamp(min=0).tolist() if isinstance(count, Tensor) else []
        matrices = int(has_matrix.sum()) if isinstance(has_matrix, Tensor) else 0
        return {
            "count": ((self.num_envs,), torch.long),
            "folded": ((self.num_envs,), torch.bool),
            "rows": ((sum(counts), self.dim), self.rows.dtype),
            "inverse": ((sum(c * (c + 1) // 2 for c in counts),), torch.float64),
            "matrix": ((matrices, self.dim * (self.dim + 1) // 2), self.rows.dtype),
        }

    def load(self, state: dict[str, Tensor]) -> None:
        counts = state["count"].tolist()
        rows = torch.split(state["rows"], counts)
        triangles = torch.split(state["inverse"], [c * (c + 1) // 2 for c in counts])
        packed = iter(state["matrix"])
        i, j = torch.tril_indices(self.dim, self.dim)
        for slot, has_matrix in enumerate(state["folded"].tolist()):
            pending, triangle, matrix = rows[slot], triangles[slot], None
            if has_matrix:
                matrix = pending.new_zeros(self.dim, self.dim)
                matrix[i, j] = next(packed)
            if len(pending) > self.room(has_matrix):  # saved by the other backend
                whole = torch.eye(self.dim).to(pending) if matrix is None else matrix
                prior = torch.tensor([1.0 if has_matrix else self.ridge], dtype=torch.float64).to(self.rows.device)
                matrix = fold_into(whole.unsqueeze(0), pending.unsqueeze(0), prior)[0]
                pending, triangle = pending[:0], triangle[:0]
            self.restore(slot, pending, triangle, matrix)


def fold_into(matrix: Tensor, rows: Tensor, prior: Tensor) -> Tensor:
    """Returns M' [n, d, d] with rows Z [n, k, d] folded in: L^-1 M', L L' = prior I + Z'Z, in float64; prior [n]."""
    z = rows.double()
    eye = torch.eye(z.shape[-1], dtype=torch.float64, device=z.device) * prior.double().view(-1, 1, 1)
    factor, failed = torch.linalg.cholesky_ex(eye + z.mT @ z)
    if bool(failed.any()):  # rows so long that their squares round the prior away: factor without squaring
        factor = torch.linalg.qr(torch.cat([eye.sqrt(), z], dim=1), mode="r").R.mT
    product: Tensor = torch.linalg.solve_triangular(factor, matrix.double(), upper=False)
    return product.tril().to(matrix.dtype)
