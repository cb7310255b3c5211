"""State of the compiled kernels, as numpy arrays that torch tensors share."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from e3b_gym.memory import _kernels
from e3b_gym.memory._ellipses_torch import folded

# Starting a thread costs about 0.1 ms; work below this many multiplications is done sooner than shared.
WORTH_A_THREAD = 20_000_000


class NumbaEllipses:
    """State of `num_envs` ellipses; a young episode keeps up to `capacity` rows before it gets a matrix."""

    def __init__(self, num_envs: int, dim: int, capacity: int, unit: float, like: Tensor) -> None:
        self.dim = dim
        self.capacity = capacity
        self.unit = unit
        self.matrix = like.new_empty(num_envs, _kernels.matrix_size(dim))  # pages are touched when first used
        self.rows = like.new_empty(num_envs, capacity, dim)
        self.inverse = like.new_empty(num_envs, capacity, capacity, dtype=torch.float64)
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
        columns = phi.shape[1]
        threads = min(torch.get_num_threads(), columns, 1 + phi.numel() * self.dim // WORTH_A_THREAD)
        cuts = [columns * i // threads for i in range(threads + 1)]

        def run(part: int) -> None:
            _kernels.advance(*arguments, cuts[part], cuts[part + 1], unit, *self._arrays, bonus.numpy())

        if threads == 1:
            run(0)
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(run, range(threads)))
        return bonus

    def forget(self, slots: Tensor) -> None:
        self.count[slots] = 0
        self.folded[slots] = False

    def dense(self, slots: Tensor) -> Tensor:
        """M' [n, d, d] of these environments."""
        matrix = self.rows.new_zeros(len(slots), self.dim, self.dim)
        for out, flat in zip(matrix, self.matrix[slots], strict=True):
            _kernels.unpack(flat.numpy(), out.numpy())
        return matrix

    def set_dense(self, slots: Tensor, matrix: Tensor) -> None:
        for slot, dense in zip(slots.tolist(), matrix, strict=True):
            _kernels.pack(dense.numpy(), self._arrays[0][slot])

    def settle(self) -> None:
        """After loading: a matrix that came with more rows than the kernels let wait takes them in."""
        for slot in (self.folded & (self.count > _kernels.PENDING)).nonzero().flatten().tolist():
            here = torch.tensor([slot])
            rows = self.rows[here, : int(self.count[slot])]
            self.set_dense(here, folded(self.dense(here), rows))
            self.count[slot] = 0
