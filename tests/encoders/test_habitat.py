"""Habitat's networks: the paper's sizes, a fast variant that is small, pictures that shrink exactly, clear refusals."""

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from agents.impala.config import Config
from agents.impala.policy import Policy
from agents.networks import networks_for
from e3b_gym.bonuses import make_bonus
from e3b_gym.bonuses.keys import make_key
from e3b_gym.checks import check_bonus
from e3b_gym.encoders import as_encoder, sample_rows
from e3b_gym.envs.habitat.network import VARIANTS, env_options, habitat_network
from e3b_gym.envs.habitat.resnet import Bottleneck
from e3b_gym.envs.habitat.shrink import shrink

ACTIONS = spaces.Discrete(4)


def space(side: int = 64, **changes: spaces.Space | None) -> spaces.Dict:
    """Observations of Habitat, with some parts changed or left out (None)."""
    parts: dict[str, spaces.Space | None] = {
        "rgb": spaces.Box(0, 255, (side, side, 3), np.uint8),
        "depth": spaces.Box(0, 1, (side, side, 1), np.float32),
        "gps": spaces.Box(-np.inf, np.inf, (2,), np.float32),
        "compass": spaces.Box(-np.pi, np.pi, (1,), np.float32),
    }
    return spaces.Dict({name: part for name, part in {**parts, **changes}.items() if part is not None})


def multiplications(variant: str, phi: bool) -> float:
    side = env_options(variant)["size"]
    network = habitat_network(space(side), variant, phi=phi)
    with FlopCounterMode(display=False) as counter:
        network(sample_rows(space(side), 1, seed=0))
    return counter.get_total_flops() / 2


@pytest.mark.parametrize("side", [64, 128])
@pytest.mark.parametrize(("variant", "trunk", "phi"), [("paper", 576, 512), ("fast", 256, 128)])
def test_both_uses_have_the_sizes_of_the_table_at_any_picture(variant: str, trunk: int, phi: int, side: int) -> None:
    for use, dim in ((False, trunk), (True, phi)):
        network = habitat_network(space(side), variant, phi=use)
        assert network.dim == dim
        assert network(sample_rows(space(side), 3, seed=0)).shape == (3, dim)
        assert as_encoder(network, space(side)) is network


def test_the_papers_network_is_a_resnet50_of_32_planes_with_group_norm() -> None:
    network = habitat_network(space(256), "paper", phi=True)
    blocks = [part for part in network.modules() if isinstance(part, Bottleneck)]
    convolutions = [part for part in network.visual.modules() if isinstance(part, nn.Conv2d)]
    on_the_way = [part for part in convolutions if part.kernel_size != (1, 1)]  # 1 + 16 x (3x3) + the compression
    assert len(blocks) == 16
    assert len(convolutions) == 1 + 16 * 3 + 4 + 1  # the first, the blocks, four projections, the compression
    assert (on_the_way[0].in_channels, on_the_way[0].out_channels, on_the_way[0].kernel_size) == (4, 32, (7, 7))
    assert (on_the_way[-1].in_channels, on_the_way[-1].out_channels) == (1024, 128)  # 4 x 4 x 128 = 2048
    assert not any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in network.modules())
    assert [(layer.in_features, layer.out_features) for layer in network.head if isinstance(layer, nn.Linear)] == [
        (576, 512),
        (512, 512),
        (512, 512),
    ]


def test_the_papers_inverse_model_and_policy_have_its_sizes() -> None:
    networks = networks_for(Config("Habitat-FloorPlan-v0", net="paper"))
    assert networks.env_options == {"size": 256}
    policy = Policy(networks, space(64), ACTIONS)
    assert (policy.lstm.input_size, policy.lstm.hidden_size, policy.lstm.num_layers) == (576, 512, 2)
    bonus = make_bonus("e3b", space(64), ACTIONS, 1, encoder=networks.phi)
    layers = [part for part in bonus.representation.inverse.modules() if isinstance(part, nn.Linear)]
    assert [(layer.in_features, layer.out_features) for layer in layers] == [(1024, 256), (256, 4)]


def test_fast_costs_a_thousandth() -> None:
    networks = networks_for(Config("Habitat-FloorPlan-v0", net="fast"))
    assert (networks.lstm, networks.lstm_layers, networks.env_options) == (256, 1, {"size": 64})
    for phi in (False, True):
        assert 3e8 < multiplications("paper", phi) < 4.5e8
        assert multiplications("fast", phi) < 5e5


