"""The elliptical memory as batched torch blocks: for a GPU, and for a CPU without numba.

The equations of `elliptical.py`, for a block of T rows of n environments at once. With L = chol(I + Z Z') over pending
and new rows and N = L^-1, row t of N is (-h_t, 1) / L_tt, so one triangular inverse gives every regression in the
block. Rows of different episodes have their products masked out: the Gram matrix, and with it N, falls into blocks.
"""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 32  # rows scored at once


class TorchEllipses:
    """State of `num_envs` ellipses; up to `capacity` rows wait until they are folded in."""

    def __init__(self, num_envs: int, dim: int, unit: float, like: Tensor) -> None:
        capacity = max(BLOCK, dim // 4)
        self.unit = unit
        self.capacity = capacity
        self.matrix = torch.eye(dim).to(like).mul(unit).repeat(num_envs, 1, 1)  # [S, d, d], M', lower triangular
        self.rows = like.new_zeros(num_envs, capacity, dim)  # [S, K, d], Z
        self.inverse = self.rows.new_zeros(num_envs, capacity, capacity, dtype=torch.float64)  # [S, K, K], N
        self.count = torch.zeros(num_envs, dtype=torch.long)  # rows in use, on the CPU
        self.folded = torch.zeros(num_envs, dtype=torch.bool)

    def advance(self, phi: Tensor, clear: Tensor, slots: Tensor) -> Tensor:
        """Score and enter phi [T, n, d] block by block; `clear` [T, n] empties an ellipse before its row."""
        blocks = zip(torch.split(phi, BLOCK), torch.split(clear, BLOCK), strict=True)
        return torch.cat([self._advance_block(rows.transpose(0, 1), c.T, slots) for rows, c in blocks])

    def _advance_block(self, phi: Tensor, clear: Tensor, slots: Tensor) -> Tensor:
        """phi [n, T, d], clear [n, T] -> bonus [T, n]."""
        steps = phi.shape[1]
        here = slots.cpu()
        if int(self.count[here].max()) + steps > self.capacity:
            self.fold(slots)
        start = int(self.count[here].max())
        stop = start + steps
        episode = clear.long().cumsum(1)  # [n, T], 0: continues from before the block
        old = (episode == 0).unsqueeze(-1)  # [n, T, 1]
        z = torch.where(old, phi @ self.matrix[slots].mT, phi * self.unit)  # [n, T, d]
        pending, inverse = self.rows[slots, :start], self.inverse[slots, :start, :start]
        cross = (z.double() @ pending.double().mT) * old  # [n, T, start]
        together = episode.unsqueeze(1) == episode.unsqueeze(2)  # [n, T, T]
        gram = (z.double() @ z.double().mT) * together
        explained = cross @ inverse.mT
        size = gram.diagonal(dim1=1, dim2=2)
        # rounding of the Gram matrix may not make it indefinite, however large the rows
        ridge = 1 + 4 * stop * torch.finfo(torch.float64).eps * size
        factor = torch.linalg.cholesky(gram - explained @ explained.mT + torch.diag_embed(ridge))
        unit = torch.eye(steps, dtype=torch.float64, device=phi.device).expand_as(factor)
        corner = torch.linalg.solve_triangular(factor, unit, upper=False)  # [n, T, T]
        new = torch.cat([-corner @ (explained @ inverse), corner], dim=2)  # [n, T, stop], rows of N
        h = -new / corner.diagonal(dim1=1, dim2=2).unsqueeze(-1)
        weights = h.clone()
        weights[:, :, start:] = h[:, :, start:].tril(-1)  # [n, T, stop]
        residual = z - weights.to(z.dtype) @ torch.cat([pending, z], dim=1)
        bonus: Tensor = residual.double().square().sum(-1) + weights.square().sum(-1)  # [n, T]
        self.rows[slots, start:stop] = z
        self.inverse[slots, start:stop, :stop] = new
        self.count[here] = stop
        self._drop_ended(slots, clear, start)
        return bonus.to(z.dtype).T

    def _drop_ended(self, slots: Tensor, clear: Tensor, start: int) -> None:
        """Forget what came before the last reset inside the block that began at row `start`."""
        ended = clear.any(1)
        if not bool(ended.any()):
            return
        slots, clear = slots[ended], clear[ended]
        last = clear.shape[1] - 1 - clear.long().flip(1).argmax(1)  # [n], the row of the last reset
        dead = torch.arange(self.capacity, device=slots.device) < start + last.unsqueeze(1)  # [n, K]
        self.rows[slots] = self.rows[slots].masked_fill(dead.unsqueeze(-1), 0)
        self.inverse[slots] = self.inverse[slots].masked_fill(dead.unsqueeze(-1), 0)
        self._set_fresh(slots)

    def _set_fresh(self, slots: Tensor) -> None:
        self.matrix[slots] = torch.eye(self.matrix.shape[-1]).to(self.matrix) * self.unit
        self.folded[slots.cpu()] = False

    def forget(self, slots: Tensor) -> None:
        self.rows[slots] = 0
        self.inverse[slots] = 0
        self.count[slots.cpu()] = 0
        self._set_fresh(slots)

    def fold(self, slots: Tensor) -> None:
        """Move the pending rows into the matrix."""
        self.matrix[slots] = folded(self.matrix[slots], self.rows[slots])
        self.rows[slots] = 0
        self.inverse[slots] = 0
        self.count[slots.cpu()] = 0
        self.folded[slots.cpu()] = True

    def room(self, folded: bool) -> int:
        """How many rows may wait."""
        return self.capacity

    def export(self, slot: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """Copies of the pending rows [k, d], the triangle of their N and, if there is one, M' [d, d]."""
        count = int(self.count[slot])
        i, j = torch.tril_indices(count, count)
        matrix = self.matrix[slot].clone() if self.folded[slot] else None
        return self.rows[slot, :count].clone(), self.inverse[slot, i, j], matrix

    def restore(self, slot: int, rows: Tensor, triangle: Tensor, matrix: Tensor | None) -> None:
        self.forget(torch.tensor([slot], device=self.rows.device))
        self.count[slot] = len(rows)
        self.rows[slot, : len(rows)] = rows
        i, j = torch.tril_indices(len(rows), len(rows))
        self.inverse[slot, i, j] = triangle
        if matrix is not None:
            self.folded[slot] = True
            self.matrix[slot] = matrix


def folded(matrix: Tensor, rows: Tensor) -> Tensor:
    """M' [n, d, d] after folding rows Z [n, k, d] in: L^-1 M' with L L' = I + Z'Z, in float64."""
    z = rows.double()
    eye = torch.eye(z.shape[-1], dtype=torch.float64, device=z.device).expand_as(matrix)
    factor, failed = torch.linalg.cholesky_ex(eye + z.mT @ z)
    if bool(failed.any()):  # rows so long that squaring them loses the 1: factor them unsquared
        factor = torch.linalg.qr(torch.cat([eye, z], dim=1), mode="r").R.mT
    product: Tensor = torch.linalg.solve_triangular(factor, matrix.double(), upper=False)
    return product.tril().to(matrix.dtype)
