"""Memory that the learner shares with its actors, and the policy's weights in it.

Forked actors inherit an anonymous mapping, which needs no space in /dev/shm and is freed when all processes are killed.
Spawned actors get torch's shared memory.

The weights have two slots; the learner writes to the one that is not the newest. Readers and the writer lock the slot's
byte of an unnamed file, so that no process reads half an update. The kernel releases the locks of a process that dies,
which a lock in shared memory would not survive.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.reduction import DupFd
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agents.impala.rollout import Zeros

try:
    import fcntl
except ImportError as error:  # Windows
    raise ImportError(
        "actor processes need the file locks of Linux or macOS; on Windows use engine='inline', or WSL"
    ) from error

Arrays = TypeVar("Arrays")
Layout = Callable[[Zeros], Arrays]
_ALIGNMENT = 64  # a cache line


class Shared(Generic[Arrays]):
    """Zeroed arrays in one block of shared memory.

    Args:
        layout: allocates each array in turn, by zeros(shape, dtype), and returns them in any structure. Called once to
            measure, and once in every process that does not inherit the arrays.
        inherited: whether the processes that share it are forked from this one, later.
    """

    def __init__(self, layout: Layout[Arrays], inherited: bool) -> None:
        size = _measure(layout)
        self._layout = layout
        if inherited:
            self._block = torch.frombuffer(mmap.mmap(-1, size), dtype=torch.uint8)
        else:
            self._block = torch.zeros(size, dtype=torch.uint8)
            self._block.share_memory_()  # type: ignore[no-untyped-call]
        self.arrays = _place(layout, self._block)

    def __getstate__(self) -> tuple[Layout[Arrays], Tensor]:
        return self._layout, self._block

    def __setstate__(self, state: tuple[Layout[Arrays], Tensor]) -> None:
        self._layout, self._block = state
        self.arrays = _place(*state)


def _measure(layout: Layout[Any]) -> int:
    size = 0

    def zeros(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        nonlocal size
        size = _aligned(size) + math.prod(shape) * np.dtype(dtype).itemsize
        return np.broadcast_to(np.zeros((), dtype), shape)  # takes no memory

    layout(zeros)
    return max(size, 1)


def _place(layout: Layout[Arrays], block: Tensor) -> Arrays:
    memory: NDArray[np.uint8] = block.numpy()
    used = 0

    def zeros(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        nonlocal used
        start = _aligned(used)
        used = start + math.prod(shape) * np.dtype(dtype).itemsize
        array: NDArray[Any] = memory[start:used].view(dtype).reshape(shape)
        return array

    return layout(zeros)


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT


class SlotLocks:
    """One lock per slot, for many readers or one writer; a process that ends releases its locks."""

    def __init__(self) -> None:
        with tempfile.TemporaryFile() as file:
            self._keep(os.dup(file.fileno()))

    def _keep(self, file: int) -> None:
        self._file = file
        weakref.finalize(self, os.close, file)

    @contextmanager
    def reading(self, slot: int) -> Iterator[None]:
        fcntl.lockf(self._file, fcntl.LOCK_SH, 1, slot)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, slot)

    @contextmanager
    def writing(self, slot: int) -> Iterator[bool]:
        """Does not wait: returns False while a process reads."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, slot)
        except (BlockingIOError, PermissionError):  # systems differ in how they say so
            yield False
            return
        try:
            yield True
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, slot)

    def __getstate__(self) -> Any:
        return DupFd(self._file)

    def __setstate__(self, duplicate: Any) -> None:
        self._keep(duplicate.detach())


@dataclass(frozen=True)
class _Slots:
    weights: tuple[dict[str, NDArray[Any]], ...]
    versions: NDArray[np.int64]  # [slots]
    newest: NDArray[np.int64]  # [1], a slot


@dataclass(frozen=True)
class _SlotsLayout:
    shapes: dict[str, tuple[tuple[int, ...], np.dtype[Any]]]

    def __call__(self, zeros: Zeros) -> _Slots:
        slots = tuple({name: zeros(*kind) for name, kind in self.shapes.items()} for _ in range(2))
        return _Slots(slots, zeros((2,), np.int64), zeros((1,), np.int64))


class SharedWeights:
    """The newest weights of the learner's policy, and which version they are.

    Args:
        weights: a state dict of the policy, for names and shapes.
        inherited: as for `Shared`.
    """

    def __init__(self, weights: Mapping[str, Tensor], inherited: bool) -> None:
        shapes = {name: (tuple(value.shape), value.cpu().numpy().dtype) for name, value in weights.items()}
        self._shared = Shared(_SlotsLayout(shapes), inherited)
        self._shared.arrays.versions[:] = -1
        self._locks = SlotLocks()

    def write(self, weights: Mapping[str, Tensor], version: int) -> bool:
        """Writes these as the newest; returns False if a reader still copies the weights before the newest."""
        slots = self._shared.arrays
        slot = 1 - int(slots.newest[0])
        with self._locks.writing(slot) as mine:
            if not mine:
                return False
            for name, array in slots.weights[slot].items():
                torch.from_numpy(array).copy_(weights[name].detach())
            slots.versions[slot] = version
            slots.newest[0] = slot  # still locked, so a reader of this version cannot get older weights afterwards
        return True

    def read(self, known: int, load: Callable[[dict[str, Tensor], int], object]) -> None:
        """Calls load(weights, version) with the newest, unless they are version `known`. The tensors are views that
        are valid only until `load` returns.
        """
        slots = self._shared.arrays
        slot = int(slots.newest[0])
        with self._locks.reading(slot):
            if (version := int(slots.versions[slot])) != known:
                load({name: torch.from_numpy(array) for name, array in slots.weights[slot].items()}, version)
