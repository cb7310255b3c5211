"""What the elliptical memory promises, against the reference and against closed forms, on both backends."""

from __future__ import annotations

import io

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from e3b_gym.memory.elliptical import EllipticalMemory
from e3b_gym.memory.reference import ReferenceMemory

BACKENDS = ("numba", "torch")
DTYPES = (torch.float32, torch.float64)
CLOSE = {torch.float32: 2e-4, torch.float64: 1e-9}

properties = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
backends = pytest.mark.parametrize("backend", BACKENDS)


@st.composite
def journeys(draw, max_steps=70):
    """(phi [T, N, d], first [T, N], opening [K, d]) with resets anywhere, repeated rows and zero rows."""
    dim = draw(st.sampled_from([1, 3, 8, 13, 24]))
    steps, envs = draw(st.integers(0, max_steps)), draw(st.integers(1, 4))
    norm = draw(st.sampled_from([0.1, 1.0, 30.0]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    phi = torch.randn(steps, envs, dim, generator=generator, dtype=torch.float64) * norm / dim**0.5
    if draw(st.booleans()):  # revisit a few states
        phi = phi[torch.randint(5, (steps,), generator=generator).clamp(max=max(steps - 1, 0))]
    phi = phi * (torch.rand(steps, envs, 1, generator=generator) > draw(st.sampled_from([0.0, 0.2])))
    first = torch.rand(steps, envs, generator=generator) < draw(st.sampled_from([0.0, 0.02, 0.2, 1.0]))
    opening = torch.randn(int(first.sum()), dim, generator=generator, dtype=torch.float64)
    return phi.float().double(), first, opening.float().double()


def assert_close(got, expected, dtype):
    torch.testing.assert_close(got.double(), expected.double(), rtol=CLOSE[dtype], atol=1e-12)


@backends
@properties
@given(journeys(), st.sampled_from(DTYPES), st.booleans(), st.booleans())
def test_equals_the_reference(backend, journey, dtype, with_opening, episodic):
    phi, first, opening = journey
    envs, dim = phi.shape[1:]
    memory = EllipticalMemory(envs, dim, dtype=dtype, episodic=episodic, backend=backend)
    reference = ReferenceMemory(envs, dim, dtype=torch.float64, episodic=episodic)
    rows = opening if with_opening else None
    expected = reference.unroll(phi, first, opening=rows)
    got = memory.unroll(phi.to(dtype), first, opening=None if rows is None else rows.to(dtype))
    assert got.dtype == dtype
    assert got.shape == first.shape
    assert bool((got >= 0).all())
    assert_close(got, expected, dtype)


@backends
@properties
@given(journeys(), st.sampled_from(DTYPES), st.data())
def test_splitting_an_unroll_or_stepping_changes_nothing_but_rounding(backend, journey, dtype, data):
    phi, first, opening = journey
    phi, opening = phi.to(dtype), opening.to(dtype)
    steps, envs, dim = phi.shape
    whole = EllipticalMemory(envs, dim, dtype=dtype, backend=backend).unroll(phi, first, opening=opening)
    memory = EllipticalMemory(envs, dim, dtype=dtype, backend=backend)
    cuts = sorted(data.draw(st.lists(st.integers(0, steps), max_size=4)))
    parts = []
    for start, stop in zip([0, *cuts], [*cuts, steps], strict=True):
        used = int(first[:start].sum())
        rows = opening[used : used + int(first[start:stop].sum())]
        if stop - start == 1:
            parts.append(memory.step(phi[start], first[start], opening=rows).unsqueeze(0))
        else:
            parts.append(memory.unroll(phi[start:stop], first[start:stop], opening=rows))
    assert_close(torch.cat(parts), whole, dtype)


@backends
@properties
@given(journeys(), st.randoms())
def test_slots_in_any_order_are_the_same_environments(backend, journey, random):
    phi, first, _ = journey
    envs, dim = phi.shape[1:]
    order = random.sample(range(envs + 2), envs)  # two slots are never used
    memory = EllipticalMemory(envs + 2, dim, dtype=torch.float64, backend=backend)
    half = len(phi) // 2
    got = torch.cat([memory.unroll(phi[:half], first[:half], slots=order)])
    turn = random.sample(range(envs), envs)
    slots = torch.tensor(order)[turn]
    rest = memory.unroll(phi[half:, turn], first[half:, turn], slots=slots)
    expected = EllipticalMemory(envs, dim, dtype=torch.float64, backend=backend).unroll(phi, first)
    assert_close(got, expected[:half], torch.float64)
    assert_close(rest, expected[half:, turn], torch.float64)


@backends
@properties
@given(journeys(), st.integers(0, 3))
def test_envs_do_not_leak_into_each_other(backend, journey, env):
    phi, first, _ = journey
    envs, dim = phi.shape[1:]
    env %= envs
    together = EllipticalMemory(envs, dim, dtype=torch.float64, backend=backend).unroll(phi, first)
    alone = EllipticalMemory(1, dim, dtype=torch.float64, backend=backend)
    assert_close(alone.unroll(phi[:, [env]], first[:, [env]]), together[:, [env]], torch.float64)


@backends
@pytest.mark.parametrize("before", [3, 40, 90], ids=["young", "full", "folded"])
@pytest.mark.parametrize("dim", [12, 40])
def test_a_reset_forgets_everything(backend, before, dim):
    phi = torch.randn(before + 30, 2, dim)
    first = torch.zeros(before + 30, 2, dtype=torch.bool)
    first[before] = True
    bonus = EllipticalMemory(2, dim, backend=backend).unroll(phi, first)
    fresh = EllipticalMemory(2, dim, backend=backend).unroll(phi[before:], first[before:])
    torch.testing.assert_close(bonus[before:], fresh, rtol=1e-5, atol=0)
    by_hand = EllipticalMemory(2, dim, backend=backend)
    by_hand.unroll(phi[:before], first[:before])
    by_hand.reset([1])
    after = by_hand.unroll(phi[before:], torch.zeros_like(first[before:]))
    torch.testing.assert_close(after[:, 1], fresh[:, 1], rtol=1e-5, atol=0)
    assert float((after[:5, 0] / fresh[:5, 0]).max()) < 1  # the other one still remembers


@backends
@properties
@given(journeys(), st.sampled_from(DTYPES), st.data())
def test_a_saved_memory_continues_as_if_never_saved(backend, journey, dtype, data):
    phi, first, _ = journey
    phi = phi.to(dtype)
    steps, envs, dim = phi.shape
    cut = data.draw(st.integers(0, steps))
    memory = EllipticalMemory(envs, dim, dtype=dtype, backend=backend)
    memory.unroll(phi[:cut], first[:cut])
    file = io.BytesIO()
    torch.save(memory.state_dict(), file)
    file.seek(0)
    loaded = EllipticalMemory(envs, dim, dtype=dtype, backend=backend)
    loaded.unroll(phi.flip(0), first)  # whatever it remembered before
    loaded.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(loaded.unroll(phi[cut:], first[cut:]), memory.unroll(phi[cut:], first[cut:]))


@properties
@given(journeys(), st.sampled_from([("numba", "torch"), ("torch", "numba")]), st.data())
def test_one_backend_continues_what_the_other_saved(journey, pair, data):
    phi, first, _ = journey
    steps, envs, dim = phi.shape
    cut = data.draw(st.integers(0, steps))
    ours, theirs = (EllipticalMemory(envs, dim, dtype=torch.float64, backend=name) for name in pair)
    ours.unroll(phi[:cut], first[:cut])
    theirs.load_state_dict(ours.state_dict())
    assert_close(theirs.unroll(phi[cut:], first[cut:]), ours.unroll(phi[cut:], first[cut:]), torch.float64)


@backends
def test_a_large_folded_memory_moves_between_backends(backend):
    phi = torch.randn(500, 1, 100, dtype=torch.float64)
    first = torch.zeros(500, 1, dtype=torch.bool)
    memory = EllipticalMemory(1, 100, dtype=torch.float64, backend=backend)
    other = EllipticalMemory(1, 100, dtype=torch.float64, backend="torch" if backend == "numba" else "numba")
    for start in (0, 100, 205, 400):  # young, young and long, folded, folded with rows that wait
        memory.reset()
        memory.unroll(phi[:start], first[:start])
        other.load_state_dict(memory.state_dict())
        torch.testing.assert_close(other.unroll(phi[start:], first[start:]), memory.unroll(phi[start:], first[start:]))


def test_the_state_is_compact():
    memory = EllipticalMemory(8, 64)
    memory.unroll(torch.randn(5, 8, 64), torch.zeros(5, 8, dtype=torch.bool))
    size = sum(value.numel() * value.element_size() for value in memory.state_dict().values() if torch.is_tensor(value))
    assert size < 8 * 5 * 64 * 4 * 1.2  # little more than the 5 rows of each environment
    memory.unroll(torch.randn(400, 8, 64), torch.zeros(400, 8, dtype=torch.bool))
    size = sum(value.numel() * value.element_size() for value in memory.state_dict().values() if torch.is_tensor(value))
    assert size < 8 * (64 * 65 // 2 + 16 * 64) * 4 * 1.1  # a triangle, and the rows that wait


@backends
@pytest.mark.parametrize("dim", [4, 30])
def test_one_hot_states_with_a_small_ridge_have_the_bonus_one_over_n(backend, dim):
    ridge = 1e-4
    visits = torch.randint(dim, (400,), generator=torch.Generator().manual_seed(dim))
    phi = torch.eye(dim)[visits].unsqueeze(1)
    bonus = EllipticalMemory(1, dim, ridge=ridge, backend=backend).unroll(phi, torch.zeros(400, 1, dtype=torch.bool))
    counts = torch.stack([(visits[:t] == visits[t]).sum() for t in range(400)])
    torch.testing.assert_close(bonus[:, 0], 1 / (ridge + counts), rtol=1e-4, atol=0)


@backends
def test_zero_rows_have_no_bonus_and_change_nothing(backend):
    phi = torch.randn(120, 2, 20)
    first = torch.zeros(120, 2, dtype=torch.bool)
    gaps = torch.arange(120) % 3 == 1
    holed = phi.clone()
    holed[gaps, 1] = 0
    bonus = EllipticalMemory(2, 20, backend=backend).unroll(holed, first)
    assert torch.equal(bonus[gaps, 1], torch.zeros(40))
    alone = EllipticalMemory(1, 20, backend=backend).unroll(phi[~gaps, 1:], first[~gaps, 1:])
    torch.testing.assert_close(bonus[~gaps, 1:], alone, rtol=1e-5, atol=0)


def test_a_zero_row_leaves_the_numba_state_bit_for_bit():
    memory = EllipticalMemory(2, 20, backend="numba")
    memory.unroll(torch.randn(60, 2, 20), torch.zeros(60, 2, dtype=torch.bool))
    before = memory.state_dict()
    memory.step(torch.zeros(2, 20), torch.zeros(2, dtype=torch.bool))
    after = memory.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items() if torch.is_tensor(value))


@backends
def test_an_opening_row_is_stored_but_not_scored(backend):
    opening = torch.tensor([[1.0, 0.0, 0.0]])
    phi = torch.tensor([[[1.0, 0.0, 0.0]], [[0.0, 2.0, 0.0]]])
    first = torch.tensor([[True], [False]])
    bonus = EllipticalMemory(1, 3, ridge=0.5, backend=backend).unroll(phi, first, opening=opening)
    torch.testing.assert_close(bonus[:, 0], torch.tensor([1 / 1.5, 4 / 0.5]))


@backends
def test_a_lifelong_memory_ignores_resets(backend):
    phi = torch.ones(3, 1, 1)
    first = torch.tensor([[True], [True], [True]])
    bonus = EllipticalMemory(1, 1, ridge=1.0, episodic=False, backend=backend).unroll(phi, first)
    torch.testing.assert_close(bonus[:, 0], torch.tensor([1.0, 1 / 2, 1 / 3]))


@backends
@pytest.mark.parametrize("norm", [1e-30, 1e-12, 1e4, 3e5])
@pytest.mark.parametrize("dtype", DTYPES)
def test_extreme_lengths_stay_finite_and_non_negative(backend, norm, dtype):
    phi = torch.nn.functional.normalize(torch.randn(150, 2, 16, dtype=dtype), dim=-1) * norm
    phi[:, 1] = phi[0, 1]  # one column always returns to the same state
    bonus = EllipticalMemory(2, 16, dtype=dtype, backend=backend).unroll(phi, torch.zeros(150, 2, dtype=torch.bool))
    assert bool(torch.isfinite(bonus).all())
    assert bool((bonus >= 0).all())
    if norm >= 1 and dtype == torch.float64:
        torch.testing.assert_close(bonus[1:, 1], 1 / torch.arange(1, 150, dtype=dtype), rtol=1e-3, atol=0)


@backends
def test_gradients_and_layout_do_not_matter(backend):
    phi = torch.randn(9, 40, 3, requires_grad=True)
    first = torch.zeros(3, 40, dtype=torch.bool)
    strided = phi.permute(2, 1, 0)  # [3, 40, 9], not contiguous
    bonus = EllipticalMemory(40, 9, backend=backend).unroll(strided, first)
    assert not bonus.requires_grad
    plain = EllipticalMemory(40, 9, backend=backend).unroll(strided.detach().contiguous(), first)
    assert torch.equal(bonus, plain)


def test_threads_change_nothing(monkeypatch):
    from e3b_gym.memory import _ellipses_numba

    phi = torch.randn(40, 5, 24)
    first = torch.rand(40, 5) < 0.05
    alone = EllipticalMemory(5, 24, backend="numba").unroll(phi, first)
    monkeypatch.setattr(_ellipses_numba, "WORTH_A_THREAD", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert torch.equal(EllipticalMemory(5, 24, backend="numba").unroll(phi, first), alone)


def test_the_default_backend_is_numba_on_the_cpu_and_torch_elsewhere():
    assert EllipticalMemory(1, 2).backend == "numba"
    assert EllipticalMemory(1, 2, backend="torch").backend == "torch"
    assert EllipticalMemory(1, 2, device="meta").backend == "torch"
