"""The elliptical episodic memory (Henaff et al. 2022, Algorithm 1): exact, fast, and safe on revisited states.

    b_t = phi_t' C_{t-1}^-1 phi_t,    C_t = C_{t-1} + phi_t phi_t',    C = ridge * I where an episode starts

Peers keep C^-1 in float32 and subtract from it, which goes wrong exactly where states repeat. Here C^-1 is held as
M (I + Z'Z)^-1 M': a triangular square root M of all that has been folded in, and the last few rows Z, whitened by it.

    z = M' phi                                  whiten
    h = (I + Z Z')^-1 Z z,   r = z - Z'h        regress on the pending rows; Gram matrix in float64
    b = r'r + h'h                               the minimum of that ridge regression: a sum of squares, never
                                                negative, and flat in h, so that an error of h enters squared
    Z <- [Z; z]                                 remember
    M <- M T,  T T' = (I + Z'Z)^-1,  Z <- []    fold, when the rows are full; T upper triangular, in float64

A young episode has M = I / sqrt(ridge) and never touches a d x d matrix. `docs/kernel.md` derives this and measures it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from e3b_gym.memory._checked import CheckedMemory
from e3b_gym.memory._ellipses_torch import TorchEllipses

if TYPE_CHECKING:
    from e3b_gym.memory._ellipses_numba import NumbaEllipses


class EllipticalMemory(CheckedMemory):
    """One ellipse per environment: pays each embedding by how far it lies outside the earlier ones, then adds it.

    Args:
        num_envs: number of environment slots.
        dim: length d of an embedding.
        ridge: lambda > 0; a fresh ellipse is ridge * I.
        dtype: torch.float32 or torch.float64, of the embeddings, the bonus and the stored matrices.
        device: where the embeddings live; all state is kept there.
        episodic: False never clears an ellipse (the lifelong ablation); `first` then only places `opening` rows.
        backend: "numba" (CPU only), "torch", or "auto": numba where it can run.
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
        sizes = num_envs, dim, max(32, dim // 4), self.ridge**-0.5, like
        self._ellipses: NumbaEllipses | TorchEllipses
        if self.backend == "numba":
            from e3b_gym.memory._ellipses_numba import NumbaEllipses  # numba takes a second to import

            self._ellipses = NumbaEllipses(*sizes)
        else:
            self._ellipses = TorchEllipses(*sizes)
        self._everyone = torch.arange(num_envs, device=self.device)

    def _advance(
        self, phi: Tensor, first: Tensor, slots: Tensor | None, opening: Tensor | None, entry: Tensor | None
    ) -> Tensor:
        slots = self._everyone if slots is None else slots
        clear = first if self.episodic else torch.zeros_like(first)
        if not isinstance(self._ellipses, TorchEllipses):
            return self._ellipses.advance(phi, clear.contiguous(), slots, opening, entry)
        if opening is None or entry is None or len(opening) == 0:
            return self._ellipses.advance(phi, clear, slots)
        # Opening rows become rows of their own before the row they open; zero rows elsewhere leave no trace.
        before = torch.cat([opening, opening.new_zeros(1, self.dim)])[entry]  # [T, N, d], entry -1 is the zero row
        doubled = torch.stack([before, phi], dim=1).flatten(0, 1)  # [2T, N, d]
        clears = torch.stack([clear, torch.zeros_like(clear)], dim=1).flatten(0, 1)
        return self._ellipses.advance(doubled, clears, slots)[1::2].contiguous()

    def _forget(self, slots: Tensor) -> None:
        self._ellipses.forget(slots)

    def _state(self) -> dict[str, Tensor]:
        own = self._ellipses
        counts = own.count.tolist()
        triangle = torch.tril_indices(self.dim, self.dim).unbind()
        small = [own.inverse[e, :c, :c][tuple(torch.tril_indices(c, c))] for e, c in enumerate(counts)]
        return {
            "count": own.count.clone(),
            "folded": own.folded.clone(),
            "rows": torch.cat([own.rows[e, :c] for e, c in enumerate(counts)]),
            "inverse": torch.cat(small),
            "matrix": own.dense(own.folded.nonzero().flatten().to(self.device))[:, triangle[0], triangle[1]],
        }

    def _state_shapes(self, state: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        count, folded = state.get("count"), state.get("folded")
        counts = count.tolist() if isinstance(count, Tensor) else []
        matrices = int(folded.sum()) if isinstance(folded, Tensor) else 0
        return {
            "count": ((self.num_envs,), torch.long),
            "folded": ((self.num_envs,), torch.bool),
            "rows": ((sum(counts), self.dim), self.dtype),
            "inverse": ((sum(c * (c + 1) // 2 for c in counts),), torch.float64),
            "matrix": ((matrices, self.dim * (self.dim + 1) // 2), self.dtype),
        }

    def _load(self, state: dict[str, Tensor]) -> None:
        own = self._ellipses
        counts = state["count"].tolist()
        if min(counts) < 0 or max(counts) > own.capacity:
            raise ValueError(f"the state's 'count' must lie in 0..{own.capacity}, got {counts}")
        self.reset()
        own.count.copy_(state["count"])
        own.folded.copy_(state["folded"])
        rows = torch.split(state["rows"], counts)
        small = torch.split(state["inverse"], [c * (c + 1) // 2 for c in counts])
        for e, c in enumerate(counts):
            own.rows[e, :c] = rows[e]
            triangle = torch.tril_indices(c, c, device=self.device).unbind()
            own.inverse[e, :c, :c] = 0
            own.inverse[e, triangle[0], triangle[1]] = small[e]
        slots = own.folded.nonzero().flatten().to(self.device)
        matrix = own.rows.new_zeros(len(slots), self.dim, self.dim)
        triangle = torch.tril_indices(self.dim, self.dim, device=self.device).unbind()
        matrix[:, triangle[0], triangle[1]] = state["matrix"]
        own.set_dense(slots, matrix)
        own.settle()


def _choose(backend: str, device: torch.device) -> str:
    if backend not in ("auto", "numba", "torch"):
        raise ValueError(f"backend must be 'auto', 'numba' or 'torch', got {backend!r}")
    if backend == "numba" and device.type != "cpu":
        raise ValueError(f"the numba backend runs on the CPU, not on {device}; use backend='torch' or 'auto'")
    if backend == "auto":
        return "numba" if device.type == "cpu" and importlib.util.find_spec("numba") else "torch"
    return backend
