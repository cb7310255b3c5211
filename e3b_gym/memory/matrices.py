"""The elliptical bonus as the paper computes it, by rank-1 updates, and by a direct solve.

    rank-1:  u = C^-1 phi,  b = phi'u,  C^-1 <- C^-1 - u u' / (1 + b)     Sherman-Morrison, as in the authors' code
    solve:   b = phi' (C^-1 phi) with a new factorisation of C,  C <- C + phi phi'

Both store a d x d matrix for every environment. They are here for comparison (`ellipse="rank1"`, `ellipse="solve"` of
E3B): `EllipticalMemory` is faster than both, and exact where float32 Sherman-Morrison loses its digits.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from e3b_gym.memory.elliptical import CheckedMemory


class MatrixMemory(CheckedMemory):
    """One d x d matrix per environment, updated row by row; arguments and methods of `EllipticalMemory`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._empty = torch.eye(self.dim, dtype=self._precision(), device=self.device) * self._diagonal()
        self._matrices = self._empty.repeat(self.num_envs, 1, 1)  # [num_envs, d, d]

    def _precision(self) -> torch.dtype:
        """The dtype of the matrices and of the arithmetic."""
        return self.dtype

    @abstractmethod
    def _diagonal(self) -> float:
        """The diagonal of the matrix of an empty ellipse."""

    @abstractmethod
    def _enter(self, matrix: Tensor, row: Tensor) -> Tensor:
        """Scores `row` [d], then adds it to the ellipse, in place."""

    def _advance(
        self, phi: Tensor, first: Tensor, slots: Tensor | None, opening: Tensor | None, entry: Tensor | None
    ) -> Tensor:
        phi, opening = phi.to(self._precision()), None if opening is None else opening.to(self._precision())
        bonus = torch.zeros_like(phi[..., 0])  # [T, N]
        envs, starts = range(self.num_envs) if slots is None else slots.tolist(), first.tolist()
        for column, env in enumerate(envs):
            matrix = self._matrices[env]
            for t in range(len(phi)):
                if self.episodic and starts[t][column]:
                    matrix.copy_(self._empty)
                if opening is not None and entry is not None and starts[t][column]:
                    self._enter(matrix, opening[entry[t, column]])
                bonus[t, column] = self._enter(matrix, phi[t, column])
        return bonus.to(self.dtype)

    def _clear(self, slots: Tensor) -> None:
        self._matrices[slots] = self._empty

    def _state(self) -> dict[str, Tensor]:
        return {"matrices": self._matrices.clone()}

    def _state_shapes(self, state: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        return {"matrices": ((self.num_envs, self.dim, self.dim), self._precision())}

    def _load(self, state: dict[str, Tensor]) -> None:
        self._matrices.copy_(state["matrices"])


class RankOneMemory(MatrixMemory):
    """The authors' update: C^-1 in the dtype of the embeddings, one rank-1 subtraction per row."""

    def _diagonal(self) -> float:
        return 1 / self.ridge

    def _enter(self, matrix: Tensor, row: Tensor) -> Tensor:
        u = torch.mv(matrix, row)
        bonus = torch.dot(u, row)
        matrix.addr_(u, u, alpha=float(-1 / (1 + bonus)))
        return bonus


class SolveMemory(MatrixMemory):
    """The direct way: C itself, and a Cholesky factorisation of it per row."""

    def _diagonal(self) -> float:
        return self.ridge

    def _enter(self, matrix: Tensor, row: Tensor) -> Tensor:
        factor = torch.linalg.cholesky(matrix)
        column = row.unsqueeze(-1)  # [d, 1]
        bonus: Tensor = torch.linalg.solve_triangular(factor, column, upper=False).square().sum()
        matrix.addr_(row, row)
        return bonus
