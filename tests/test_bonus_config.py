"""BonusConfig: one place where a bonus's numbers are resolved and checked."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from e3b_gym import METHODS, PRESETS, BonusConfig, E3BReward, E3BRewardWrapper, E3BVectorReward, make_vec_env
from e3b_gym.building import config_of
from e3b_gym.options import UNSET


def test_what_is_given_wins_over_the_preset_and_the_preset_over_the_method():
    config = BonusConfig.of("e3b", "paper", beta=0.5, ridge=0.01)
    assert (config.beta, config.normaliser, config.clip, config.floor) == (0.5, "std", None, 0.1)
    assert (config.options["ridge"], config.options["unit_length"], config.options["hidden"]) == (0.01, False, 256)
    assert BonusConfig.of("e3b").options["unit_length"] is True
    assert BonusConfig.of("e3b-nonepisodic").options["episodic"] is False
    assert BonusConfig.of("noveld-position").options["key"] == "position"


@pytest.mark.parametrize("method", METHODS)
def test_every_number_in_effect_is_in_the_config(method):
    given = BonusConfig.of(method).as_dict()
    assert {"method", "beta", "extrinsic", "penalties", "normaliser", "clip", "floor"} < set(given)
    if method.startswith("e3b"):
        assert {"ridge", "episodic", "unit_length", "include_first", "bonus_of", "zero_first"} < set(given)
    assert BonusConfig.from_dict(given) == BonusConfig.of(method)


def test_one_name_for_the_authors_and_none_for_no_clipping():
    assert (BonusConfig.of("e3b", "authors").normaliser, BonusConfig.of("e3b", "authors").clip) == ("authors", 1.0)
    assert BonusConfig.of("e3b", "authors", clip=None).clip is None
    assert BonusConfig.of("e3b", "authors", clip=UNSET).clip == 1.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"unit_length": "no"}, "unit_length must be true or false; got 'no'"),
        ({"episodic": "no"}, "episodic must be true or false"),
        ({"ridge": -1}, "ridge must be a positive number; got -1"),
        ({"ridge": "abc"}, "ridge must be a positive number; got 'abc'"),
        ({"hidden": 0}, r"hidden must be a whole number from 1 to 2\*\*24; got 0"),
        ({"dim": 0}, r"dim must be a whole number from 1 to 2\*\*24; got 0"),
        ({"beta": "abc"}, "beta must be a number, 0 or more; got 'abc'"),
        ({"beta": None}, "beta must be a number"),
        ({"clip": 0}, "clip must be a positive number or None"),
        ({"normaliser": "official"}, "normaliser must be 'std' or 'authors' or 'none'"),
        ({"seed": -1}, "seed must be"),
        ({"rigde": 1}, "method 'e3b' has no option rigde; did you mean ridge"),
        ({"bonus_of": "current"}, "include_first has no effect with bonus_of='current'"),
        ({"encoder": torch.nn.Linear(2, 2), "dim": 3}, "dim has no effect: it is the size of the generic encoder"),
        ({"method": "e3b-random", "hidden": 3}, "representation='random' does not train"),
        ({"normaliser": "none", "floor": 0.5}, "floor has no effect: it bounds the running deviation"),
        ({"extrinsic": 0.0, "penalties": 0.5}, "penalties has no effect: extrinsic=0"),
        ({"method": None, "seed": 0}, "seed has no effect: the bonus object has its weights already"),
        ({"preset": "best"}, "unknown preset 'best'; choose from default, paper, authors"),
        ({"method": "e4b"}, "unknown method 'e4b'; did you mean e3b"),
    ],
)
def test_a_mistake_is_one_error_when_the_config_is_made(given, message):
    with pytest.raises(ValueError, match=message):
        BonusConfig.of(**given)


def test_text_is_converted_by_the_type_of_each_option():
    texts = {"episodic": "no", "ridge": "1e-2", "beta": "0.5", "clip": "none", "sees": "[a,b]"}
    config = BonusConfig.parsed("e3b", "authors", **texts)
    assert (config.options["episodic"], config.options["ridge"], config.options["sees"]) == (False, 0.01, ["a", "b"])
    assert (config.beta, config.clip) == (0.5, None)
    with pytest.raises(ValueError, match="episodic must be true or false; got 'maybe'"):
        BonusConfig.parsed("e3b", episodic="maybe")


def test_numbers_of_numpy_become_pythons(tmp_path):
    config = BonusConfig.of("e3b", beta=np.float32(0.5), seed=np.int64(3), hidden=np.int32(8))
    assert {type(config.beta), type(config.seed), type(config.options["hidden"])} == {float, int}
    venv = make_vec_env("Rooms-K3-v0", 2, flat=True)
    E3BRewardWrapper(venv, seed=np.int64(3), dim=8).save(tmp_path / "wrapper.pt")
    assert E3BRewardWrapper.load(tmp_path / "wrapper.pt", venv).config.seed == 3


@pytest.mark.parametrize(
    "wrap",
    [
        lambda **given: E3BRewardWrapper(make_vec_env("CartPole-v1", 2), **given),
        lambda **given: E3BVectorReward(gym.make_vec("CartPole-v1", num_envs=2), **given),
        lambda **given: E3BReward(gym.make("CartPole-v1"), **given),
    ],
)
def test_every_wrapper_resolves_its_numbers_here(wrap):
    for preset in PRESETS:
        assert wrap(preset=preset, beta=0.3, seed=1).config == BonusConfig.of("e3b", preset, beta=0.3, seed=1)
    with pytest.raises(ValueError, match="unit_length must be true or false; got 'no'"):
        wrap(unit_length="no")


@pytest.mark.parametrize("method", sorted(METHODS))
def test_methods_are_compared_with_the_same_options(method):
    assert BonusConfig.of(method, beta=0.1, floor=0.5).beta == 0.1


def test_a_wrapper_takes_a_config_and_no_further_options():
    config = BonusConfig.of("none", "paper")
    assert config_of(config) is config
    with pytest.raises(ValueError, match="beta: set options in the BonusConfig"):
        config_of(config, beta=0.5)
