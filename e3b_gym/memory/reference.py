"""Reference implementation of the elliptical bonus: a direct float64 solve, slow and simple.

    b_t = phi_t' C_{t-1}^-1 phi_t,    C_t = ridge * I + sum_{i <= t} phi_i phi_i'    within an episode

The tests compare `EllipticalMemory` with it. C itself is never formed: its condition number is the square of that of
the rows, and on repeated states of norm 1000 a solve with C is accurate to only five digits. Instead, Householder QR
updates the triangular factor R of the stacked rows, R'R = C, and b = |R'^-1 phi|^2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from e3b_gym.memory._checked import CheckedMemory


class ReferenceMemory(CheckedMemory):
    """`EllipticalMemory` with a direct float64 solve at every step; same arguments and methods."""

    def __init__(
        self,
        num_envs: int,
        dim: int,
        ridge: float = 0.1,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        episodic: bool = True,
    ) -> None:
        super().__init__(num_envs, dim, ridge, dtype, device, episodic)
        self._empty = torch.eye(dim, dtype=torch.float64, device=self.device) * self.ridge**0.5
        self._factor = self._empty.repeat(num_envs, 1, 1)  # [num_envs, d, d], R with R'R = C

    def _advance(
        self, phi: Tensor, first: Tensor, slots: Tensor | None, opening: Tensor | None, entry: Tensor | None
    ) -> Tensor:
        bonus = torch.zeros(phi.shape[:2], dtype=torch.float64, device=self.device)
        envs = range(self.num_envs) if slots is None else slots.tolist()
        for column, env in enumerate(envs):
            for t in range(len(phi)):
                if self.episodic and first[t, column]:
                    self._factor[env] = self._empty
                if opening is not None and entry is not None and first[t, column]:
                    self._add(env, opening[entry[t, column]].double())
                row = phi[t, column].double()
                bonus[t, column] = self._score(env, row)
                self._add(env, row)
        return bonus.to(self.dtype)

    def _score(self, env: int, row: Tensor) -> Tensor:
        whitened: Tensor = torch.linalg.solve_triangular(self._factor[env].mT, row.unsqueeze(-1), upper=False)
        return whitened.square().sum()

    def _add(self, env: int, row: Tensor) -> None:
        if row.any():  # a zero row changes nothing, not even by rounding
            self._factor[env] = torch.linalg.qr(torch.cat([self._factor[env], row.unsqueeze(0)]), mode="r").R

    def _clear(self, slots: Tensor) -> None:
        self._factor[slots] = self._empty

    def _state(self) -> dict[str, Tensor]:
        return {"factor": self._factor.clone()}

    def _state_shapes(self, state: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        return {"factor": ((self.num_envs, self.dim, self.dim), torch.float64)}

    def _load(self, state: dict[str, Tensor]) -> None:
        self._factor.copy_(state["factor"])
