"""Ten thousand steps in one episode: the bonus stays right where float32 inverses have long gone wrong."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.elliptical_accuracy import KINDS, NORMS, RIDGE, episode, truth
from e3b_gym.memory.elliptical import EllipticalMemory
from e3b_gym.memory.reference import ReferenceMemory

STEPS = 10_000
GRID = [(kind, norm) for kind in KINDS for norm in NORMS]


def tolerance(kind, norm, dtype):
    if dtype == torch.float64:
        return 1e-6
    if kind == "random":
        return 1e-5
    return 1e-2 if norm <= 100 else 5e-2


@pytest.fixture(scope="module")
def grid():
    """phi [T, kinds x norms, d] and the truth [T, kinds x norms]."""
    return make_grid(dim=32)


def make_grid(dim):
    episodes = [episode(kind, STEPS, dim, norm, seed=0) for kind, norm in GRID]
    return torch.from_numpy(np.stack(episodes, 1)), torch.from_numpy(np.stack([truth(phi) for phi in episodes], 1))


def check(memory, phi, exact, stepwise=0):
    """Unroll all of phi (the last `stepwise` rows one at a time), and compare every step of every column."""
    first = torch.zeros(phi.shape[:2], dtype=torch.bool)
    cut = len(phi) - stepwise
    parts = [memory.unroll(phi[:cut], first[:cut])]
    parts += [memory.step(phi[t], first[t]).unsqueeze(0) for t in range(cut, len(phi))]
    bonus = torch.cat(parts).double()
    assert bool((bonus >= 0).all())
    worst = (bonus / exact - 1).abs().amax(0)
    for (kind, norm), error in zip(GRID, worst.tolist(), strict=True):
        assert error <= tolerance(kind, norm, phi.dtype), f"{kind} of norm {norm}: {error:.1e}"


@pytest.mark.parametrize("backend", ["numba", "torch"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ten_thousand_steps_equal_the_truth(grid, backend, dtype):
    phi, exact = grid
    check(EllipticalMemory(len(GRID), 32, RIDGE, dtype=dtype, backend=backend), phi.to(dtype), exact)


def test_ten_thousand_single_steps_equal_the_truth(grid):
    phi, exact = grid
    check(EllipticalMemory(len(GRID), 32, RIDGE, backend="numba"), phi, exact, stepwise=STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("dim", [128, 256])
def test_ten_thousand_steps_equal_the_truth_in_many_dimensions(dim):
    phi, exact = make_grid(dim)
    for dtype in (torch.float32, torch.float64):
        check(EllipticalMemory(len(GRID), dim, RIDGE, dtype=dtype, backend="numba"), phi.to(dtype), exact)
    check(EllipticalMemory(len(GRID), dim, RIDGE, backend="numba"), phi, exact, stepwise=STEPS)
    check(EllipticalMemory(len(GRID), dim, RIDGE, backend="torch"), phi, exact)


@pytest.mark.parametrize("seed", range(5))
def test_the_step_where_the_rows_just_span_the_space_is_right(seed):
    phi = torch.from_numpy(episode("random", 400, 128, 1000.0, seed)).unsqueeze(1)
    exact = torch.from_numpy(truth(phi[:, 0].numpy()))
    for backend in ("numba", "torch"):
        memory = EllipticalMemory(1, 128, RIDGE, backend=backend)
        bonus = memory.unroll(phi, torch.zeros(400, 1, dtype=torch.bool))[:, 0].double()
        assert float((bonus / exact - 1).abs().max()) <= 1e-5


@pytest.mark.parametrize(("kind", "norm"), GRID)
def test_the_truth_itself_is_right(kind, norm):
    """Two independent float64 methods and extended precision agree, at a condition number up to 1e9."""
    phi = episode(kind, 120, 10, norm, seed=0)
    rows = torch.from_numpy(phi).double().unsqueeze(1)
    reference = ReferenceMemory(1, 10, RIDGE, dtype=torch.float64)
    by_qr = reference.unroll(rows, torch.zeros(120, 1, dtype=torch.bool))[:, 0].numpy()
    np.testing.assert_allclose(by_qr, truth(phi), rtol=1e-8)
    np.testing.assert_allclose(by_qr[-1], exactly(phi), rtol=1e-8)


def exactly(phi):
    """The last bonus by Gaussian elimination over fractions."""
    from fractions import Fraction

    rows = [[Fraction(float(x)) for x in row] for row in phi]
    *past, last = rows
    dim = len(last)
    system = [
        [sum(row[i] * row[j] for row in past) + (Fraction(RIDGE) if i == j else 0) for j in range(dim)]
        for i in range(dim)
    ]
    right = list(last)
    for i in range(dim):
        for j in range(i + 1, dim):
            ratio = system[j][i] / system[i][i]
            system[j] = [a - ratio * b for a, b in zip(system[j], system[i], strict=True)]
            right[j] -= ratio * right[i]
    return float(sum(x * x / system[i][i] for i, x in enumerate(right)))
