"""Reference implementation of the elliptical bonus: a direct float64 solve, slow and simple.

    b_t = phi_t' C_{t-1}^-1 phi_t,    C_t = ridge * I + sum_{i <= t} phi_i phi_i'    within an episode

The tests compare `EllipticalMemory` with it. C itself is never formed: its condition number is the square of that of
the rows, and on repeated states of norm 1000 a solve with C is accurate to only five digits. Instead, Householder QR
updates the triangular factor R of the stacked rows, R'R = C, and b = |R'^-1 phi|^2.
"""

from __future__ import annotations

import torch
from torch import Tensor

from e3b_gym.memory.matrices import MatrixMemory


class ReferenceMemory(MatrixMemory):
    """`EllipticalMemory` with a direct float64 solve at every step; same arguments and methods."""

    def _precision(self) -> torch.dtype:
        return torch.float64

    def _diagonal(self) -> float:
        return float(self.ridge**0.5)

    def _enter(self, matrix: Tensor, row: Tensor) -> Tensor:
        """`matrix` is R, with R'R = C."""
        whitened: Tensor = torch.linalg.solve_triangular(matrix.mT, row.unsqueeze(-1), upper=False)
        if row.any():  # a zero row changes nothing, not even by rounding
            matrix.copy_(torch.linalg.qr(torch.cat([matrix, row.unsqueeze(0)]), mode="r").R)
        return whitened.square().sum()
