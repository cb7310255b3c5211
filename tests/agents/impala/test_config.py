"""A config checks itself and names what is wrong."""

import dataclasses

import pytest

from agents.impala.config import Config


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rate": 0.0}, "learning_rate must be a positive number; got 0.0"),
        ({"ent_coef": -1.0}, "ent_coef must be 0 or more"),
        ({"vf_coef": float("nan")}, "vf_coef must be"),
        ({"rho_bar": float("inf")}, "rho_bar must be a positive number; got inf"),
        ({"gamma": 1.5}, r"gamma must be in \[0, 1\]"),
        ({"intrinsic_gamma": -0.1}, "intrinsic_gamma must be in"),
        ({"steps": 1e6}, "steps must be a whole number of at least 1; got 1000000.0"),
        ({"n_envs": 0}, "n_envs must be a whole number"),
        ({"learning_rate_final": -1.0}, "learning_rate_final must be 0 or more, or None; got -1.0"),
        ({"lstm": 0}, "lstm must be at least 1"),
        ({"net": "huge"}, "net must be 'paper' or 'fast'; got 'huge'"),
        ({"engine": "cluster"}, "engine must be 'inline' or 'process'"),
        ({"value_heads": 3}, "value_heads must be 1 or 2"),
        (
            {"n_envs": 32, "batch_size": 960},
            r"multiple of n_steps \(80\) that divides n_steps \* n_envs \(2560\).*got 960",
        ),
        ({"batch_size": 100}, r"batch_size must be a multiple.*got 100. For example 80"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"n_envs": 1, "n_steps": 1, "batch_size": None, "normalize_advantage": True}, "at least 2 steps per update"),
        ({"engine": "inline", "actors": 2}, "the inline engine has one actor; got actors=2"),
        ({"bonus": {"dim": 64}}, "bonus cannot hold dim; set the run's own dim"),
    ],
)
def test_a_wrong_setting_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        Config("Rooms-K4-v0", **options)


def test_plain_data_goes_out_and_in():
    config = Config("Rooms-K4-v0", env_options={"flat": True}, bonus={"ridge": 0.01}, batch_size=None, n_envs=6)
    assert Config(**config.as_dict()) == config
    assert config.columns == 6
    assert dataclasses.replace(config, batch_size=240).columns == 3


def test_the_defaults_are_the_papers():
    config = Config("MiniHack-MultiRoom-N6-v0")
    assert (config.n_steps, config.columns, config.learning_rate, config.rms_alpha, config.rms_eps) == (
        80,
        8,
        1e-4,
        0.99,
        1e-5,
    )
    assert (config.max_grad_norm, config.gamma, config.ent_coef, config.vf_coef) == (40.0, 0.99, 0.005, 0.5)
    assert (config.steps, config.bonus_preset, config.net, config.encoder_learning_rate) == (
        50_000_000,
        "paper",
        "paper",
        1e-4,
    )
