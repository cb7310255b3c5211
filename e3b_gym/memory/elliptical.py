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

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from e3b_gym.memory._checked import CheckedMemory
from e3b_gym.memory._ellipses_torch import TorchEllipses, fold_into

if TYPE_CHECKING:
    from e3b_gym.memory._ellipses_numba import NumbaEllipses


class EllipticalMemory(CheckedMemory):
    """One ellipse per environment: scores each embedding against the earlier ones of its episode, then adds it.

    Args:
        num_envs: number of environment slots.
        dim: length d of an embedding.
        ridge: lambda > 0; an empty ellipse is ridge * I.
        dtype: dtype of the embeddings, the bonus and the stored matrices, torch.float32 or torch.float64.
        device: device of the embeddings and of all state.
        episodic: clear the ellipse when an episode starts; False: never (the lifelong ablation), `first` then only
            marks where `opening` rows are added.
        backend: "numba" (CPU only), "torch", or "auto": numba on the CPU, torch elsewhere.

    Example:
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
        self._ellipses: NumbaEllipses | TorchEllipses
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
        if not isinstance(self._ellipses, TorchEllipses):
            return self._ellipses.advance(phi, clear.contiguous(), slots, opening, entry)
        if opening is None or entry is None or len(opening) == 0:
            return self._ellipses.advance(phi, clear, slots)
        # An extra row precedes each row: its opening row, or zeros, which do not change the ellipse.
        before = torch.cat([opening, opening.new_zeros(1, self.dim)])[entry]  # [T, N, d], entry -1 is the zero row
        doubled = torch.stack([before, phi], dim=1).flatten(0, 1)  # [2T, N, d]
        clears = torch.stack([clear, torch.zeros_like(clear)], dim=1).flatten(0, 1)
        return self._ellipses.advance(doubled, clears, slots)[1::2].contiguous()

    def _clear(self, slots: Tensor) -> None:
        self._ellipses.clear(slots)

    def _state(self) -> dict[str, Tensor]:
        parts = [self._ellipses.export(slot) for slot in range(self.num_envs)]
        i, j = torch.tril_indices(self.dim, self.dim)
        empty = torch.empty(0, len(i), dtype=self.dtype, device=self.device)
        return {
            "count": torch.tensor([len(rows) for rows, _, _ in parts]),
            "folded": torch.tensor([matrix is not None for _, _, matrix in parts]),
            "rows": torch.cat([rows for rows, _, _ in parts]),
            "inverse": torch.cat([triangle for _, triangle, _ in parts]),
            "matrix": torch.cat([empty] + [matrix[i, j].unsqueeze(0) for _, _, matrix in parts if matrix is not None]),
        }

    def _state_shapes(self, state: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        count, has_matrix = state.get("count"), state.get("folded")
        counts = count.clamp(min=0).tolist() if isinstance(count, Tensor) else []
        matrices = int(has_matrix.sum()) if isinstance(has_matrix, Tensor) else 0
        return {
            "count": ((self.num_envs,), torch.long),
            "folded": ((self.num_envs,), torch.bool),
            "rows": ((sum(counts), self.dim), self.dtype),
            "inverse": ((sum(c * (c + 1) // 2 for c in counts),), torch.float64),
            "matrix": ((matrices, self.dim * (self.dim + 1) // 2), self.dtype),
        }

    def _load(self, state: dict[str, Tensor]) -> None:
        counts = state["count"].tolist()
        rows = torch.split(state["rows"], counts)
        triangles = torch.split(state["inverse"], [c * (c + 1) // 2 for c in counts])
        packed = iter(state["matrix"])
        i, j = torch.tril_indices(self.dim, self.dim)
        for slot, has_matrix in enumerate(state["folded"].tolist()):
            pending, triangle, matrix = rows[slot], triangles[slot], None
            if has_matrix:
                matrix = pending.new_zeros(self.dim, self.dim)
                matrix[i, j] = next(packed)
            if len(pending) > self._ellipses.room(has_matrix):  # saved by the other backend
                whole = torch.eye(self.dim).to(pending) if matrix is None else matrix
                prior = torch.tensor([1.0 if has_matrix else self.ridge], dtype=torch.float64).to(self.device)
                matrix = fold_into(whole.unsqueeze(0), pending.unsqueeze(0), prior)[0]
                pending, triangle = pending[:0], triangle[:0]
            self._ellipses.restore(slot, pending, triangle, matrix)


def _choose(backend: str, device: torch.device) -> str:
    if backend not in ("auto", "numba", "torch"):
        raise ValueError(f"backend must be 'auto', 'numba' or 'torch', got {backend!r}")
    if backend == "numba" and device.type != "cpu":
        raise ValueError(f"the numba backend runs on the CPU, not on {device}; use backend='torch' or 'auto'")
    if backend == "auto":
        return "numba" if device.type == "cpu" else "torch"
    return backend
