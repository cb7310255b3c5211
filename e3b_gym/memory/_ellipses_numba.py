"""State of the compiled kernels, as numpy arrays that torch tensors share."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from e3b_gym.memory import _kernels

# Starting a thread costs about 0.1 ms; work below this many multiplications is done sooner than shared.
WORTH_A_THREAD = 20_000_000


class NumbaEllipses:
    """State of `num_envs` ellipses; a young episode keeps up to `capacity` rows before it gets a matrix."""

    def __init__(self, num_envs: int, dim: int, unit: float, like: Tensor) -> None:
        capacity = max(2 * _kernels.PENDING, dim)
        self.dim = dim
        self.capacity = capacity
        self.unit = unit
        dtype = like.numpy().dtype
        # numpy's zeros take no memory before they are written to: short episodes never touch the matrices
        self.matrix = torch.from_numpy(np.zeros((num_envs, _kernels.matrix_size(dim)), dtype))
        self.rows = torch.from_numpy(np.zeros((num_envs, capacity + 3, dim), dtype))  # read in fours
        self.inverse = torch.from_numpy(np.zeros((num_envs, capacity * (capacity + 1) // 2)))
        self.count = torch.zeros(num_envs, dtype=torch.long)
        self.folded = torch.zeros(num_envs, dtype=torch.bool)
        state = self.matrix, self.rows, self.inverse, self.count, self.folded
        self._arrays = tuple(tensor.numpy() for tensor in state)  # the same memory
        self._no_rows = like.new_empty(0, dim).numpy()
        self._no_order = np.empty((0, 0), np.int64)

    def advance(
        self, phi: Tensor, clear: Tensor, slots: Tensor, opening: Tensor | None, entry: Tensor | None
    ) -> Tensor:
        """Score and enter phi [T, n, d]; `clear` [T, n] empties an ellipse before its row."""
        bonus = torch.empty(phi.shape[:2], dtype=phi.dtype)
        rows = self._no_rows if opening is None else opening.numpy()
        order = self._no_order if entry is None else entry.numpy()
        arguments = phi.numpy(), clear.numpy(), rows, order, slots.numpy()
        unit = self._no_rows.dtype.type(self.unit)
        limit = self.capacity if len(phi) >= _kernels.PENDING else self.capacity // 2
        columns = phi.shape[1]
        threads = min(torch.get_num_threads(), columns, 1 + phi.numel() * self.dim // WORTH_A_THREAD)
        cuts = [columns * i // threads for i in range(threads + 1)]

        def run(part: int) -> None:
            _kernels.advance(*arguments, cuts[part], cuts[part + 1], unit, limit, *self._arrays, bonus.numpy())

        if threads == 1:
            run(0)
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(run, range(threads)))
        return bonus

    def forget(self, slots: Tensor) -> None:
        self.count[slots] = 0
        self.folded[slots] = False

    def room(self, folded: bool) -> int:
        """How many rows may wait."""
        return _kernels.PENDING if folded else self.capacity

    def export(self, slot: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """Copies of the pending rows [k, d], the triangle of their N and, if there is one, M' [d, d]."""
        count = int(self.count[slot])
        matrix = None
        if self.folded[slot]:
            matrix = self.rows.new_zeros(self.dim, self.dim)
            _kernels.unpack(self._arrays[0][slot], matrix.numpy())
        return self.rows[slot, :count].clone(), self.inverse[slot, : count * (count + 1) // 2].clone(), matrix

    def restore(self, slot: int, rows: Tensor, triangle: Tensor, matrix: Tensor | None) -> None:
        self.count[slot] = len(rows)
        self.folded[slot] = matrix is not None
        self.rows[slot, : len(rows)] = rows
        self.inverse[slot, : len(triangle)] = triangle
        if matrix is not None:
            _kernels.pack(matrix.numpy(), self._arrays[0][slot])
