"""The elliptical memory on compiled kernels: its state is numpy arrays that share memory with torch tensors."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from e3b_gym.memory import _kernels
from e3b_gym.memory._ellipses import TRUST, Ellipses, capacity

# Starting a thread costs about 0.1 ms; with fewer multiplications per thread, one thread is faster.
WORTH_A_THREAD = 20_000_000


class NumbaEllipses(Ellipses):
    """Ellipses as numpy arrays. A short episode stores its rows; a long one stores a matrix."""

    def __init__(self, num_envs: int, dim: int, ridge: float, like: Tensor) -> None:
        super().__init__(num_envs, dim, ridge, like)
        self.capacity = capacity(dim)
        dtype = like.numpy().dtype
        # numpy's zeros use no memory until they are written, and short episodes never write the matrices
        self.matrix = torch.from_numpy(np.zeros((num_envs, _kernels.matrix_size(dim)), dtype))
        self.rows = torch.from_numpy(np.zeros((num_envs, self.capacity + 3, dim), dtype))  # read in fours
        self.inverse = torch.from_numpy(np.zeros((num_envs, _kernels.inverse_size(self.capacity))))
        self.count = torch.zeros(num_envs, dtype=torch.long)
        self.folded = torch.zeros(num_envs, dtype=torch.bool)
        state = self.matrix, self.rows, self.inverse, self.count, self.folded
        self._arrays = tuple(tensor.numpy() for tensor in state)  # the same memory
        self._no_rows = like.new_empty(0, dim).numpy()
        self._no_matrix = like.new_empty(0, 0)
        self._no_order = np.empty((0, 0), np.int64)

    def advance(
        self, phi: Tensor, clear: Tensor, slots: Tensor, opening: Tensor | None, entry: Tensor | None
    ) -> Tensor:
        bonus = torch.empty(phi.shape[:2], dtype=phi.dtype)
        rows = self._no_rows if opening is None else opening.numpy()
        order = self._no_order if entry is None else entry.numpy()
        arguments = phi.numpy(), clear.numpy(), rows, order, slots.numpy()
        columns = phi.shape[1]
        threads = min(torch.get_num_threads(), columns, 1 + phi.numel() * self.dim // WORTH_A_THREAD)
        cuts = [columns * i // threads for i in range(threads + 1)]

        def run(part: int) -> None:
            _kernels.advance(
                *arguments, cuts[part], cuts[part + 1], self.ridge, TRUST[phi.dtype], *self._arrays, bonus.numpy()
            )

        if threads == 1:
            run(0)
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(run, range(threads)))
        return bonus

    def clear(self, slots: Tensor) -> None:
        self.count[slots] = 0
        self.folded[slots] = False

    def room(self, folded: bool) -> int:
        return _kernels.PENDING if folded else self.capacity

    def export(self, slot: int) -> tuple[Tensor, Tensor, Tensor | None]:
        count = int(self.count[slot])
        matrix = self.rows.new_zeros(self.dim, self.dim) if self.folded[slot] else self._no_matrix
        triangle = self.inverse.new_empty(count * (count + 1) // 2)
        _kernels.save(self._arrays[0][slot], self._arrays[2][slot], matrix.numpy(), triangle.numpy())
        return self.rows[slot, :count].clone(), triangle, matrix if self.folded[slot] else None

    def restore(self, slot: int, rows: Tensor, triangle: Tensor, matrix: Tensor | None) -> None:
        self.count[slot] = len(rows)
        self.folded[slot] = matrix is not None
        self.rows[slot, : len(rows)] = rows
        square = self._no_matrix if matrix is None else matrix
        _kernels.load(self._arrays[0][slot], self._arrays[2][slot], square.numpy(), triangle.numpy())
