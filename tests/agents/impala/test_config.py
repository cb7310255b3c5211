"""A config checks itself and names what is wrong."""

import dataclasses

import pytest

from agents.impala.config import Config


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rate": 0.0}, "learning_rate must be a positive number; got 0.0"),
        ({"entropy": -1.0}, "entropy must be 0 or more"),
        ({"baseline": float("nan")}, "baseline must be"),
        ({"rho_bar": float("inf")}, "rho_bar must be a positive number; got inf"),
        ({"discount": 1.5}, r"discount must be in \[0, 1\]"),
        ({"intrinsic_discount": -0.1}, "intrinsic_discount must be in"),
        ({"steps": 1e6}, "steps must be a whole number of at least 1; got 1000000.0"),
        ({"num_envs": 0}, "num_envs must be a whole number"),
        ({"lstm": 0}, "lstm must be at least 1"),
        ({"net": "huge"}, "net must be 'paper' or 'fast'; got 'huge'"),
        ({"engine": "cluster"}, "engine must be 'inline' or 'process'"),
        ({"value_heads": 3}, "value_heads must be 1 or 2"),
        ({"num_envs": 32, "batch": 12}, r"batch must divide num_envs \(32\).*got 12"),
        ({"engine": "inline", "actors": 2}, "the inline engine has one actor; got actors=2"),
        ({"bonus": {"dim": 64}}, "bonus cannot hold dim; set the run's own dim"),
    ],
)
def test_a_wrong_setting_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        Config("Rooms-K4-v0", **options)


def test_plain_data_goes_out_and_in():
    config = Config("Rooms-K4-v0", env_options={"flat": True}, bonus={"ridge": 0.01}, batch=None, num_envs=6)
    assert Config(**config.as_dict()) == config
    assert config.columns == 6
    assert dataclasses.replace(config, batch=3).columns == 3


def test_the_defaults_are_the_papers():
    config = Config("MiniHack-MultiRoom-N6-v0")
    assert (config.unroll, config.columns, config.learning_rate, config.rms_alpha, config.rms_eps) == (
        80,
        8,
        1e-4,
        0.99,
        1e-5,
    )
    assert (config.max_grad_norm, config.discount, config.entropy, config.baseline) == (40.0, 0.99, 0.005, 0.5)
    assert (config.steps, config.bonus_preset, config.net, config.encoder_learning_rate) == (
        50_000_000,
        "paper",
        "paper",
        1e-4,
    )
