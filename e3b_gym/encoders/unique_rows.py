"""The different rows of a batch, so that a network computes each row once.

f(x) = gather(f(unique(x)), numbers): exact, with exact gradients, for every f that maps rows independently.

In a batch of MiniHack frames most messages and many crops repeat (45 messages and 1,849 crops in 5,184 frames of a
random policy). Rows with the same hash are compared in full. `RowMemo` caches f(row) across batches: while acting, each
row is computed once until the weights change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from e3b_gym.encoders import _kernels

MEMO_BYTES = 2**26
"""Size of a memo; a full memo is cleared."""


class _KnownRows:
    """Integer rows [capacity, W] with a hash table."""

    def __init__(self, capacity: int, like: np.ndarray[Any, Any]) -> None:
        width = like.shape[1]
        slots = 1 << (2 * capacity).bit_length()
        self.rows = np.empty((capacity, width), like.dtype)
        self.count = 0
        self._keys = _kernels.new_keys(width)
        self._table, self._hashes = np.full(slots, -1, np.int32), np.empty(slots, np.uint64)

    def number(self, rows: np.ndarray[Any, Any]) -> Tensor:
        """Returns the index of each of `rows` [R, W], int32 [R]; appends new rows, for which there must be room."""
        numbers = np.empty(len(rows), np.int32)
        table = (self._keys, self._table, self._hashes, self.rows)
        self.count = _kernels.number_rows(rows, *table, self.count, numbers)
        return torch.from_numpy(numbers)

    def clear(self) -> None:
        self.count = 0
        self._table.fill(-1)


def unique_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the different rows [U, ...] of an integer CPU tensor [R, ...] in order of appearance, and for each row
    its index among them, int32 [R].
    """
    flat = _flat(rows)
    known = _KnownRows(len(flat), flat)
    numbers = known.number(flat)
    return torch.from_numpy(known.rows[: known.count]).view(-1, *rows.shape[1:]), numbers


class RowMemo:
    """Caches f(row) for integer rows until `clear`. Not for training: its results have no gradient."""

    def __init__(self, max_bytes: int = MEMO_BYTES) -> None:
        self.max_bytes = max_bytes
        self._known: _KnownRows | None = None
        self._values: np.ndarray[Any, Any] = np.empty(0)  # not a tensor, which might be an inference-mode tensor

    def __reduce__(self) -> Any:
        """Copies and pickles start empty."""
        return RowMemo, (self.max_bytes,)

    def clear(self) -> None:
        """Empties the cache; call it when f changes."""
        if self._known is not None:
            self._known.clear()

    def look_up(self, function: Callable[[Tensor], Tensor], rows: Tensor) -> tuple[Tensor, Tensor]:
        """Returns a table [P, D] of values of f, and the index of each of `rows` [R, ...] in it, int32 [R].

        Calls f for the rows that are not cached. The table is valid until the next call.
        """
        flat = _flat(rows)
        if self._known is None:
            sample = function(rows[:1])
            capacity = max(self.max_bytes // (flat[:1].nbytes + sample.nbytes), 1)
            self._known, self._values = _KnownRows(capacity, flat), np.empty((capacity, sample.shape[1]), np.float32)
        known = self._known
        if known.count + len(flat) > len(known.rows):
            known.clear()
        if len(flat) > len(known.rows):
            different, numbers = unique_rows(rows)
            return function(different), numbers
        before = known.count
        numbers = known.number(flat)
        if known.count > before:
            new = torch.from_numpy(known.rows[before : known.count]).view(-1, *rows.shape[1:])
            self._values[before : known.count] = function(new).numpy()
        return torch.from_numpy(self._values), numbers


def _flat(rows: Tensor) -> np.ndarray[Any, Any]:
    return rows.detach().contiguous().view(len(rows), -1).numpy()
