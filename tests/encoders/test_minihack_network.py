"""MiniHack's networks on real frames: sizes, what they ask of the environment, and a fast path that changes nothing."""

import copy
import functools

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from e3b_gym import Unroll, envs, make_bonus
from e3b_gym.encoders import as_encoder
from e3b_gym.envs.minihack.network import VARIANTS, MiniHackNetwork, env_options, minihack_network

LEVELS = ("MiniHack-Freeze-Random-Restricted-v0", "MiniHack-MultiRoom-N6-v0")
NUM_ENVS, STEPS = 5, 12
Obs = dict[str, Tensor]


@functools.cache
def play(level: str, variant: str) -> tuple[spaces.Space, Obs]:
    """The observation space of one environment, and frames of random play [STEPS * NUM_ENVS, ...]."""
    env = envs.make_vec(level, NUM_ENVS, **env_options(variant))
    rng = np.random.default_rng(0)
    frames = [env.reset(seed=0)[0]]
    for _ in range(STEPS - 1):
        frames.append(env.step(rng.integers(env.single_action_space.n, size=NUM_ENVS))[0])
    env.close()
    return env.single_observation_space, {
        key: torch.from_numpy(np.concatenate([frame[key] for frame in frames])) for key in frames[0]
    }


def make(variant: str, *, level: str = LEVELS[0], layer_norm: bool = True) -> tuple[MiniHackNetwork, Obs]:
    space, obs = play(level, variant)
    return minihack_network(space, variant, layer_norm=layer_norm, seed=0), obs


def plain(network: MiniHackNetwork) -> MiniHackNetwork:
    network = copy.deepcopy(network)
    network.accelerate = False
    return network


def run(network: MiniHackNetwork, obs: Obs) -> dict[str, Tensor]:
    """The output and the gradients of all parameters for a fixed random cotangent."""
    out = network(obs)
    cotangent = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out.dtype)
    network.zero_grad()
    out.backward(cotangent)
    return {"out": out.detach()} | {name: weight.grad for name, weight in network.named_parameters()}


def relative_error(got: Tensor, want: Tensor) -> float:
    return float((got.double() - want).abs().max() / want.abs().max())


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_fast_path_is_the_plain_network_with_all_gradients(variant: str, level: str) -> None:
    network, obs = make(variant, level=level)
    got, exact = run(network, obs), run(plain(network).double(), obs)
    assert got.keys() == exact.keys()
    assert {name: relative_error(got[name], exact[name]) for name in got if not torch.isfinite(got[name]).all()} == {}
    worst = max((relative_error(got[name], exact[name]), name) for name in got)
    assert worst[0] < 2e-5, worst
    assert all(exact[name].abs().max() > 0 for name in exact)


@pytest.mark.parametrize("variant", VARIANTS)
def test_rows_do_not_depend_on_their_neighbours_or_order(variant: str) -> None:
    network, obs = make(variant)
    order = torch.randperm(len(obs["blstats"]), generator=torch.Generator().manual_seed(0))[:20]
    with torch.no_grad():
        torch.testing.assert_close(network({key: leaf[order] for key, leaf in obs.items()}), network(obs)[order])


def test_the_paper_network_has_the_sizes_of_the_appendix() -> None:
    network, obs = make("paper", layer_norm=False)
    assert [trunk.block.in_features for trunk in (network.map, network.crop, network.stats, network.message)] == [
        21 * 79 * 8,
        9 * 9 * 8,
        64,
        128,
    ]
    for trunk in (network.map, network.crop):
        channels = [(layer.in_channels, layer.out_channels) for layer in trunk.convolutions]
        assert channels == [(64, 16), (16, 16), (16, 16), (16, 16), (16, 8)]
    characters = [layer for layer in network.message.layers if isinstance(layer, nn.Conv1d)]
    assert [layer.kernel_size for layer in characters] == [(7,), (7,), (3,), (3,), (3,), (3,)]
    assert {(layer.in_channels, layer.out_channels) for layer in characters} == {(64, 64)}
    assert (network.dim, network.fc2.in_features, network(obs).shape[1]) == (1024, 1024, 1024)
    assert bool((network(obs) >= 0).all())


def test_the_fast_network_is_small_and_normalised() -> None:
    network, obs = make("fast")
    phi = network(obs).detach()
    assert (network.dim, phi.shape[1], network.map) == (256, 256, None)
    torch.testing.assert_close(phi.mean(1), torch.zeros(len(phi)), atol=1e-5, rtol=0)
    torch.testing.assert_close(phi.std(1, unbiased=False), torch.ones(len(phi)), atol=1e-3, rtol=0)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_blocks_of_the_first_layer_start_like_one_layer(variant: str) -> None:
    network, _ = make(variant)
    blocks = [trunk.block for trunk in (network.map, network.crop, network.stats, network.message) if trunk is not None]
    inputs = sum(block.in_features for block in blocks)
    wanted = (1 / (3 * inputs)) ** 0.5 if variant == "paper" else (2 / inputs) ** 0.5
    for block in blocks:
        assert float(block.weight.detach().std()) == pytest.approx(wanted, rel=0.05)


@pytest.mark.parametrize("variant", VARIANTS)
def test_env_options_give_what_the_network_reads_and_nothing_else(variant: str) -> None:
    network, obs = make(variant)
    for key in obs:
        with pytest.raises(KeyError, match=key):
            network({name: leaf for name, leaf in obs.items() if name != key})


