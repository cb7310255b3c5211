"""Every method of the paper: built by name, under the public contract, with the equation it claims."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from torch import nn

from e3b_gym.bonuses import METHODS, PolicyFeatures, make_bonus
from e3b_gym.bonuses.methods import trains_weights
from e3b_gym.checks import check_bonus, run, sample_unroll
from e3b_gym.config import PRESETS, BonusConfig
from e3b_gym.encoders import make_encoder, sample_rows
from e3b_gym.encoders.partial import PartialEncoder
from e3b_gym.envs import make
from e3b_gym.envs.minihack.network import env_options, minihack_network

NETHACK_LIKE = Dict(
    {
        "glyphs": Box(0, 5976, (5, 7), np.int16),
        "blstats": Box(-(2**31), 2**31 - 1, (9,), np.int64),
        "message": Box(0, 255, (16,), np.uint8),
    }
)
ACTIONS = Discrete(5)


class Policy:
    """A stand-in for an acting policy: an encoder with fixed weights."""

    def __init__(self, space: gym.Space, dim: int = 8) -> None:
        self.network = make_encoder(space, dim, seed=3)
        self.dim, self.encode = dim, self.network


def build(name, space=NETHACK_LIKE, actions=ACTIONS, **options):
    bonus = make_bonus(name, space, actions, 4, dim=8, seed=0, **options)
    bonus.bind_policy(Policy(space))
    return bonus


@pytest.mark.parametrize("name", METHODS)
def test_every_method_keeps_the_contract(name):
    check_bonus(build(name))


@pytest.mark.parametrize(
    "options", [{"unit_length": True, "include_first": True}, {"bonus_of": "current", "zero_first": True}]
)
@pytest.mark.parametrize("name", ["e3b", "e3b-nonepisodic", "e3b-x-noveld"])
def test_the_elliptical_options_keep_the_contract(name, options):
    check_bonus(build(name, **options))


@pytest.mark.parametrize("actions", [Discrete(3, start=2), MultiDiscrete([2, 3]), MultiBinary(3), Box(-2, 2, (2,))])
@pytest.mark.parametrize("name", ["e3b", "icm", "ride"])
def test_dynamics_know_every_kind_of_action(name, actions):
    check_bonus(build(name, actions=actions))


@pytest.mark.parametrize("space", [Box(-np.inf, np.inf, (3,)), Box(0, 255, (12, 12, 3), np.uint8), Discrete(7)])
@pytest.mark.parametrize("name", ["e3b", "noveld", "count"])
def test_methods_know_every_kind_of_observation(name, space):
    check_bonus(build(name, space=space))


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", METHODS)
def test_every_preset_fits_every_method(name, preset):
    config = BonusConfig.of(name, preset)
    assert config.beta > 0
    assert BonusConfig.from_dict(config.as_dict()) == config


def test_the_elliptical_options_are_in_the_presets_by_name():
    options = {name: BonusConfig.of("e3b", name).options for name in PRESETS}
    for name in ("unit_length", "include_first", "bonus_of", "zero_first"):
        assert all(name in options[preset] for preset in PRESETS)
    assert (options["paper"]["bonus_of"], options["paper"]["zero_first"]) == ("next", False)
    assert (options["authors"]["bonus_of"], options["authors"]["zero_first"]) == ("current", True)
    assert options["default"]["unit_length"]


def test_the_seed_decides_the_weights_and_leaves_the_global_state_alone():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one, two, other = (make_bonus("e3b-x-rnd", NETHACK_LIKE, ACTIONS, 2, dim=8, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    pairs = list(zip(one.parameters(), two.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in pairs)
    assert not all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_nothing_is_trained_in_the_random_and_the_policy_encoder():
    for name in ("e3b-random", "e3b-policy"):
        bonus = build(name)
        assert not any(weights.requires_grad for weights in bonus.parameters())
        unroll = sample_unroll(NETHACK_LIKE, ACTIONS)
        assert bonus.loss(bonus.embed(unroll), unroll) == {}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in METHODS),
        ("e3b", {"representation": "random"}),
        ("e3b-random", {"representation": "inverse"}),
    ]
    + [("e3b-x-rnd", {"representation": "random"})],
)
def test_the_methods_with_weights_to_train_are_known_without_building_them(name, options):
    weights = any(weight.requires_grad for weight in build(name, **options).parameters())
    assert trains_weights(name, options) == weights


def test_the_policy_encoder_follows_the_policy():
    bonus, unroll = build("e3b-policy"), sample_unroll(NETHACK_LIKE, ACTIONS)
    before = run(bonus, [unroll])
    policy = Policy(NETHACK_LIKE)
    with torch.no_grad():
        next(policy.network.parameters()).mul_(2.0).add_(0.5)
    bonus.bind_policy(policy)
    assert not torch.allclose(run(bonus, [unroll]), before)
    assert len(list(bonus.parameters())) == 0


def test_an_unbound_policy_encoder_says_what_to_do():
    bonus = make_bonus("e3b-policy", NETHACK_LIKE, ACTIONS, 4)
    with pytest.raises(ValueError, match="bind_policy"):
        bonus.new_memory(4)


def test_a_users_own_network_is_one_argument():
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Linear(3, 5)

        def forward(self, obs: torch.Tensor) -> torch.Tensor:
            return torch.tanh(self.line(obs))

    space = Box(-1, 1, (3,))
    for name in ("e3b", "rnd", "noveld", "icm", "e3b-x-rnd"):
        check_bonus(make_bonus(name, space, ACTIONS, 4, encoder=Net()))
        check_bonus(make_bonus(name, space, ACTIONS, 4, encoder=lambda _: Net()))
    assert make_bonus("e3b", space, ACTIONS, 4, encoder=Net()).representation.dim == 5


@pytest.mark.parametrize("name", ["e3b", "e3b-random", "e3b-nonepisodic", "e3b-x-rnd"])
def test_an_encoder_that_sees_some_keys_is_blind_to_the_others(name):
    bonus = build(name, sees=["message", "blstats"])
    check_bonus(bonus)
    encoder = next(part for part in bonus.modules() if isinstance(part, PartialEncoder))
    one, other = sample_rows(NETHACK_LIKE, 3, seed=0), sample_rows(NETHACK_LIKE, 3, seed=1)
    assert torch.equal(encoder(one), encoder({**one, "glyphs": other["glyphs"]}))
    for key in ("message", "blstats"):
        assert not torch.allclose(encoder(one), encoder({**one, key: other[key]}))


def test_an_encoder_of_your_own_can_be_shown_some_keys():
    network = minihack_network(
        space := make("MiniHack-LavaCross-Restricted-v0", **env_options("fast")).observation_space
    )
    bonus = make_bonus("e3b", space, ACTIONS, 4, encoder=network, sees="message")
    one, other = sample_rows(space, 3, seed=0), sample_rows(space, 3, seed=1)
    phi = bonus.representation.encoder
    assert torch.equal(phi(one), phi({**other, "message": one["message"]}))
    assert not torch.allclose(phi(one), phi({**one, "message": other["message"]}))


def test_only_a_dict_has_keys_to_see():
    with pytest.raises(
        ValueError, match="must be an entry of a Dict observation, or a list of entries; this observation is not a Dict"
    ):
        make_bonus("e3b", Box(-1, 1, (3,)), ACTIONS, 4, sees="message")


def test_rnd_refuses_a_network_that_cannot_be_drawn_again():
    class Fixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3, 2))

        def forward(self, obs: torch.Tensor) -> torch.Tensor:
            return obs @ self.weight

    with pytest.raises(ValueError, match="second random network"):
        make_bonus("rnd", Box(-1, 1, (3,)), ACTIONS, 4, encoder=Fixed())


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("e4b", {}, "unknown method 'e4b'; did you mean e3b"),
        ("e3b", {"rigde": 0.1}, "has no option rigde; did you mean ridge"),
        ("rnd", {"ridge": 0.1}, "'rnd' has no option ridge; choose from dim, encoder"),
        ("e3b", {"representation": "bert"}, "representation must be 'inverse' or 'random' or 'policy'; got 'bert'"),
        ("e3b", {"bonus_of": "last"}, "bonus_of must be"),
        ("e3b", {"bonus_of": "current", "include_first": True}, "include_first has no effect"),
        ("e3b", {"sees": "colour"}, "its entries are blstats, glyphs, message"),
        ("e3b", {"sees": []}, "must be an entry of a Dict observation, or a list of entries"),
        ("e3b", {"sees": True}, "sees must be text or a list of text or None; got True"),
        ("e3b", {"sees": [["message"]]}, "sees must be text or a list of text or None"),
        (
            "e3b-policy",
            {"sees": "message"},
            "uses the policy's features, so sees='message' has no effect",
        ),
        ("rnd", {"sees": "message"}, "has no option sees"),
        ("count", {"key": "colour"}, "key must be 'full' or 'position' or .* or a function; got 'colour'"),
    ],
)
def test_wrong_names_and_options_are_answered_with_the_right_ones(name, options, message):
    with pytest.raises(ValueError, match=message):
        make_bonus(name, NETHACK_LIKE, ACTIONS, 4, **options)


def test_a_key_that_the_observation_lacks_is_refused():
    for space in (Box(-1, 1, (3,)), Dict({"image": Box(0, 255, (5, 5, 3), np.uint8)})):
        with pytest.raises(ValueError, match="the observation space has no message to count"):
            make_bonus("noveld-message", space, ACTIONS, 4)


def test_agac_needs_discrete_actions_and_the_policys_logits():
    with pytest.raises(ValueError, match="Discrete action space"):
        make_bonus("agac", NETHACK_LIKE, Box(-1, 1, (2,)), 4)
    bonus = build("agac")
    from dataclasses import replace

    unroll = replace(sample_unroll(NETHACK_LIKE, ACTIONS), policy_logits=None)
    with pytest.raises(ValueError, match="no policy_logits"):
        run(bonus, [unroll])


def test_presets_are_refused_by_name():
    with pytest.raises(ValueError, match="unknown preset 'best'; choose from default, paper, authors"):
        BonusConfig.of("e3b", "best")
    with pytest.raises(ValueError, match="unknown method"):
        BonusConfig.of("e5b", "paper")


def test_a_policy_reaches_the_terms_of_a_product():
    bonus = 0.5 * make_bonus("e3b-x-rnd", NETHACK_LIKE, ACTIONS, 4, dim=8, representation="policy")
    bonus.bind_policy(Policy(NETHACK_LIKE))
    check_bonus(bonus, NETHACK_LIKE, ACTIONS)


def test_policy_features_have_no_weights_of_their_own():
    features = PolicyFeatures()
    features.bind_policy(Policy(NETHACK_LIKE))
    assert list(features.parameters()) == []
