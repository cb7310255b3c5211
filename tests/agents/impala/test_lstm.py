"""The LSTM with resets is nn.LSTM stepped by hand: outputs, states and all gradients."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from agents.impala.lstm import ResetLSTM

INPUT, HIDDEN = 5, 7


def experience(seed, steps, envs, layers, start_share=0.3):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(steps, envs, INPUT, generator=generator)
    starts = torch.rand(steps, envs, generator=generator) < start_share
    state = tuple(torch.randn(2, layers, envs, HIDDEN, generator=generator).unbind())
    return x, starts, state


def lstm_of(layers, seed=0, **options):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ResetLSTM(INPUT, HIDDEN, layers, **options)


def by_hand(lstm, x, starts, state):
    """Environment by environment and step by step, in nn.LSTM itself."""
    plain = nn.LSTM(INPUT, HIDDEN, lstm.num_layers).to(x.dtype)
    columns, last = [], []
    for b in range(x.shape[1]):
        h, c = state[0][:, b : b + 1], state[1][:, b : b + 1]
        rows = []
        for t in range(len(x)):
            if starts[t, b]:
                h, c = torch.zeros_like(h), torch.zeros_like(c)
            row, (h, c) = torch.func.functional_call(
                plain, dict(lstm.named_parameters()), (x[t : t + 1, b : b + 1], (h, c))
            )
            rows.append(row)
        columns.append(torch.cat(rows))
        last.append((h, c))
    return torch.cat(columns, 1), tuple(torch.cat(part, 1) for part in zip(*last, strict=True))


def results(lstm, run, x, starts, state):
    x = x.clone().requires_grad_()
    out, after = run(lstm, x, starts, state)
    loss = (out * torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)).sum()
    return [out.detach(), *(part.detach() for part in after), *torch.autograd.grad(loss, [x, *lstm.parameters()])]


@given(st.integers(0, 2**31), st.integers(1, 9), st.integers(1, 4), st.integers(1, 2), st.booleans())
@settings(deadline=None, max_examples=30)
def test_outputs_states_and_gradients_are_nn_lstms(seed, steps, envs, layers, fused):
    lstm = lstm_of(layers, seed % 7, fused=fused)
    unroll = experience(seed, steps, envs, layers)
    exact = copy.deepcopy(lstm).double()
    x, starts, state = unroll
    wanted = results(exact, by_hand, x.double(), starts, tuple(part.double() for part in state))
    got = results(lstm, ResetLSTM.__call__, *unroll)
    for ours, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(ours, theirs.float(), rtol=1e-5, atol=5e-6)


@pytest.mark.parametrize("fused", [True, False])
def test_the_state_after_every_row_is_that_of_an_unroll_that_ends_there(fused):
    lstm = lstm_of(2, fused=fused)
    x, starts, state = experience(1, 6, 3, 2)
    out, rows = lstm.trajectory(x, starts, state)
    assert torch.equal(out, lstm(x, starts, state)[0])
    for t in range(6):
        _, wanted = lstm(x[: t + 1], starts[: t + 1], state)
        got = tuple(torch.stack([layer[t] for layer in part]) for part in rows)
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6)
        assert not any(part.requires_grad for part in got)


def test_both_paths_agree_and_float64_takes_the_plain_one():
    lstm, plain = lstm_of(2), lstm_of(2, fused=False)
    unroll = experience(3, 20, 6, 2)
    for ours, theirs in zip(*(results(m, ResetLSTM.__call__, *unroll) for m in (lstm, plain)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=5e-6)
    x, starts, state = unroll
    out, _ = lstm.double()(x.double(), starts, tuple(part.double() for part in state))
    torch.testing.assert_close(out.float(), plain(*unroll)[0])


@pytest.mark.parametrize("fused", [True, False])
def test_a_start_forgets_all_that_came_before(fused):
    lstm = lstm_of(2, fused=fused)
    x, starts, state = experience(0, 8, 2, 2, start_share=0)
    starts[5, 1] = True
    before, _ = lstm(x, starts, state)
    x[:5, 1], state = torch.randn(5, INPUT), tuple(torch.randn_like(part) for part in state)
    after, _ = lstm(x, starts, state)
    assert torch.equal(before[5:, 1], after[5:, 1])
    assert not torch.equal(before[5:, 0], after[5:, 0])


@given(st.integers(0, 2**31), st.integers(0, 8))
@settings(deadline=None, max_examples=20)
def test_splitting_an_unroll_changes_nothing(seed, cut):
    lstm = lstm_of(2)
    x, starts, state = experience(seed, 9, 3, 2)
    whole, whole_state = lstm(x, starts, state)
    head, carried = lstm(x[:cut], starts[:cut], state) if cut else (whole[:0], state)
    tail, tail_state = lstm(x[cut:], starts[cut:], carried)
    torch.testing.assert_close(torch.cat([head, tail]), whole, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(tail_state, whole_state, rtol=1e-5, atol=1e-6)


def test_the_state_that_is_handed_in_and_out_stays_the_callers():
    lstm = lstm_of(1)
    x, starts, state = experience(0, 4, 2, 1)
    copies = [part.clone() for part in state]
    _, first = lstm(x, starts, state)
    kept = [part.clone() for part in first]
    lstm(x + 1, starts, first)
    assert all(torch.equal(a, b) for a, b in zip(state, copies, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(first, kept, strict=True))


def test_shapes_that_would_broadcast_are_refused():
    lstm = lstm_of(1)
    x, starts, state = experience(0, 4, 2, 1)
    with pytest.raises(ValueError, match=r"starts must be \[T, B\] = \[4, 2\]; got \[4, 1\]"):
        lstm(x, starts[:, :1], state)
    with pytest.raises(ValueError, match=r"c must be \[layers, B, H\] = \[1, 2, 7\]; got \[1, 1, 7\]"):
        lstm(x, starts, (state[0], state[1][:, :1]))


def test_weights_load_from_nn_lstm():
    plain = nn.LSTM(INPUT, HIDDEN, 2)
    lstm = ResetLSTM(INPUT, HIDDEN, 2)
    lstm.load_state_dict(plain.state_dict())
    x, _, state = experience(0, 6, 3, 2)
    torch.testing.assert_close(
        lstm(x, torch.zeros(6, 3, dtype=torch.bool), state), plain(x, state), rtol=1e-5, atol=1e-6
    )
