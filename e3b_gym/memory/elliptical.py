"""The elliptical episodic memory (Henaff et al. 2022, Algorithm 1): exact, fast, and stable on revisited states.

    b_t = phi_t' C_{t-1}^-1 phi_t,    C_t = C_{t-1} + phi_t phi_t',    C = ridge * I where an episode starts

Other implementations store C^-1 in float32 and subtract from it, which loses all digits where states repeat. Here C^-1
is stored as M (p I + Z'Z)^-1 M': a triangular square root M of the folded rows, and the pending rows Z, whitened by M.

    z = M' phi                                  whiten
    h = (p I + Z Z')^-1 Z z,   r = z - Z'h      regress on the pending rows; products in float64
    b = (|z|^2 - h'Z z) / p = |r|^2 / p + h'h   the second form where the first would cancel: the minimum of a ridge
                                                regression is never negative, and flat in h, so errors enter squared
    Z <- [Z; z]                                 add to the pending rows
    M <- M T,  T T' = (p I + Z'Z)^-1,  Z <- []  fold when the pending rows are full; T upper triangular, in float64

p is 1, except in an episode that has not been folded yet: it has M = I, p = ridge, and needs no d x d matrix.
`docs/kernel.md` has the derivation and the measurements.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from e3b_gym.errors import NonFiniteError
from e3b_gym.memory._ellipses import Ellipses
from e3b_gym.memory._ellipses_torch import TorchEllipses

Slots = Tensor | Sequence[int]

# Upper bound of |phi|^2 / ridge: up to it float64, used for all small matrices, still resolves the ridge.
LONGEST = 1e12


class CheckedMemory(ABC):
    """One ellipse per environment; checks what it gets before anything changes. Subclasses store the ellipses.

    Args:
        num_envs: number of environment slots.
        dim: length d of an embedding.
        ridge: lambda > 0; an empty ellipse is ridge * I, so the bonus of a first row of length 1 is 1 / ridge.
        dtype: dtype of the embeddings and of the bonus, torch.float32 or torch.float64.
        device: device of the embeddings.
        episodic: clear the ellipse when an episode starts; False: never (the lifelong ablation), `first` then only
            marks where `opening` rows are added.
    """

    def __init__(
        self,
        num_envs: int,
        dim: int,
        ridge: float = 0.1,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        episodic: bool = True,
    ) -> None:
        if num_envs < 1 or dim < 1:
            raise ValueError(f"num_envs and dim must be at least 1, got num_envs={num_envs}, dim={dim}")
        if not (math.isfinite(ridge) and ridge > 0):
            raise ValueError(f"ridge must be a positive number, got {ridge}; the paper uses 0.1")
        if dtype not in (torch.float32, torch.float64):
            raise ValueError(f"dtype must be torch.float32 or torch.float64, got {dtype}")
        self.num_envs = int(num_envs)
        self.dim = int(dim)
        self.ridge = float(ridge)
        self.dtype = dtype
        self.device = torch.device(device)
        self.episodic = bool(episodic)

    def step(self, phi: Tensor, first: Tensor, opening: Tensor | None = None, slots: Slots | None = None) -> Tensor:
        """Scores one row per environment, then adds it: phi [N, d], first [N] -> bonus [N]. See `unroll`."""
        if phi.ndim != 2 or first.ndim != 1:
            raise ValueError(
                f"step takes phi [N, {self.dim}] and first [N], got {_shape(phi)} and {_shape(first)}; "
                "use unroll for [T, N, d]"
            )
        return self.unroll(phi.unsqueeze(0), first.unsqueeze(0), slots, opening)[0]

    def unroll(self, phi: Tensor, first: Tensor, slots: Slots | None = None, opening: Tensor | None = None) -> Tensor:
        """Scores T rows per environment in order and adds each row after it was scored.

        Args:
            phi: embeddings [T, N, d], detached. A zero row has bonus 0 and does not change the ellipse.
            first: bool [T, N]; True clears the ellipse before that row is scored.
            slots: index of the environment of each of the N columns, without repeats; None: all, in order.
            opening: [K, d], embeddings of the first observations of episodes: one row for each True of `first`, in
                the order of `first.nonzero()`. Each is added unscored, right after the ellipse is cleared.

        Returns:
            bonus [T, N], a new tensor.
        """
        phi = phi.detach()
        self._check_rows(phi, first)
        index = self._check_slots(slots, phi.shape[1])
        entry = None
        if opening is not None:
            opening = opening.detach()
            entry = self._check_opening(opening, first)
            opening = opening.contiguous()
        if phi.numel() == 0:
            return phi.new_zeros(phi.shape[:2])
        return self._advance(phi.contiguous(), first, index, opening, entry)

    def reset(self, slots: Slots | None = None) -> None:
        """Clears the ellipses of these environments (None: all)."""
        index = None if slots is None else self._check_slots(slots, len(slots))
        self._clear(torch.arange(self.num_envs, device=self.device) if index is None else index)

    def state_dict(self) -> dict[str, Any]:
        """Returns a copy of the state as tensors and numbers, which `torch.load(weights_only=True)` reads."""
        sizes = {"num_envs": self.num_envs, "dim": self.dim, "ridge": self.ridge, "episodic": self.episodic}
        return sizes | self._state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a `state_dict` of a memory with the same sizes; later bonuses are as if it had not been saved."""
        for name in ("num_envs", "dim", "ridge", "episodic"):
            mine = getattr(self, name)
            if name not in state:
                raise ValueError(
                    f"this is not the state of an elliptical memory: it has no {name!r}, only {sorted(state)}"
                )
            if state[name] != mine:
                raise ValueError(
                    f"the state was saved with {name}={state[name]}, but this memory has {name}={mine}; "
                    "construct the memory with the saved sizes"
                )
        expected = self._state_shapes(state)
        for name, (shape, dtype) in expected.items():
            got = state.get(name)
            if not isinstance(got, Tensor) or tuple(got.shape) != shape or got.dtype != dtype:
                found = f"{_shape(got)} of {got.dtype}" if isinstance(got, Tensor) else repr(got)
                raise ValueError(
                    f"{name!r} of the state must be {list(shape)} of {dtype}, got {found}; "
                    "load it into a memory of the same class, sizes and dtype"
                )
        self._load({name: state[name].to(self.device) for name in expected})

    @abstractmethod
    def _advance(
        self, phi: Tensor, first: Tensor, slots: Tensor | None, opening: Tensor | None, entry: Tensor | None
    ) -> Tensor:
        """`unroll` on checked, contiguous input; `entry` [T, N] is the index of the opening row, or -1."""

    @abstractmethod
    def _clear(self, slots: Tensor) -> None: ...

    @abstractmethod
    def _state(self) -> dict[str, Tensor]: ...

    @abstractmethod
    def _state_shapes(self, state: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], torch.dtype]]: ...

    @abstractmethod
    def _load(self, state: dict[str, Tensor]) -> None: ...

    def _check_rows(self, phi: Tensor, first: Tensor) -> None:
        if phi.ndim != 3 or phi.shape[-1] != self.dim:
            raise ValueError(f"phi must be [T, N, {self.dim}], got {_shape(phi)}")
        if first.shape != phi.shape[:2]:
            raise ValueError(f"first must be {list(phi.shape[:2])} like phi {_shape(phi)}, got {_shape(first)}")
        if first.dtype != torch.bool:
            raise ValueError(f"first must be a bool tensor, got {first.dtype}; convert it with first.bool()")
        if first.device != phi.device:
            raise ValueError(f"first is on {first.device}, phi on {phi.device}; move it with first.to(phi.device)")
        self._check_values("phi", phi)

    def _check_values(self, name: str, rows: Tensor) -> None:
        if rows.dtype != self.dtype:
            raise ValueError(f"{name} must be {self.dtype}, got {rows.dtype}; cast it with .to({self.dtype})")
        if rows.device.type != self.device.type:
            raise ValueError(
                f"{name} is on {rows.device}, the memory on {self.device}; move it with .to(memory.device)"
            )
        flat = rows.reshape(-1)
        if float(flat.dot(flat)) <= LONGEST * self.ridge:  # False for NaN and inf
            return
        wrong = ~torch.isfinite(rows)
        if bool(wrong.any()):
            where = tuple(wrong.nonzero()[0].tolist())
            raise NonFiniteError(
                f"{name} has {int(wrong.sum())} entries that are NaN or inf, the first at {where}; the encoder has "
                "probably diverged: lower its learning rate. The memory is unchanged"
            )
        longest = float(torch.linalg.vector_norm(rows.double(), dim=-1).max())
        if longest**2 > LONGEST * self.ridge:
            raise NonFiniteError(
                f"{name} has rows of length {longest:.3g}, whose squares are too large for a ridge of {self.ridge:g} "
                f"in float64 (the limit is {(LONGEST * self.ridge) ** 0.5:.3g}); scale the embedding down. The memory "
                "is unchanged"
            )

    def _check_slots(self, slots: Slots | None, columns: int) -> Tensor | None:
        if slots is None:
            if columns != self.num_envs:
                raise ValueError(
                    f"phi has {columns} columns but the memory has {self.num_envs} environments; pass slots with the "
                    "index of each column's environment"
                )
            return None
        index = torch.as_tensor(slots, device=self.device)
        if index.ndim != 1 or len(index) != columns or index.is_floating_point() or index.dtype == torch.bool:
            raise ValueError(f"slots must be {columns} integers, one per column, got {_shape(index)} of {index.dtype}")
        values = index.tolist()
        if values and not (min(values) >= 0 and max(values) < self.num_envs):
            raise ValueError(f"slots must lie in 0..{self.num_envs - 1}, got {min(values)}..{max(values)}")
        if len(set(values)) != len(values):
            raise ValueError(f"slots must not repeat, got {values}; put the steps of one environment along T")
        return index.long().contiguous()

    def _check_opening(self, opening: Tensor, first: Tensor) -> Tensor:
        expected = (int(first.sum()), self.dim)
        if tuple(opening.shape) != expected:
            raise ValueError(f"opening must be {list(expected)}, one row for each True in first, got {_shape(opening)}")
        self._check_values("opening", opening)
        order = first.reshape(-1).long().cumsum(0).reshape(first.shape) - 1
        return torch.where(first, order, torch.full_like(order, -1))


