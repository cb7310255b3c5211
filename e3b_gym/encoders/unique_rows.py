"""Different rows of a batch, so that a network need not see the same row twice.

f(x) = gather(f(unique(x)), numbers): exact for every f that treats rows one by one, and so are its gradients.

In a batch of MiniHack frames most messages and many crops repeat (45 messages and 1,849 crops in 5,184 frames of random
play). Rows that share a hash are compared in full. `RowMemo` goes on from batch to batch: while acting, f(row) is
computed once until the weights change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from e3b_gym.encoders import _kernels

MEMO_BYTES = 2**26
"""What a memo may hold; when it is full it starts anew."""


class _KnownRows:
    """Integer rows [capacity, W] that have been seen, and their hash table."""

    def __init__(self, capacity: int, like: np.ndarray[Any, Any]) -> None:
        width = like.shape[1]
        slots = 1 << (2 * capacity).bit_length()
        self.rows = np.empty((capacity, width), like.dtype)
        self.count = 0
        self._keys = _kernels.new_keys(width)
        self._table, self._hashes = np.full(slots, -1, np.int32), np.empty(slots, np.uint64)

    def number(self, rows: np.ndarray[Any, Any]) -> Tensor:
        """Which of the known rows each of `rows` [R, W] is, int32 [R]; new ones are appended, there must be room."""
        numbers = np.empty(len(rows), np.int32)
        table = (self._keys, self._table, self._hashes, self.rows)
        self.count = _kernels.number_rows(rows, *table, self.count, numbers)
        return torch.from_numpy(numbers)

    def forget(self) -> None:
        self.count = 0
        self._table.fill(-1)


def unique_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The different rows [U, ...] of an integer tensor [R, ...] on the CPU, in order of appearance, and which of them
    each row is, int32 [R].
    """
    flat = _flat(rows)
    known = _KnownRows(len(flat), flat)
    numbers = known.number(flat)
    return torch.from_numpy(known.rows[: known.count]).view(-1, *rows.shape[1:]), numbers


class RowMemo:
    """Remembers f(row) for integer rows until `forget`. Not for training: what it gives has no gradient."""

    def __init__(self, max_bytes: int = MEMO_BYTES) -> None:
        self.max_bytes = max_bytes
        self._known: _KnownRows | None = None
        self._values: np.ndarray[Any, Any] = np.empty(0)  # not a tensor, which might belong to an inference mode

    def __reduce__(self) -> Any:
        """Copies and pickles start empty."""
        return RowMemo, (self.max_bytes,)

    def forget(self) -> None:
        """Call it when f changes."""
        if self._known is not None:
            self._known.forget()

    def look_up(self, function: Callable[[Tensor], Tensor], rows: Tensor) -> tuple[Tensor, Tensor]:
        """A table [P, D] of f, and the place of each of `rows` [R, ...] in it, int32 [R].

        f is asked for the rows not yet known. The table is valid until the next call.
        """
        flat = _flat(rows)
        if self._known is None:
            sample = function(rows[:1])
            capacity = max(self.max_bytes // (flat[:1].nbytes + sample.nbytes), 1)
            self._known, self._values = _KnownRows(capacity, flat), np.empty((capacity, sample.shape[1]), np.float32)
        known = self._known
        if known.count + len(flat) > len(known.rows):
            known.forget()
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