@pytest.mark.parametrize("phi", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
def test_gradients_reach_every_weight(variant: str, phi: bool) -> None:
    network = habitat_network(space(), variant, phi=phi, seed=0)
    out = network(sample_rows(space(), 8, seed=0))
    (out * torch.randn(out.shape, generator=torch.Generator().manual_seed(0))).sum().backward()
    for name, weight in network.named_parameters():
        assert weight.grad is not None, name
        assert float(weight.grad.abs().max()) > 0, name


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_sense_counts_and_frames_do_not_see_each_other(variant: str) -> None:
    network = habitat_network(space(), variant, phi=True, seed=0)
    obs = sample_rows(space(), 4, seed=0)
    before = network(obs)
    torch.testing.assert_close(network({name: leaf[1:3] for name, leaf in obs.items()}), before[1:3], atol=1e-5, rtol=0)
    for name, leaf in sample_rows(space(), 4, seed=1).items():
        changed = network({**obs, name: torch.cat([obs[name][:3], leaf[3:]])})
        torch.testing.assert_close(changed[:3], before[:3], atol=1e-5, rtol=0)
        assert not torch.allclose(changed[3], before[3], atol=1e-5), name


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_full_turn_is_the_same_heading(variant: str) -> None:
    network = habitat_network(space(), variant, phi=True, seed=0)
    obs = sample_rows(space(), 1, seed=0)
    ends = [network({**obs, "compass": torch.full((1, 1), angle)}) for angle in (-math.pi, math.pi)]
    torch.testing.assert_close(*ends, atol=1e-4, rtol=0)


@pytest.mark.parametrize("variant", VARIANTS)
def test_channels_in_front_are_the_same_picture(variant: str) -> None:
    obs = sample_rows(space(), 2, seed=0)
    turned = {**obs, "rgb": obs["rgb"].permute(0, 3, 1, 2).contiguous()}
    front = space(rgb=spaces.Box(0, 255, (3, 64, 64), np.uint8))
    one, other = habitat_network(space(), variant, seed=0), habitat_network(front, variant, seed=0)
    torch.testing.assert_close(one(obs), other(turned))


@settings(deadline=None, max_examples=20)
@given(factor=st.integers(1, 4), side=st.integers(1, 9), rows=st.integers(0, 3), seed=st.integers(0, 99))
def test_shrinking_is_average_pooling(factor: int, side: int, rows: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    shape = rows, side * factor, side * factor
    rgb = torch.randint(0, 256, (*shape, 3), dtype=torch.uint8, generator=generator)
    depth = torch.rand(*shape, 1, generator=generator)
    picture = torch.cat([rgb.double() / 255, depth.double()], -1).permute(0, 3, 1, 2)
    wanted = F.avg_pool2d(picture, factor) if rows else picture.new_zeros(0, 4, side, side)
    torch.testing.assert_close(shrink(rgb, depth, factor), wanted.float(), atol=1e-6, rtol=0)
    if rows:
        torch.testing.assert_close(shrink(rgb, depth, factor, torch.float64), wanted)


def test_other_precisions_take_the_plain_way_to_the_same_numbers() -> None:
    network, obs = habitat_network(space(), "fast", phi=True, seed=0), sample_rows(space(), 2, seed=0)
    single = network(obs)
    torch.testing.assert_close(network.double()(obs).float(), single, atol=1e-5, rtol=0)


def test_the_seed_decides_the_weights() -> None:
    one, same, other = (habitat_network(space(), seed=seed).gps.weight for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


@pytest.mark.parametrize(
    ("observations", "message"),
    [
        (space(gps=None), 'read "gps" as float32 .2., but the observation space has no gps'),
        (space(rgb=spaces.Box(0, 1, (64, 64, 3), np.float32)), '"rgb" as uint8'),
        (space(depth=spaces.Box(0, 1, (32, 32, 1), np.float32)), '"depth" as float32 .64, 64, 1.'),
        (space(48), "multiple of 32, got 48"),
        (space()["rgb"], "Habitat-FloorPlan-v0"),
        (spaces.Discrete(3), "Habitat-FloorPlan-v0"),
    ],
)
def test_what_is_no_observation_of_habitat_is_refused(observations: spaces.Space, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        habitat_network(observations)


def test_an_unknown_variant_and_a_batch_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match="choose from paper, fast"):
        habitat_network(space(), "slow")
    with pytest.raises(ValueError, match="this environment's space"):
        habitat_network(space(64))(sample_rows(space(128), 2, seed=0))


def test_the_subsampled_key_takes_every_thousandth_value_with_gps_and_compass() -> None:
    obs, key = sample_rows(space(), 2, seed=0), make_key("subsampled", space())
    taken = key(obs)
    assert set(taken) == {"rgb", "gps", "compass"}
    pixel, channel = divmod(3000, 3)  # the fourth value that is taken
    assert torch.equal(taken["rgb"][:, 3], obs["rgb"][:, pixel // 64, pixel % 64, channel])
    assert taken["rgb"].shape == (2, math.ceil(64 * 64 * 3 / 1000))
    assert torch.equal(taken["gps"], obs["gps"])
    with pytest.raises(ValueError, match="no image to count"):
        make_key("subsampled", spaces.Dict(gps=space()["gps"]))


@pytest.mark.parametrize("method", ["e3b", "icm", "rnd", "noveld-subsampled"])
def test_the_papers_methods_keep_the_contract_on_habitat(method: str) -> None:
    small = space(32)
    check_bonus(make_bonus(method, small, ACTIONS, 4, encoder=lambda s: habitat_network(s, "fast", phi=True), seed=0))
