"""Encoders for any observation space: the contract by random nested spaces, then the rules that decide learning."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from e3b_gym.encoders import Encoder, as_encoder, make_encoder, sample_rows, seeded_init
from e3b_gym.encoders.leaves import Board, Grid, Layout, Numbers, make_leaf
from e3b_gym.errors import UnsupportedSpaceError
from e3b_gym.unroll import tree_leaves, tree_map

INF = float("inf")
PICTURE = spaces.Box(0, 255, (40, 48, 3), np.uint8)
MINIGRID = spaces.Dict(image=spaces.Box(0, 255, (7, 7, 3), np.uint8), direction=spaces.Discrete(4))

shapes = st.one_of(
    st.just(()),
    st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple),
    st.tuples(st.integers(1, 4), st.integers(10, 40), st.integers(10, 40)),
    st.tuples(st.integers(10, 40), st.integers(10, 40)),
)
float_bounds = st.sampled_from(
    [(-INF, INF), (0.0, INF), (-INF, 3.0), (-1.0, 1.0), (0.0, 255.0), (-1e30, 1e30), (5.0, 5.5)]
)
boxes = st.one_of(
    st.builds(
        lambda bounds, shape, dtype: spaces.Box(*bounds, shape, dtype),
        float_bounds,
        shapes,
        st.sampled_from([np.float32, np.float64]),
    ),
    st.builds(
        lambda bounds, shape, dtype: spaces.Box(*bounds, shape, dtype),
        st.sampled_from([(0, 1), (0, 10), (3, 120)]),
        shapes,
        st.sampled_from([np.uint8, np.int8, np.int16, np.uint16, np.int32, np.int64]),
    ),
    st.builds(lambda shape: spaces.Box(0, 255, shape, np.uint8), shapes),
    st.builds(lambda shape: spaces.Box(-(2**40), 2**40, shape, np.int64), shapes),
    st.builds(lambda shape: spaces.Box(0, 1, shape, np.bool_), shapes),
)
sizes = st.one_of(st.integers(1, 6), st.sampled_from([1500, 70_000, 2**40]))
leaves = st.one_of(
    boxes,
    st.builds(lambda n, start: spaces.Discrete(n, start=start), sizes, st.integers(-5, 5)),
    st.builds(lambda nvec: spaces.MultiDiscrete(nvec), st.lists(sizes, min_size=1, max_size=4)),
    st.just(spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[0, -1], [7, 0]])),
    st.builds(spaces.MultiBinary, st.one_of(st.integers(1, 9), st.lists(st.integers(1, 20), min_size=1, max_size=3))),
)
nested_spaces = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=3).map(spaces.Dict),
        st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple),
    ),
    max_leaves=4,
)


def small_encoder(space: spaces.Space[Any], seed: int = 0) -> Encoder:
    return make_encoder(space, 24, hidden=32, seed=seed)


@settings(deadline=None, max_examples=120)
@given(nested_spaces, st.integers(0, 2**16))
def test_any_nested_space_gives_finite_trainable_embeddings(space: spaces.Space[Any], seed: int) -> None:
    encoder, batch = small_encoder(space), sample_rows(space, 6, seed)
    phi = encoder(batch)
    assert phi.shape == (6, encoder.dim) == (6, 24)
    assert phi.dtype == torch.float32
    assert phi.isfinite().all()
    phi.square().sum().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name


@settings(deadline=None, max_examples=60)
@given(nested_spaces, st.integers(0, 2**16))
def test_a_row_does_not_depend_on_the_rest_of_its_batch(space: spaces.Space[Any], seed: int) -> None:
    encoder, batch = small_encoder(space), sample_rows(space, 5, seed)
    with torch.no_grad():
        together = encoder(batch)
        apart = torch.cat([encoder(tree_map(lambda leaf, i=i: leaf[i : i + 1], batch)) for i in range(5)])
        reversed_rows = encoder(tree_map(lambda leaf: torch.from_numpy(leaf.numpy()[::-1].copy()), batch)).flip(0)
        none = encoder(tree_map(lambda leaf: leaf[:0], batch))
    tolerance = 1e-5 * (1 + together.abs().max().item())
    torch.testing.assert_close(apart, together, rtol=1e-4, atol=tolerance)
    torch.testing.assert_close(reversed_rows, together, rtol=1e-4, atol=tolerance)
    assert none.shape == (0, 24)


@settings(deadline=None, max_examples=30)
@given(nested_spaces)
def test_a_seed_fixes_the_weights_and_leaves_the_global_generator_alone(space: spaces.Space[Any]) -> None:
    before = torch.get_rng_state()
    first = small_encoder(space, seed=3)
    torch.rand(7)
    second, other = small_encoder(space, seed=3), small_encoder(space, seed=4)
    torch.set_rng_state(before)
    make_encoder(space, 24, hidden=32, seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    batch = sample_rows(space, 3, 0)
    with torch.no_grad():
        assert torch.equal(first(batch), second(batch))
        assert not torch.equal(first(batch), other(batch))


def test_without_a_seed_the_global_generator_decides() -> None:
    box = spaces.Box(-1, 1, (3,))
    with seeded_init(5):
        first = make_encoder(box, 8)
    assert torch.equal(first(torch.ones(1, 3)), make_encoder(box, 8, seed=5)(torch.ones(1, 3)))


@settings(deadline=None, max_examples=40)
@given(nested_spaces, st.integers(0, 2**16))
def test_samples_follow_the_space_and_do_not_advance_it(space: spaces.Space[Any], seed: int) -> None:
    space.seed(11)
    before = repr(space.sample())
    space.seed(11)
    first, second = sample_rows(space, 4, seed), sample_rows(space, 4, seed)
    assert repr(space.sample()) == before
    assert all(torch.equal(a, b) for a, b in zip(tree_leaves(first), tree_leaves(second), strict=True))
    assert all(len(leaf) == 4 for leaf in tree_leaves(first))


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.int16])
@pytest.mark.parametrize("side", [3, 4, 5, 6, 10, 11, 20, 31, 32, 33, 63, 64, 65, 97, 159, 160, 161, 255, 256])
def test_pictures_of_every_size_are_embedded(side: int, dtype: type) -> None:
    for shape in [
        (side, side, 3),
        (4, side, side),
        (side, 3, 2),
        (side, side),
        (2, side, side, 3),
        (3, side + 1, side),
    ]:
        encoder = small_encoder(spaces.Box(0, 255, shape, dtype))
        phi = encoder(torch.from_numpy(np.random.default_rng(0).integers(0, 256, (2, *shape)).astype(dtype)))
        assert phi.shape == (2, 24)
        assert phi.isfinite().all()


@pytest.mark.parametrize("side", [3, 5, 10, 11, 21, 33, 50, 64, 87, 130, 161, 256])
def test_every_pixel_matters(side: int) -> None:
    encoder = small_encoder(spaces.Box(0, 1, (1, side, side)))
    picture = torch.rand(1, 1, side, side, generator=torch.Generator().manual_seed(0)).requires_grad_()
    encoder(picture).square().sum().backward()
    assert picture.grad is not None
    assert (picture.grad != 0).float().mean() > 0.99


@pytest.mark.parametrize(
    ("shape", "planes"),
    [
        ((84, 84, 4), (4, 84, 84)),
        ((4, 84, 84), (4, 84, 84)),
        ((120, 160, 3), (3, 120, 160)),
        ((3, 120, 160), (3, 120, 160)),
        ((16, 9, 9), (16, 9, 9)),
        ((9, 9, 16), (16, 9, 9)),
        ((5, 5, 5), (5, 5, 5)),
        ((21, 79), (1, 21, 79)),
        ((4, 84, 84, 3), (12, 84, 84)),
        ((4, 3, 84, 60), (12, 84, 60)),
    ],
)
def test_channels_are_found_from_the_shape(shape: tuple[int, ...], planes: tuple[int, int, int]) -> None:
    layout = Layout(shape)
    assert layout.planes == planes
    x = torch.arange(2 * int(np.prod(shape))).reshape(2, *shape)
    arranged = layout.arrange(x)
    assert arranged.shape == (2, *planes)
    for channel in range(planes[0]):  # every plane is one slice of the input, rows and columns in order
        plane = arranged[:, channel]
        assert (plane[:, :, 1:] - plane[:, :, :-1]).unique().numel() == 1
        assert (plane[:, 1:] - plane[:, :-1]).unique().numel() == 1
        assert plane[0, 1, 0] - plane[0, 0, 0] > plane[0, 0, 1] - plane[0, 0, 0] > 0


def test_channels_first_and_last_hold_the_same_picture() -> None:
    first, last = (small_encoder(spaces.Box(0, 255, shape, np.uint8)) for shape in [(3, 40, 48), (40, 48, 3)])
    picture = sample_rows(PICTURE, 3, 0)
    torch.testing.assert_close(first(picture.permute(0, 3, 1, 2)), last(picture))


def test_a_batch_beyond_one_chunk_is_embedded_like_its_parts() -> None:
    frames = spaces.Box(0, 255, (84, 84, 4), np.uint8)
    encoder, batch = small_encoder(frames), sample_rows(frames, 40, 0)
    with torch.no_grad():
        parts = torch.cat([encoder(part) for part in batch.split(7)])
        torch.testing.assert_close(encoder(batch), parts, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("box", "symbols"),
    [
        (spaces.Box(0, 255, (7, 7, 3), np.uint8), True),
        (spaces.Box(0, 255, (84, 84, 3), np.uint8), False),
        (spaces.Box(0, 255, (31, 31), np.uint8), True),
        (spaces.Box(0, 5976, (21, 79), np.int16), True),
        (spaces.Box(-(2**31), 2**31, (9, 9), np.int64), False),
        (spaces.Box(0, 1, (7, 7, 3), np.float32), False),
    ],
)
def test_boards_of_symbols_are_distinguished_from_pictures(box: spaces.Box, symbols: bool) -> None:
    leaf = make_leaf(box)
    assert isinstance(leaf, (Board, Grid))
    assert (leaf.symbols is not None) == symbols


@pytest.mark.parametrize(("shape", "small"), [((7, 7, 3), True), ((10, 10), True), ((11, 7, 3), False)])
def test_only_large_boards_are_convolved(shape: tuple[int, ...], small: bool) -> None:
    assert isinstance(make_leaf(spaces.Box(0, 20, shape, np.uint8)), Board if small else Grid)


@pytest.mark.parametrize("high", [5, 30])
def test_a_cell_is_the_sum_of_its_symbols(high: int) -> None:
    leaf = make_leaf(spaces.Box(2, high, (4, 5, 3), np.int16))
    assert isinstance(leaf, Board)
    assert leaf.symbols.joint == (high == 5)
    board = sample_rows(spaces.Box(2, high, (4, 5, 3), np.int16), 6, 0)
    table = leaf.symbols.table.weight.view(3, high - 1, -1)
    expected = sum(table[channel, board[..., channel].long() - 2] for channel in range(3))
    torch.testing.assert_close(leaf(board).view(6, 4, 5, -1), expected)


@pytest.mark.parametrize(
    "box",
    [
        spaces.Box(-INF, INF, (50, 20)),
        spaces.Box(-1, 1, (10, 30)),
        spaces.Box(0, 255, (2, 90), np.uint8),
        spaces.Box(0, 255, (1, 1, 28), np.uint8),
        spaces.Box(0, 1, (2, 3, 4, 5, 6)),
    ],
)
def test_tables_of_numbers_are_vectors(box: spaces.Box) -> None:
    leaf = make_leaf(box)
    assert isinstance(leaf, Numbers)
    assert leaf.width == np.prod(box.shape)


def scaled(low: Any, high: Any, values: Any, dtype: type = np.float32) -> list[float]:
    leaf = make_leaf(spaces.Box(np.array(low, dtype), np.array(high, dtype), dtype=dtype))
    assert leaf is not None
    return leaf(torch.from_numpy(np.array([values], dtype)))[0].tolist()


def test_bounds_scale_numbers_and_symlog_squashes_the_rest() -> None:
    low, high = [-4.8, -INF, 0, 0, 1000, -3.4e38], [4.8, INF, INF, 10, 1010, 3.4e38]
    got = scaled(low, high, [2.4, -np.e + 1, 0, 10, 1000, 1e30])
    assert got == pytest.approx([0.5, -1.0, 0.0, 1.0, -1.0, np.log(1e30)], rel=1e-5)
    assert scaled([0, 0], [255, 255], [255, 0], np.uint8) == [1.0, -1.0]
    assert scaled([3.0], [3.0], [3.0]) == [0.0]
    assert scaled([-1e300], [1e300], [-1e299], np.float64) == pytest.approx([-np.log(1e299)], rel=1e-6)
    assert scaled([-(2**63)], [2**63 - 1], [-(2**63)], np.int64) == pytest.approx([-np.log(2.0**63)], rel=1e-5)


def test_pictures_are_scaled_to_the_unit_interval() -> None:
    for box in (PICTURE, spaces.Box(0, 255, (40, 40, 3)), spaces.Box(-1, 1, (40, 40, 3))):
        leaf = make_leaf(box)
        assert isinstance(leaf, Grid)
        assert leaf.scale is not None
        ends = leaf.scale(torch.from_numpy(np.stack([box.low, box.high])))
        torch.testing.assert_close(ends, torch.stack([torch.zeros(box.shape), torch.ones(box.shape)]))


def test_inputs_are_never_changed_in_place() -> None:
    space = spaces.Dict(
        a=spaces.Box(-1, 1, (5,)),
        b=spaces.Box(-INF, INF, (5,)),
        c=spaces.Box(0, 9, (20, 20, 3)),
        d=spaces.Box(1, 9, (3, 7, 7), np.int64),
    )
    batch = sample_rows(space, 4, 0)
    before = tree_map(torch.clone, batch)
    small_encoder(space)(batch).sum().backward()
    assert all(torch.equal(a, b) for a, b in zip(tree_leaves(batch), tree_leaves(before), strict=True))


@pytest.mark.parametrize("n", [7, 1500, 70_000, 2**40])
def test_distinct_values_of_a_discrete_space_have_distinct_embeddings(n: int) -> None:
    encoder = small_encoder(spaces.Discrete(n, start=-3))
    values = torch.tensor([-3, -2, 0, n - 4])
    with torch.no_grad():
        distance = torch.cdist(encoder(values), encoder(values)) + 9 * torch.eye(4)
    assert distance.min() > 1e-3


def test_values_outside_the_space_do_not_crash() -> None:
    for n in (7, 1500, 70_000):
        assert small_encoder(spaces.Discrete(n))(torch.tensor([-1, n])).isfinite().all()
    board = small_encoder(spaces.Box(0, 10, (7, 7, 3), np.int64))
    torch.testing.assert_close(board(torch.full((1, 7, 7, 3), 99)), board(torch.full((1, 7, 7, 3), 10)))


def test_neighbouring_symbols_of_minigrid_are_far_apart() -> None:
    encoder = make_encoder(MINIGRID, seed=0)
    batch = sample_rows(MINIGRID, 2, 0)
    batch["image"][:], batch["direction"][:] = 1, 0
    batch["image"][1, 3, 3, 0] = 2  # one cell: floor becomes wall
    with torch.no_grad():
        phi = encoder(batch)
    assert (phi[1] - phi[0]).norm() > 0.02 * phi[0].norm()


@pytest.mark.parametrize(
    ("space", "path"),
    [
        (spaces.Dict(image=spaces.Box(0, 1, (3,)), mission=spaces.Text(9)), 'observation_space["mission"]'),
        (spaces.Tuple([spaces.Discrete(2), spaces.Dict(g=spaces.Sequence(spaces.Discrete(2)))]), 'space[1]["g"]'),
        (spaces.Graph(spaces.Box(0, 1, (3,)), None), "observation_space is Graph"),
        (spaces.OneOf([spaces.Discrete(2)]), "observation_space is OneOf"),
    ],
)
def test_unsupported_parts_are_named_with_a_remedy(space: spaces.Space[Any], path: str) -> None:
    for build in (make_encoder, lambda space: sample_rows(space, 2, 0)):
        with pytest.raises(UnsupportedSpaceError) as caught:
            build(space)
        assert path in str(caught.value)
        assert "FilterObservation" in str(caught.value)


def test_the_remedy_works_on_a_real_environment() -> None:
    import minigrid  # noqa: F401 (registers its environments)

    env = gymnasium.make("MiniGrid-Empty-5x5-v0")
    env = gymnasium.wrappers.FilterObservation(env, ["image", "direction"])
    obs, _ = env.reset(seed=0)
    batch = {key: torch.as_tensor(np.asarray(value))[None] for key, value in obs.items()}
    assert make_encoder(env.observation_space)(batch).shape == (1, 256)


def test_bad_requests_are_explained() -> None:
    with pytest.raises(UnsupportedSpaceError, match="no numbers"):
        make_encoder(spaces.Dict({}))
    with pytest.raises(UnsupportedSpaceError, match="no numbers"):
        make_encoder(spaces.Box(0, 1, (0,)))
    with pytest.raises(ValueError, match="dim=0"):
        make_encoder(spaces.Discrete(3), 0)
    with pytest.raises(ValueError, match=r'observation\["image"\] must have shape .*7, 7, 3.*got \[2, 3, 7, 7\]'):
        small_encoder(MINIGRID)({"image": torch.zeros(2, 3, 7, 7), "direction": torch.zeros(2)})


class Picky(nn.Module):
    """Answers with whatever a test asks for."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, obs: Tensor) -> Any:
        return self.answer(obs)


