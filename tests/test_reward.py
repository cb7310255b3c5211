"""RewardMixer: scales, weights, clipping, and what it refuses."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from e3b_gym.errors import NonFiniteError
from e3b_gym.reward import RewardMixer, require_finite


def chunks(values, sizes):
    start = 0
    for size in sizes:
        yield values[start : start + size]
        start += size


@settings(deadline=None)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=8), st.integers(0, 2**31), st.floats(0, 1e4))
def test_the_running_deviation_is_numpys_of_everything_seen(sizes, seed, offset):
    values = np.random.default_rng(seed).exponential(size=sum(sizes)) + offset
    mixer = RewardMixer(floor=0.0)
    for chunk in chunks(torch.as_tensor(values), sizes):
        mixer.update(chunk)
    if len(values) > 1:
        assert math.isclose(mixer.sigma, values.std(), rel_tol=1e-6)


@pytest.mark.parametrize(("draw", "ratio"), [("exponential", 20.0), ("uniform", 34.4)])
def test_the_authors_normaliser_is_as_much_too_large_as_the_authors_code(draw, ratio):
    """Sums over [T, B = 8] divided by T: var' = 8 (var + 49 mean^2); 20 times the deviation of Exp, 34 of uniform."""
    values = torch.as_tensor(getattr(np.random.default_rng(0), draw)(size=200_000))
    mixer = RewardMixer(normaliser="authors")
    mixer.update(values)
    assert mixer.sigma / float(values.std()) == pytest.approx(ratio, rel=0.01)


def test_the_total_is_the_weighted_sum():
    mixer = RewardMixer(beta=0.5, normaliser="none", extrinsic=2.0)
    total = mixer(torch.tensor([1.0, 0.0]), torch.tensor([4.0, 6.0]))
    assert total.tolist() == [4.0, 3.0]


def test_reward_free_ignores_the_environment():
    mixer = RewardMixer(beta=1.0, normaliser="none", extrinsic=0.0)
    assert mixer(torch.tensor([100.0]), torch.tensor([0.25])).tolist() == [0.25]


def test_negative_rewards_have_a_weight_of_their_own():
    reward, bonus = torch.tensor([1.0, -0.5, 0.0]), torch.zeros(3)
    assert RewardMixer(extrinsic=2.0, penalties=0.1)(reward, bonus).tolist() == pytest.approx([2.0, -0.1, 0.0])
    assert RewardMixer(penalties=0.0)(reward, bonus).tolist() == [1.0, 0.0, 0.0]
    assert RewardMixer()(reward, bonus).tolist() == [1.0, -0.5, 0.0]


def test_clip_bounds_the_total():
    mixer = RewardMixer(beta=1.0, normaliser="none", clip=1.0)
    assert mixer(torch.tensor([1.0, -9.0]), torch.tensor([5.0, 0.0])).tolist() == [1.0, -1.0]


def test_applying_does_not_update():
    mixer = RewardMixer()
    mixer.update(torch.tensor([1.0, 3.0]))
    before = mixer.sigma
    mixer(torch.zeros(3), torch.tensor([100.0, 0.0, 5.0]))
    assert mixer.sigma == before == 1.0


def test_a_bonus_that_hardly_varies_is_not_blown_up():
    mixer = RewardMixer(beta=1.0)
    mixer.update(0.99 + 1e-5 * torch.randn(1000, generator=torch.Generator().manual_seed(0)))
    assert float(mixer.intrinsic(torch.tensor(0.99))) == pytest.approx(10.0, rel=1e-3)


@pytest.mark.parametrize("normaliser", ["std", "authors", "none"])
def test_a_saved_scale_continues(normaliser):
    mixer, loaded = RewardMixer(normaliser=normaliser), RewardMixer(normaliser=normaliser)
    mixer.update(torch.tensor([1.0, 2.0, 5.0]))
    loaded.load_state_dict(mixer.state_dict())
    for one in (mixer, loaded):
        one.update(torch.tensor([7.0, 0.0]))
    assert mixer.sigma == loaded.sigma


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"normaliser": "mean"}, "normaliser must be 'std' or 'authors' or 'none'; got 'mean'"),
        ({"beta": -1.0}, "beta must be"),
        ({"beta": math.nan}, "beta must be"),
        ({"beta": "abc"}, "beta must be a number, 0 or more; got 'abc'"),
        ({"extrinsic": math.inf}, "extrinsic must be"),
        ({"penalties": -0.1}, "penalties must be a number, 0 or more; got -0.1"),
        ({"clip": 0.0}, "clip must be a positive number or None"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        RewardMixer(**options)


def test_poisoned_values_are_named():
    mixer = RewardMixer()
    good, bad = torch.zeros(2), torch.tensor([0.0, math.nan])
    with pytest.raises(ValueError, match="the reward has NaN"):
        mixer(bad, good)
    with pytest.raises(ValueError, match="the bonus has NaN"):
        mixer(good, bad)
    with pytest.raises(ValueError, match="the bonus has NaN"):
        mixer.update(bad)
    with pytest.raises(ValueError, match="must have the same shape"):
        mixer(good, torch.zeros(3))
    with pytest.raises(ValueError, match="saved with normaliser='std'"):
        RewardMixer(normaliser="none").load_state_dict(mixer.state_dict())


@pytest.mark.parametrize("values", [torch.tensor([0.0, torch.nan]), np.array([[np.inf]]), float("-inf")])
def test_values_that_are_not_finite_are_refused_by_name(values):
    with pytest.raises(NonFiniteError, match="the score has NaN or infinite values; scale it down"):
        require_finite("the score", values, "scale it down")


@pytest.mark.parametrize("values", [torch.zeros(2, 3), torch.zeros(0), np.ones(3), 1.5])
def test_finite_values_pass_the_gate(values):
    require_finite("the score", values, "scale it down")
