"""A config checks itself and names what is wrong."""

import dataclasses

import pytest
import yaml

from agents.impala.config import Config
from e3b_gym.config import BonusConfig


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rate": 0.0}, "learning_rate must be a positive number; got 0.0"),
        ({"ent_coef": -1.0}, "ent_coef must be a number, 0 or more; got -1.0"),
        ({"vf_coef": float("nan")}, "vf_coef must be"),
        ({"rho_bar": float("inf")}, "rho_bar must be a positive number; got inf"),
        ({"gamma": 1.5}, r"gamma must be a number in \[0, 1\]"),
        ({"intrinsic_gamma": -0.1}, "intrinsic_gamma must be a number in"),
        ({"steps": 1e6}, "steps must be a whole number of at least 1; got 1000000.0"),
        ({"n_envs": 0}, "n_envs must be a whole number"),
        ({"learning_rate_final": -1.0}, "learning_rate_final must be a number, 0 or more or None; got -1.0"),
        ({"lstm": 0}, r"lstm must be a whole number from 1 to 2\*\*24 or None"),
        ({"net": "huge"}, "unknown net 'huge'; choose from fast, moves, paper"),
        ({"engine": "inlin"}, "unknown engine 'inlin'; did you mean inline"),
        ({"value_heads": 3}, "value_heads must be 1 or 2"),
        (
            {"n_envs": 32, "batch_size": 960},
            r"multiple of n_steps \(80\) that divides n_steps \* n_envs \(2560\).*got 960",
        ),
        ({"batch_size": 100}, r"batch_size must be a multiple.*got 100. For example 80"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"n_envs": 1, "n_steps": 1, "batch_size": None, "normalize_advantage": True}, "at least 2 steps per update"),
        ({"engine": "inline", "actors": 2}, "the inline engine has one actor; got actors=2"),
        ({"clip_range_high": 4.0}, "upper bound of clip_range; set both, or clip_range_high=none"),
        (
            {"clip_range": 0.2, "clip_range_high_final": 0.2},
            "set both, or clip_range_high_final=none",
        ),
        ({"bonus": {"ridge": 1}}, "bonus must be BonusConfig; got"),
        ({"intrinsic_gamma": 0.5}, "set value_heads=2 as well"),
        ({"learning_rate": "abc"}, "learning_rate must be a positive number; got 'abc'"),
        ({"normalize_advantage": "no"}, "normalize_advantage must be true or false; got 'no'"),
        ({"seed": 2**70}, "seed must be a whole number from 0"),
    ],
)
def test_a_wrong_setting_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        Config("Rooms-K4-v0", **options)


def test_plain_data_goes_out_and_in():
    bonus = BonusConfig.of("e3b", ridge=0.01)
    config = Config("Rooms-K4-v0", env_options={"flat": True}, bonus=bonus, batch_size=None, n_envs=6)
    assert Config.from_dict(yaml.safe_load(yaml.safe_dump(config.as_dict()))) == config
    assert (config.as_dict()["bonus"]["ridge"], config.as_dict()["bonus"]["beta"]) == (0.01, 0.01)
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
    assert config.bonus.as_dict().items() <= BonusConfig.of("e3b", "paper").as_dict().items()
    assert (config.steps, config.net, config.encoder_learning_rate) == (
        50_000_000,
        "paper",
        1e-4,
    )
