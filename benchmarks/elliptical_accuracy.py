"""Accuracy of each implementation over one long episode.

The reference is Potter's square-root filter in float64, C^-1 = M M' with M <- M - (M z) z' / (s (s + 1)). It squares
nothing, so even at a condition number of 1e11 it is accurate to ten digits (the tests compare it with a QR solve).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from benchmarks.elliptical_peers import DirectSolve, ShermanMorrison
from e3b_gym.memory.elliptical import EllipticalMemory

RIDGE = 0.1
KINDS = ("random", "low-rank", "one state", "50 states", "near-repeated")
NORMS = (1.0, 30.0, 100.0, 1000.0)


@dataclass
class Accuracy:
    """Largest relative error of the bonus over the episode."""

    kind: str
    norm: float
    direct: float
    authors: float
    float32: float
    float64: float
    bar: float

    def passed(self) -> bool:
        return self.float32 <= self.bar and self.float64 <= 1e-6


def episode(kind: str, steps: int, dim: int, norm: float, seed: int) -> np.ndarray:
    """Returns float32 embeddings [T, d] of the given norm."""
    rng = np.random.default_rng(seed)
    free = rng.standard_normal((steps, dim))
    few = rng.standard_normal((50, dim))
    phi = {
        "random": free,
        "low-rank": rng.standard_normal((steps, 8)) @ rng.standard_normal((8, dim)),
        "one state": np.repeat(few[:1], steps, axis=0),
        "50 states": few[rng.integers(50, size=steps)],
        "near-repeated": few[rng.integers(50, size=steps)] + 1e-3 * free,
    }[kind]
    return (phi * norm / np.linalg.norm(phi, axis=1, keepdims=True)).astype(np.float32)


def truth(phi: np.ndarray, ridge: float = RIDGE) -> np.ndarray:
    """Returns the bonus of every step of one episode phi [T, d] in float64."""
    root = np.eye(phi.shape[1]) / np.sqrt(ridge)
    bonus = np.empty(len(phi))
    for t, row in enumerate(phi.astype(np.float64)):
        z = row @ root
        bonus[t] = z @ z
        s = np.sqrt(1 + bonus[t])
        root -= np.outer(root @ z / (s * (s + 1)), z)
    return bonus


def bar(kind: str, norm: float) -> float:
    """Returns the largest error allowed in float32."""
    if kind == "random":
        return 1e-5
    return 1e-2 if norm <= 100 else 5e-2


def accuracy_table(steps: int, dim: int, seed: int) -> list[Accuracy]:
    table = []
    for kind in KINDS:
        for norm in NORMS:
            phi = episode(kind, steps, dim, norm, seed)
            exact = torch.from_numpy(truth(phi))
            rows = torch.from_numpy(phi).unsqueeze(1)  # [T, 1, d]
            first = torch.zeros(steps, 1, dtype=torch.bool)

            def error(bonus: torch.Tensor, exact: torch.Tensor = exact) -> float:
                wrong = (bonus[:, 0].double() / exact[: len(bonus)] - 1).abs().nan_to_num(nan=float("inf"))
                return float(wrong.max())

            single = EllipticalMemory(1, dim, RIDGE).unroll(rows, first)
            double = EllipticalMemory(1, dim, RIDGE, dtype=torch.float64).unroll(rows.double(), first)
            few = 500  # a direct solve at every one of 10,000 steps would take minutes
            table.append(
                Accuracy(
                    kind,
                    norm,
                    direct=error(_direct(rows[:few], first[:few], dim)),
                    authors=error(ShermanMorrison(1, dim, RIDGE)(rows, first)),
                    float32=error(single),
                    float64=error(double),
                    bar=bar(kind, norm),
                )
            )
    return table


def _direct(rows: torch.Tensor, first: torch.Tensor, dim: int) -> torch.Tensor:
    try:
        return DirectSolve(1, dim, RIDGE)(rows, first)
    except torch.linalg.LinAlgError:  # in float32, C was no longer positive definite
        return torch.full(rows.shape[:2], float("inf"))


def print_accuracy(table: list[Accuracy]) -> bool:
    print("Largest relative error of the bonus over one episode (direct: float32 solve, first 500 steps only)\n")
    header = f"{'embeddings':>14} {'norm':>6} | {'direct':>9} {'authors':>9} |"
    print(f"{header} {'float32':>9} {'bar':>7} {'float64':>9} |  result")
    print("-" * 84)
    for row in table:
        line = f"{row.kind:>14} {row.norm:>6.0f} | {row.direct:>9.1e} {row.authors:>9.1e} |"
        print(f"{line} {row.float32:>9.1e} {row.bar:>7.0e} {row.float64:>9.1e} |  {'PASS' if row.passed() else 'FAIL'}")
    return all(row.passed() for row in table)
