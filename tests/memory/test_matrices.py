"""The paper's rank-1 update and the direct solve: the same bonus as the exact memory, where float32 allows it."""

from __future__ import annotations

import pytest
import torch

from e3b_gym.memory import EllipticalMemory, RankOneMemory, ReferenceMemory, SolveMemory

both = pytest.mark.parametrize("memory", [RankOneMemory, SolveMemory])


def journey(steps=40, envs=3, dim=6):
    generator = torch.Generator().manual_seed(0)
    phi = torch.randn(steps, envs, dim, generator=generator, dtype=torch.float64)
    first = torch.rand(steps, envs, generator=generator) < 0.1
    phi[5, 1] = 0  # a step without a known observation
    return phi, first, torch.randn(int(first.sum()), dim, generator=generator, dtype=torch.float64)


@both
@pytest.mark.parametrize("episodic", [True, False])
@pytest.mark.parametrize("opened", [True, False])
def test_equals_the_reference(memory, episodic, opened):
    phi, first, opening = journey()
    sizes = {"num_envs": 3, "dim": 6, "ridge": 0.3, "dtype": torch.float64, "episodic": episodic}
    expected = ReferenceMemory(**sizes).unroll(phi, first, opening=opening if opened else None)
    got = memory(**sizes).unroll(phi, first, opening=opening if opened else None)
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-12)


@both
def test_slots_in_any_order_and_a_saved_state_change_nothing(memory):
    phi, first, _ = journey()
    sizes = {"num_envs": 3, "dim": 6, "dtype": torch.float64}
    expected = memory(**sizes).unroll(phi, first)
    before, after = memory(**sizes), memory(**sizes)
    before.unroll(phi[:20], first[:20])
    after.load_state_dict(before.state_dict())
    got = after.unroll(phi[20:, [2, 0, 1]], first[20:, [2, 0, 1]], slots=[2, 0, 1])
    torch.testing.assert_close(got, expected[20:, [2, 0, 1]])


@both
def test_a_reset_forgets_everything(memory):
    phi, first, _ = journey()
    used = memory(3, 6, dtype=torch.float64)
    expected = used.unroll(phi, first)
    used.reset()
    assert torch.equal(used.unroll(phi, first), expected)


def test_the_rank_one_update_loses_in_float32_what_the_exact_memory_keeps():
    """Long rows that repeat, as on revisited states."""
    generator = torch.Generator().manual_seed(0)
    phi = (300 * torch.randn(5, 1, 8, generator=generator)).repeat(20, 1, 1)
    first = torch.zeros(100, 1, dtype=torch.bool)
    expected = ReferenceMemory(1, 8).unroll(phi, first)

    def worst(memory):
        return float(((memory(1, 8).unroll(phi, first) - expected).abs() / expected).max())

    assert worst(EllipticalMemory) < 1e-4
    assert worst(RankOneMemory) > 0.1
