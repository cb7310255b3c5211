"""V-trace against the definition written out, and against what Espeholt et al. (2018) prove about it."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_runs import written_out

from agents.impala.vtrace import vtrace


def unrolls(seed, steps, envs, done_share=0.2):
    """log_ratio, discount, reward, value, last_value in float64."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    done = torch.rand(steps, envs, generator=generator) < done_share
    lead = steps, envs
    return normal(*lead), 0.9 * (~done).double(), normal(*lead), normal(*lead), normal(envs)


@given(
    st.integers(0, 2**31),
    st.integers(1, 12),
    st.integers(1, 3),
    st.sampled_from([0.3, 1.0, 5.0]),
    st.sampled_from([0.3, 1.0, 5.0]),
    st.sampled_from([0.0, 0.9, 1.0]),
)
@settings(deadline=None, max_examples=40)
def test_targets_and_advantages_are_the_definition(seed, steps, envs, rho_bar, c_bar, trace):
    unroll = unrolls(seed, steps, envs)
    torch.testing.assert_close(
        tuple(vtrace(*unroll, rho_bar, c_bar, trace)), written_out(*unroll, rho_bar, c_bar, trace)
    )


@given(st.integers(0, 2**31), st.integers(1, 12))
@settings(deadline=None, max_examples=25)
def test_on_policy_targets_are_n_step_returns(seed, steps):
    _, discount, reward, value, last_value = unrolls(seed, steps, 3)
    targets = vtrace(torch.zeros_like(reward), discount, reward, value, last_value).targets
    running = last_value
    for t in reversed(range(steps)):
        running = reward[t] + discount[t] * running
        torch.testing.assert_close(targets[t], running)


@given(st.integers(0, 2**31), st.integers(1, 10))
@settings(deadline=None, max_examples=25)
def test_without_cuts_targets_are_importance_weighted_returns(seed, steps):
    """With per-decision weights: v = V + sum of full products of ratios times TD errors."""
    log_ratio, discount, reward, value, last_value = unrolls(seed, steps, 2)
    targets = vtrace(log_ratio, discount, reward, value, last_value, math.inf, math.inf).targets
    following = torch.cat([value[1:], last_value[None]])
    weighted = value[0].clone()
    for t in range(steps):
        product = log_ratio[: t + 1].sum(0).exp() * discount[:t].prod(0)
        weighted += product * (reward[t] + discount[t] * following[t] - value[t])
    torch.testing.assert_close(targets[0], weighted)


@pytest.mark.parametrize(("rho_bar", "c_bar"), [(1.0, 1.0), (0.6, 0.3), (2.0, 0.8)])
def test_the_fixed_point_is_the_value_of_the_cut_policy(rho_bar, c_bar):
    """Theorem 1 in its tabular form: if V = V of pi_{rho_bar}, the expected correction under mu is zero.

    pi_{rho_bar}(a|s) is proportional to min(rho_bar mu(a|s), pi(a|s)). All trajectories of length 3 are enumerated.
    """
    generator = torch.Generator().manual_seed(0)
    states, actions, gamma = 3, 2, 0.9
    move = torch.randint(states, (states, actions), generator=generator)  # deterministic moves
    mean_reward = torch.randn(states, actions, generator=generator, dtype=torch.float64)
    pi = torch.rand(states, actions, generator=generator, dtype=torch.float64).add(0.1)
    mu = torch.rand(states, actions, generator=generator, dtype=torch.float64).add(0.1)
    pi, mu = pi / pi.sum(1, keepdim=True), mu / mu.sum(1, keepdim=True)
    cut = torch.minimum(rho_bar * mu, pi)
    cut = cut / cut.sum(1, keepdim=True)
    moves = torch.zeros(states, states, dtype=torch.float64)
    for a in range(actions):
        moves[torch.arange(states), move[:, a]] += cut[:, a]
    value = torch.linalg.solve(torch.eye(states) - gamma * moves, (cut * mean_reward).sum(1))
    for start in range(states):
        expected = 0.0
        for plan in torch.cartesian_prod(*[torch.arange(actions)] * 3):
            path = [start]
            for a in plan:
                path.append(int(move[path[-1], a]))
            here = torch.tensor(path[:-1])
            log_ratio = (pi[here, plan] / mu[here, plan]).log()[:, None]
            v = vtrace(
                log_ratio,
                torch.full((3, 1), gamma, dtype=torch.float64),
                mean_reward[here, plan][:, None],
                value[here][:, None],
                value[path[-1:]],
                rho_bar,
                c_bar,
            ).targets[0, 0]
            expected += float(mu[here, plan].prod() * v)
        assert expected == pytest.approx(float(value[start]), abs=1e-12)


@given(st.integers(0, 2**31), st.integers(0, 7))
@settings(deadline=None, max_examples=25)
def test_an_episodes_end_hides_all_that_follows(seed, end):
    log_ratio, discount, reward, value, last_value = unrolls(seed, 8, 2, done_share=0)
    discount[end] = 0
    before = vtrace(log_ratio, discount, reward, value, last_value)
    for rows in (log_ratio, reward, value):
        rows[end + 1 :] += 100.0
    after = vtrace(log_ratio, discount, reward, value, last_value + 100)
    for one, other in zip(before, after, strict=True):
        assert torch.equal(one[: end + 1], other[: end + 1])


@pytest.mark.parametrize(
    ("part", "shape", "message"),
    [
        (0, (4,), r"log_ratio_t must be \[T, B\] = \[4, 2\]; got \[4\]"),
        (1, (4, 1), r"discount_t must be \[T, B\] = \[4, 2\]; got \[4, 1\]"),
        (2, (1, 2), r"reward_t must be \[T, B\] = \[4, 2\]; got \[1, 2\]"),
        (3, (4, 2, 1), r"value_t must be \[T, B\]; got \[4, 2, 1\]"),
        (4, (1, 2), r"last_value must be \[B\] = \[2\]; got \[1, 2\]"),
    ],
)
def test_a_shape_that_would_broadcast_is_refused(part, shape, message):
    unroll = list(unrolls(0, 4, 2))
    unroll[part] = torch.zeros(shape, dtype=torch.float64)
    with pytest.raises(ValueError, match=message):
        vtrace(*unroll)


def test_no_gradient_flows_through_targets_and_advantages():
    unroll = [part.requires_grad_() for part in unrolls(0, 4, 2)]
    assert not any(part.requires_grad for part in vtrace(*unroll))


def test_a_ratio_beyond_float_range_is_cut_like_any_other():
    log_ratio, *rest = unrolls(0, 4, 2)
    huge = vtrace(torch.full_like(log_ratio, 1e4), *rest)
    torch.testing.assert_close(huge, vtrace(torch.full_like(log_ratio, 1.0), *rest))
