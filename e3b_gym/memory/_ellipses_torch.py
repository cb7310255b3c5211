"""The elliptical memory in batched torch operations, for a GPU.

The equations of `elliptical.py`, for a block of T rows of n environments at once. With L = chol(prior I + Z Z') over
pending and new rows and N = L^-1, row t of N is (-h_t, 1) / L_tt, so one triangular inverse gives every regression in
the block. Products of rows of different episodes are masked out, which makes the Gram matrix and N block diagonal.
"""

from __future__ import annotations

import torch
from torch import Tensor

from e3b_gym.memory._ellipses import BLOCK, TRUST, Ellipses, capacity, fold_into


class TorchEllipses(Ellipses):
    """Ellipses as batched tensors; pending rows are stored in `rows` until they are folded into `matrix`."""

    def __init__(self, num_envs: int, dim: int, ridge: float, like: Tensor) -> None:
        super().__init__(num_envs, dim, ridge, like)
        rows = capacity(dim)
        self.matrix = torch.eye(dim).to(like).repeat(num_envs, 1, 1)  # [S, d, d], M', lower triangular
        self.rows = like.new_zeros(num_envs, rows, dim)  # [S, K, d], Z; unused rows are zero
        self.inverse = like.new_zeros(num_envs, rows, rows, dtype=torch.float64)  # [S, K, K], N; unused: zero
        self.count = torch.zeros(num_envs, dtype=torch.long, device=like.device)
        self.folded = torch.zeros(num_envs, dtype=torch.bool, device=like.device)

    def room(self, folded: bool) -> int:
        return max(BLOCK, self.rows.shape[-1] // 4) if folded else self.rows.shape[1]

    def prior(self, folded: Tensor) -> Tensor:
        """Returns p in p I + Z'Z, float64: ridge, or 1 where M already contains the ridge (`folded`)."""
        return torch.where(folded, folded.new_ones((), dtype=torch.float64), self.ridge)

    def advance(
        self, phi: Tensor, clear: Tensor, slots: Tensor, opening: Tensor | None, entry: Tensor | None
    ) -> Tensor:
        if opening is None or entry is None or len(opening) == 0:
            return self._advance(phi, clear, slots)
        # An extra row precedes each row: its opening row, or zeros, which do not change the ellipse.
        before = torch.cat([opening, opening.new_zeros(1, self.dim)])[entry]  # [T, n, d], entry -1 is the zero row
        doubled = torch.stack([before, phi], dim=1).flatten(0, 1)  # [2T, n, d]
        clears = torch.stack([clear, torch.zeros_like(clear)], dim=1).flatten(0, 1)
        return self._advance(doubled, clears, slots)[1::2].contiguous()

    def _advance(self, phi: Tensor, clear: Tensor, slots: Tensor) -> Tensor:
        """phi [T, n, d], clear [T, n] -> bonus [T, n], block by block."""
        blocks = zip(torch.split(phi, BLOCK), torch.split(clear, BLOCK), strict=True)
        return torch.cat([self._advance_block(rows.transpose(0, 1), c.T, slots) for rows, c in blocks])

    def _advance_block(self, phi: Tensor, clear: Tensor, slots: Tensor) -> Tensor:
        """phi [n, T, d], clear [n, T] -> bonus [T, n]."""
        steps = phi.shape[1]
        room = torch.where(self.folded[slots], self.room(True), self.room(False))
        full = self.count[slots] + steps > room
        if bool(full.any()):
            self.fold(slots[full])
        start = int(self.count[slots].max())  # most pending rows of a slot; the others are padded with zeros
        episode = clear.long().cumsum(1)  # [n, T], 0: continues from before the block
        old = (episode == 0).unsqueeze(-1)  # [n, T, 1]
        z = torch.where(old, phi @ self.matrix[slots].mT, phi)  # [n, T, d]
        prior = self.prior(old.squeeze(-1) & self.folded[slots].unsqueeze(-1))  # [n, T]
        pending, inverse = self.rows[slots, :start], self.inverse[slots, :start, :start]
        cross = (z.double() @ pending.double().mT) * old  # [n, T, start]
        together = episode.unsqueeze(1) == episode.unsqueeze(2)  # [n, T, T]
        gram = (z.double() @ z.double().mT) * together
        explained = cross @ inverse.mT
        size = gram.diagonal(dim1=1, dim2=2)
        # rounding errors must not make the Gram matrix indefinite, however long the rows
        floor = torch.maximum(prior, 4 * (start + steps) * torch.finfo(torch.float64).eps * size)
        factor = torch.linalg.cholesky(gram - explained @ explained.mT + torch.diag_embed(floor))
        corner = torch.linalg.solve_triangular(factor, torch.eye(steps).to(factor).expand_as(factor), upper=False)
        edge = -corner @ (explained @ inverse)  # [n, T, start]; (edge, corner) are the new rows of N
        h = -torch.cat([edge, corner.tril(-1)], dim=2) / corner.diagonal(dim1=1, dim2=2).unsqueeze(-1)
        residual = z - h.to(z.dtype) @ torch.cat([pending, z], dim=1)
        careful = residual.double().square().sum(-1) / prior + h.square().sum(-1)  # [n, T]
        left = factor.diagonal(dim1=1, dim2=2).square() - floor
        bonus: Tensor = torch.where(left <= TRUST[z.dtype] * size, careful, left / prior) * (size > 0)
        self._append(slots, z, edge, corner)
        self._drop_ended(slots, clear)
        return bonus.to(z.dtype).T

    def _append(self, slots: Tensor, z: Tensor, edge: Tensor, corner: Tensor) -> None:
        new = self.count[slots].unsqueeze(1) + torch.arange(z.shape[1], device=z.device)  # [n, T], places of the rows
        slot = slots.unsqueeze(1)
        self.rows[slot, new] = z
        self.inverse[slot, new, : edge.shape[2]] = edge
        self.inverse[slot.unsqueeze(2), new.unsqueeze(2), new.unsqueeze(1)] = corner
        self.count[slots] += z.shape[1]

    def _drop_ended(self, slots: Tensor, clear: Tensor) -> None:
        """Keeps only the rows after the last reset inside the block, moved to the front."""
        ended = clear.any(1)
        if not bool(ended.any()):
            return
        slots, clear = slots[ended], clear[ended]
        alive = clear.long().flip(1).argmax(1) + 1  # [n], rows since the last reset
        places = torch.arange(self.rows.shape[1], device=slots.device)
        source = (self.count[slots] - alive).unsqueeze(1) + places  # [n, K]
        keep = places < alive.unsqueeze(1)
        source = source.where(keep, 0)
        slot = slots.unsqueeze(1)
        self.rows[slots] = self.rows[slot, source] * keep.unsqueeze(2)
        inverse = self.inverse[slot.unsqueeze(2), source.unsqueeze(2), source.unsqueeze(1)]
        self.inverse[slots] = inverse * keep.unsqueeze(2) * keep.unsqueeze(1)
        self.count[slots] = alive
        self._clear_matrix(slots)

    def _clear_matrix(self, slots: Tensor) -> None:
        self.matrix[slots] = torch.eye(self.matrix.shape[-1]).to(self.matrix)
        self.folded[slots] = False

    def clear(self, slots: Tensor) -> None:
        self._clear_rows(slots)
        self._clear_matrix(slots)

    def _clear_rows(self, slots: Tensor) -> None:
        self.rows[slots] = 0
        self.inverse[slots] = 0
        self.count[slots] = 0

    def fold(self, slots: Tensor) -> None:
        """Folds the pending rows into the matrix."""
        self.matrix[slots] = fold_into(self.matrix[slots], self.rows[slots], self.prior(self.folded[slots]))
        self.folded[slots] = True
        self._clear_rows(slots)

    def export(self, slot: int) -> tuple[Tensor, Tensor, Tensor | None]:
        count = int(self.count[slot])
        i, j = torch.tril_indices(count, count, device=self.rows.device)
        matrix = self.matrix[slot].clone() if self.folded[slot] else None
        return self.rows[slot, :count].clone(), self.inverse[slot, i, j], matrix

    def restore(self, slot: int, rows: Tensor, triangle: Tensor, matrix: Tensor | None) -> None:
        self.clear(torch.tensor([slot]).to(self.rows.device))
        self.count[slot] = len(rows)
        self.rows[slot, : len(rows)] = rows
        i, j = torch.tril_indices(len(rows), len(rows), device=self.rows.device)
        self.inverse[slot, i, j] = triangle
        if matrix is not None:
            self.folded[slot] = True
            self.matrix[slot] = matrix