def test_a_users_module_becomes_an_encoder() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.BatchNorm1d(5), nn.Dropout())
    module[3].eval()
    encoder = as_encoder(module.double(), spaces.Box(-1, 1, (3, 4), np.float64))
    assert encoder.dim == 5
    assert encoder(torch.zeros(7, 3, 4, dtype=torch.float64)).dtype == torch.float32
    assert module[2].num_batches_tracked == 1  # by the line above; the trial itself left the statistics alone
    assert [part.training for part in module] == [True, True, True, False]
    assert {id(p) for p in encoder.parameters()} == {id(p) for p in module.parameters()}
    own = small_encoder(MINIGRID)
    assert as_encoder(own, MINIGRID) is own


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda x: x.sum(), r"shape \[\]; flatten"),
        (lambda x: x.unsqueeze(1), r"shape \[2, 1, 3\]; flatten"),
        (lambda x: x[:1], r"shape \[1, 3\]; keep the first dimension"),
        (lambda x: x.long(), "dtype torch.int64"),
        (lambda x: x / 0, "NaN or infinity"),
        (lambda x: (x, x), "returned tuple"),
        (lambda x: x @ torch.zeros(9, 2), r"failed on two observations \(torch.float32 \[2, 3\]\): RuntimeError"),
        (lambda x: x["image"], "failed on two observations"),
    ],
)
def test_a_users_module_with_a_wrong_answer_is_explained(answer: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        as_encoder(Picky(answer), spaces.Box(-1, 1, (3,)))


def test_phi_has_one_length_and_other_networks_do_not() -> None:
    space = spaces.Box(-1, 1, (5,))
    with torch.no_grad():
        phi, other = (make_encoder(space, 16, seed=0, phi=phi)(torch.randn(8, 5)) for phi in (True, False))
    torch.testing.assert_close(phi.norm(dim=1), torch.full((8,), 4.0), rtol=1e-3, atol=0)
    assert other.norm(dim=1).std() > 0.01