class EllipticalMemory(CheckedMemory):
    """One ellipse per environment: scores each embedding against the earlier ones of its episode, then adds it.

    Args:
        num_envs: number of environment slots.
        dim: length d of an embedding.
        ridge: lambda > 0; an empty ellipse is ridge * I.
        dtype: of the bonuses and the stored matrices, torch.float32 or torch.float64.
        device: where the bonuses and the stored matrices are.
        episodic: clear an ellipse where an episode starts; False: never.
        backend: "numba" (CPU only), "torch", or "auto": numba on the CPU, torch elsewhere.

    Examples:
        >>> import torch
        >>> from e3b_gym import EllipticalMemory
        >>> memory = EllipticalMemory(num_envs=1, dim=2, ridge=0.1)
        >>> phi = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]).unsqueeze(1)  # [T, N, d]
        >>> first = torch.tensor([[True], [False], [False]])  # the episode starts at the first row
        >>> memory.unroll(phi, first)[:, 0]
        tensor([10.0000,  0.9091, 10.0000])
    """

    def __init__(
        self,
        num_envs: int,
        dim: int,
        ridge: float = 0.1,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        episodic: bool = True,
        backend: Literal["auto", "numba", "torch"] = "auto",
    ) -> None:
        super().__init__(num_envs, dim, ridge, dtype, device, episodic)
        self.backend = _choose(backend, self.device)
        like = torch.empty(0, dtype=dtype, device=self.device)
        sizes = num_envs, dim, self.ridge, like
        self._ellipses: Ellipses
        if self.backend == "numba":
            from e3b_gym.memory._ellipses_numba import NumbaEllipses  # numba takes a second to import

            self._ellipses = NumbaEllipses(*sizes)
        else:
            self._ellipses = TorchEllipses(*sizes)
        self._all_slots = torch.arange(num_envs, device=self.device)

    def _advance(
        self, phi: Tensor, first: Tensor, slots: Tensor | None, opening: Tensor | None, entry: Tensor | None
    ) -> Tensor:
        slots = self._all_slots if slots is None else slots
        clear = first if self.episodic else torch.zeros_like(first)
        return self._ellipses.advance(phi, clear.contiguous(), slots, opening, entry)

    def _clear(self, slots: Tensor) -> None:
        self._ellipses.clear(slots)

    def _state(self) -> dict[str, Tensor]:
        return self._ellipses.state()

    def _state_shapes(self, state: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        return self._ellipses.state_shapes(state)

    def _load(self, state: dict[str, Tensor]) -> None:
        self._ellipses.load(state)


def _choose(backend: str, device: torch.device) -> str:
    if backend not in ("auto", "numba", "torch"):
        raise ValueError(f"backend must be 'auto', 'numba' or 'torch', got {backend!r}")
    if backend == "numba" and device.type != "cpu":
        raise ValueError(f"the numba backend runs on the CPU, not on {device}; use backend='torch' or 'auto'")
    if backend == "auto":
        return "numba" if device.type == "cpu" else "torch"
    return backend


def _shape(tensor: Tensor) -> str:
    return str(list(tensor.shape))