@pytest.mark.parametrize(
    ("variant", "options", "key", "remedy"),
    [
        ("paper", {"observation_keys": ("blstats", "message")}, "glyphs", "observation_keys="),
        ("paper", {"crop_size": 16}, "glyphs_crop", "crop_size=9"),
        ("fast", {"crop_size": 0}, "glyphs_crop", "crop_size=16"),
        ("fast", {"crop_size": 16, "observation_keys": ("glyphs", "message")}, "blstats", "observation_keys="),
        ("fast", {"crop_size": 16, "observation_keys": ("glyphs", "blstats")}, "message", "observation_keys="),
    ],
)
def test_a_space_that_lacks_something_is_refused_with_the_option_that_gives_it(
    variant: str, options: dict, key: str, remedy: str
) -> None:
    env = envs.make(LEVELS[0], **options)
    with pytest.raises(ValueError, match=f'(?s)"{key}".*{remedy}'):
        minihack_network(env.observation_space, variant)
    env.close()


def test_other_spaces_and_variants_are_refused() -> None:
    with pytest.raises(ValueError, match=r"glyphs_crop.*missing"):
        minihack_network(spaces.Box(0, 1, (3,)), "fast")
    with pytest.raises(ValueError, match="paper, fast"):
        env_options("slow")


def test_glyphs_outside_the_table_are_refused() -> None:
    network, obs = make("fast")
    obs = {**obs, "glyphs_crop": obs["glyphs_crop"].clone()}
    obs["glyphs_crop"][3, 2, 1] = 6000
    for path in (network, plain(network)):
        with pytest.raises(IndexError):
            path(obs)


def test_a_seed_decides_the_weights_and_both_paths_share_them() -> None:
    space, _ = play(LEVELS[0], "fast")
    first, second = minihack_network(space, "fast", seed=3), minihack_network(space, "fast", seed=3, accelerate=False)
    other = minihack_network(space, "fast", seed=4)
    assert first.state_dict().keys() == second.state_dict().keys()
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not torch.equal(first.fc2.weight, other.fc2.weight)


def test_what_the_fast_path_cannot_take_goes_through_the_plain_modules() -> None:
    network, obs = make("fast")
    assert network({key: leaf[:0] for key, leaf in obs.items()}).shape == (0, 256)
    torch.testing.assert_close(network({key: leaf.float() for key, leaf in obs.items()}), plain(network)(obs))
    with torch.autocast("cpu", torch.bfloat16):
        assert network(obs).isfinite().all()
    assert network.double()(obs).dtype == torch.float64


def test_it_is_the_encoder_of_a_bonus() -> None:
    """Admitted as it is, and the inverse model's loss reaches all of its weights."""
    network, obs = make("fast")
    space, actions = play(LEVELS[0], "fast")[0], spaces.Discrete(8)
    assert as_encoder(network, space) is network
    bonus = make_bonus("e3b", space, actions, NUM_ENVS, encoder=network, seed=0)
    unroll = Unroll(
        obs={key: leaf.view(STEPS, NUM_ENVS, *leaf.shape[1:]) for key, leaf in obs.items()},
        action=torch.randint(0, 8, (STEPS - 1, NUM_ENVS)),
        done=torch.zeros(STEPS - 1, NUM_ENVS, dtype=torch.bool),
        starts=torch.ones(NUM_ENVS, dtype=torch.bool),
    )
    features = bonus.embed(unroll)
    sum(bonus.loss(features, unroll).values()).backward()
    assert all(weight.grad is not None and weight.grad.abs().max() > 0 for weight in network.parameters())


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_is_remembered_while_acting_is_what_would_be_computed(variant: str) -> None:
    network, obs = make(variant)
    network.memoise = True
    with torch.no_grad():
        wanted = plain(network)(obs)
        for start in range(0, len(wanted), NUM_ENVS):
            step = {key: leaf[start : start + NUM_ENVS] for key, leaf in obs.items()}
            torch.testing.assert_close(network(step), wanted[start : start + NUM_ENVS], rtol=1e-4, atol=1e-5)
    with torch.inference_mode():
        torch.testing.assert_close(network(obs), wanted, rtol=1e-4, atol=1e-5)
    assert network(obs).requires_grad


@pytest.mark.parametrize("change", ["optimiser", "load", "data"])
def test_new_weights_are_not_answered_from_memory(change: str) -> None:
    network, obs = make("fast")
    network.memoise = True
    with torch.no_grad():
        network(obs)
    if change == "optimiser":
        network(obs).square().sum().backward()
        torch.optim.Adam(network.parameters(), 0.1).step()
    elif change == "load":
        network.load_state_dict({name: leaf + 0.1 for name, leaf in network.state_dict().items()})
    else:
        for weight in network.parameters():
            weight.data.add_(0.1)
        network.clear_memo()
    with torch.no_grad():
        torch.testing.assert_close(network(obs), plain(network)(obs), rtol=1e-4, atol=1e-4)


def test_a_copy_shares_nothing() -> None:
    network, obs = make("fast")
    network.memoise = True
    with torch.no_grad():
        before = network(obs)
        copied = copy.deepcopy(network)
        copied.fc2.weight.mul_(-1)
        copied.crop.block.weight.mul_(2)
        assert torch.equal(network(obs), before)
        torch.testing.assert_close(copied(obs), plain(copied)(obs), rtol=1e-4, atol=1e-5)
