"""VizDoom's network: the paper's sizes, both of its uses, and clear refusals."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from e3b_gym.encoders import as_encoder
from e3b_gym.envs.vizdoom.network import vizdoom_network

DOOM = spaces.Box(0, 255, (4, 42, 42), np.uint8)


def pictures(rows: int) -> torch.Tensor:
    return torch.randint(0, 256, (rows, 4, 42, 42), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_the_policy_reads_the_flattened_convolutions_and_phi_has_a_linear_layer_behind() -> None:
    trunk, phi = vizdoom_network(DOOM, None, seed=0), vizdoom_network(DOOM, seed=0)
    layers = [layer for layer in trunk.convolutions if isinstance(layer, nn.Conv2d)]
    assert [(layer.in_channels, layer.out_channels) for layer in layers] == [(4, 32), (32, 32), (32, 32), (32, 32)]
    assert {(layer.kernel_size, layer.stride, layer.padding) for layer in layers} == {((3, 3), (2, 2), (1, 1))}
    assert (trunk.dim, phi.dim) == (288, 256)
    torch.testing.assert_close(phi(pictures(3)), phi.head(trunk(pictures(3))))


def test_pictures_are_read_as_light_from_0_to_1() -> None:
    network = vizdoom_network(DOOM, seed=0)
    expected = network.head(network.convolutions(pictures(2).float() / 255))
    torch.testing.assert_close(network(pictures(2)), expected)
    assert network.double()(pictures(2)).dtype == torch.float64


def test_pictures_keep_their_contrast_through_the_network() -> None:
    features = vizdoom_network(DOOM, None, seed=0)(pictures(64)).detach()
    assert 0.1 < float(features.std(0).mean()) < 2


def test_layer_norm_on_request_and_other_sizes() -> None:
    phi = vizdoom_network(spaces.Box(0, 255, (3, 30, 50), np.uint8), 64, layer_norm=True)
    out = phi(torch.randint(0, 256, (5, 3, 30, 50), dtype=torch.uint8))
    assert out.shape == (5, 64)
    torch.testing.assert_close(out.mean(1), torch.zeros(5), atol=1e-5, rtol=0)


def test_it_is_admitted_as_an_encoder() -> None:
    network = vizdoom_network(DOOM)
    assert as_encoder(network, DOOM) is network


@pytest.mark.parametrize(
    "space",
    [spaces.Box(0, 255, (42, 42, 4), np.uint8), spaces.Box(0, 1, (4, 42, 42)), spaces.Discrete(3)],
)
def test_what_is_no_picture_with_channels_first_is_refused(space: spaces.Space) -> None:
    with pytest.raises(ValueError, match="channels, height, width"):
        vizdoom_network(space)


def test_a_batch_of_another_shape_or_an_impossible_dim_is_refused() -> None:
    with pytest.raises(ValueError, match="rows"):
        vizdoom_network(DOOM)(pictures(2)[:, :3])
    with pytest.raises(ValueError, match=r"dim must be at least 1.*got 0"):
        vizdoom_network(DOOM, 0)
