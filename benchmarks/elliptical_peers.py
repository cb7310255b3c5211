"""Other implementations of the elliptical bonus in torch, each reasonably optimised, and the machine's limits.

Each takes phi [T, N, d] and first [T, N] and returns the bonus [T, N]. They are written from the equations, with the
operations that each implementation is known for; no code is copied.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor


class DirectSolve:
    """b = phi' C^-1 phi by a Cholesky solve with C at each step, all environments in one batch, float32."""

    def __init__(self, num_envs: int, dim: int, ridge: float) -> None:
        self.fresh = torch.eye(dim) * ridge
        self.ellipse = self.fresh.repeat(num_envs, 1, 1)  # [N, d, d]

    def __call__(self, phi: Tensor, first: Tensor) -> Tensor:
        bonus = torch.empty(phi.shape[:2])
        for t in range(len(phi)):
            self.ellipse[first[t]] = self.fresh
            x = phi[t].unsqueeze(-1)
            bonus[t] = (x * torch.cholesky_solve(x, torch.linalg.cholesky(self.ellipse))).sum((1, 2))
            self.ellipse.baddbmm_(x, x.mT)
        return bonus


class ShermanMorrison:
    """The authors' update: a float32 inverse per environment, an outer product into a buffer, then a subtraction."""

    fused = False

    def __init__(self, num_envs: int, dim: int, ridge: float) -> None:
        self.fresh = torch.eye(dim) / ridge
        self.inverse = [self.fresh.clone() for _ in range(num_envs)]
        self.buffer = torch.empty(dim, dim)
        self.u = torch.empty(dim)

    def __call__(self, phi: Tensor, first: Tensor) -> Tensor:
        bonus = torch.empty(phi.shape[:2])
        for t in range(len(phi)):
            for n, inverse in enumerate(self.inverse):
                if first[t, n]:
                    inverse.copy_(self.fresh)
                torch.mv(inverse, phi[t, n], out=self.u)
                b = torch.dot(self.u, phi[t, n]).item()
                bonus[t, n] = b
                if self.fused:
                    inverse.addr_(self.u, self.u, alpha=-1 / (1 + b))
                else:
                    torch.outer(self.u, self.u, out=self.buffer)
                    inverse.add_(self.buffer, alpha=-1 / (1 + b))
        return bonus


class FusedShermanMorrison(ShermanMorrison):
    """`ShermanMorrison` with the outer product fused into the update (`addr_`), which the authors do not do."""

    fused = True


class BatchedShermanMorrison:
    """Sherman-Morrison for all environments at once: bmm, then `baddbmm_` in place."""

    def __init__(self, num_envs: int, dim: int, ridge: float) -> None:
        self.fresh = torch.eye(dim) / ridge
        self.inverse = self.fresh.repeat(num_envs, 1, 1)  # [N, d, d]

    def __call__(self, phi: Tensor, first: Tensor) -> Tensor:
        bonus = torch.empty(phi.shape[:2])
        for t in range(len(phi)):
            if first[t].any():
                self.inverse[first[t]] = self.fresh
            u = torch.bmm(self.inverse, phi[t].unsqueeze(-1))  # [N, d, 1]
            bonus[t] = (u.squeeze(-1) * phi[t]).sum(-1)
            scaled = u / (1 + bonus[t]).view(-1, 1, 1)
            self.inverse.baddbmm_(scaled, u.mT, alpha=-1)
        return bonus


class RllteLoop:
    """The loop of rllte's E3B reward, rewritten: batched storage, indexed per environment, a buffer for each."""

    def __init__(self, num_envs: int, dim: int, ridge: float) -> None:
        self.fresh = torch.eye(dim) / ridge
        self.inverse = self.fresh.repeat(num_envs, 1, 1)  # [N, d, d]
        self.buffer = torch.empty(num_envs, dim, dim)

    def __call__(self, phi: Tensor, first: Tensor) -> Tensor:
        bonus = torch.empty(phi.shape[:2])
        for t in range(len(phi)):
            for n in range(phi.shape[1]):
                if first[t, n]:
                    self.inverse[n] = self.fresh
                inverse, buffer, x = self.inverse[n], self.buffer[n], phi[t, n]
                u = torch.mv(inverse, x)
                b = torch.dot(x, u).item()
                bonus[t, n] = b
                torch.outer(u, u, out=buffer)
                torch.add(inverse, buffer, alpha=-1 / (1 + b), out=inverse)
        return bonus


PEERS: dict[str, type[DirectSolve | ShermanMorrison | BatchedShermanMorrison | RllteLoop]] = {
    "direct": DirectSolve,
    "authors": ShermanMorrison,
    "addr_": FusedShermanMorrison,
    "baddbmm_": BatchedShermanMorrison,
    "rllte": RllteLoop,
}


def best_time(action: Callable[[], object], seconds: float = 0.5) -> float:
    """Returns the shortest CPU time of one call, over as many calls as fit into `seconds`."""
    best = float("inf")
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.thread_time()
        action()
        best = min(best, time.thread_time() - start)
    return best


def machine_limits() -> dict[str, float]:
    """Measures stream read (GB/s) and matrix product (GFLOP/s, float32 and float64) of one thread."""
    stream = torch.ones(32 * 1024 * 1024)
    limits = {"stream_read_gb": stream.numel() * 4 / best_time(stream.sum) / 1e9}
    for name, dtype in (("sgemm_gflop", torch.float32), ("dgemm_gflop", torch.float64)):
        a = torch.ones(512, 512, dtype=dtype)
        out = torch.empty_like(a)
        limits[name] = 2 * 512**3 / best_time(lambda a=a, out=out: torch.mm(a, a, out=out)) / 1e9  # type: ignore[misc]
    return limits
