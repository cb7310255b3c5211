"""Convolutions by different patches are the convolutions, to rounding, with all gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from e3b_gym.encoders import patches
from e3b_gym.encoders.patches import embed_maps


class Plain(nn.Module):
    """What `embed_maps` computes, in PyTorch's modules."""

    def __init__(self, height: int, width: int, filters: list[int], symbols: int = 9) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, 8)
        sizes = [8, *filters]
        self.convolutions = nn.ModuleList(nn.Conv2d(sizes[i], sizes[i + 1], 3, padding=1) for i in range(len(filters)))
        self.linear = nn.Linear(height * width * filters[-1], 16, bias=False)

    def forward(self, maps: Tensor) -> Tensor:
        x = self.embedding(maps.int()).permute(0, 3, 1, 2)
        for convolution in self.convolutions:
            x = F.elu(convolution(x))
        return self.linear(x.permute(0, 3, 2, 1).flatten(1))

    def by_patches(self, maps: Tensor, tile: tuple[int, int]) -> Tensor:
        return embed_maps(maps, self.embedding.weight, list(self.convolutions), self.linear.weight, tile)


def assert_same_function(net: Plain, maps: Tensor, tile: tuple[int, int]) -> None:
    d_out = torch.randn(len(maps), 16)
    out = net.by_patches(maps, tile)
    gradients = torch.autograd.grad(out, list(net.parameters()), d_out)
    expected = net.double()(maps)
    exact = torch.autograd.grad(expected, list(net.parameters()), d_out.double())
    for got, want in zip([out, *gradients], [expected, *exact], strict=True):
        assert (got.double() - want).abs().max() <= 1e-5 * want.abs().max() + 1e-12


@settings(deadline=None, max_examples=60)
@given(
    height=st.integers(1, 7),
    width=st.integers(1, 9),
    rows=st.integers(1, 12),
    filters=st.lists(st.sampled_from([4, 8, 16]), min_size=1, max_size=4),
    columns_of_tile=st.integers(1, 9),
    share=st.sampled_from([0.0, 0.1, 0.9]),
    seed=st.integers(0, 1000),
)
def test_patches_give_the_convolutions_and_their_gradients(
    height: int, width: int, rows: int, filters: list[int], columns_of_tile: int, share: float, seed: int
) -> None:
    torch.manual_seed(seed)
    net = Plain(height, width, filters)
    other = torch.randint(0, 9, (rows, height, width))
    maps = torch.where(torch.rand(rows, height, width) < share, other, 5).to(torch.int16)
    assert_same_function(net, maps, (columns_of_tile, height))


@pytest.mark.parametrize("tile", [(1, 1), (4, 4), (2, 8), (8, 4)])
def test_small_tiles_change_nothing(tile: tuple[int, int]) -> None:
    torch.manual_seed(0)
    maps = torch.randint(0, 9, (5, 8, 8))
    maps[:, 4:] = 3
    assert_same_function(Plain(8, 8, [16, 8]), maps, tile)


@pytest.mark.parametrize("most", [1, 30, 200])
def test_batches_with_too_many_patches_are_split(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patches, "MOST_PATCHES", most)
    torch.manual_seed(0)
    assert_same_function(Plain(5, 6, [16, 16, 8]), torch.randint(0, 9, (9, 5, 6)), (3, 5))


def test_a_symbol_outside_the_table_is_refused() -> None:
    net = Plain(3, 3, [8])
    for symbol in (-1, 9):
        with pytest.raises(IndexError, match="0 to 8"):
            net.by_patches(torch.full((1, 3, 3), symbol), (3, 3))
