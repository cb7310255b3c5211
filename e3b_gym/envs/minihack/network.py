"""The observation networks of MiniHack, for the policy (before its LSTM) and for the encoder phi of the bonus.

phi = relu(W2 relu(W1 [map, crop, stats, message] + b1) + b2), followed by LayerNorm with `layer_norm=True`.

| | `paper` (Henaff et al. 2022, appendix; Samvelyan et al. 2021) | `fast` (after the authors' later variant) |
|---|---|---|
| full map 21x79 | 5 convolutions 3x3, 16 filters, the last 8, ELU | none |
| crop | 9x9, 5 convolutions like the map's, not shared | 16x16, 2 convolutions, 16 and 8 filters, ELU |
| blstats | raw, 2 x 64 ReLU | symlog(x) = sign(x) log(1 + abs(x)), 2 x 64 ReLU |
| message | 256 characters, 6 convolutions of 64 (kernels 7, 7, 3, 3, 3, 3), max-pool 3 after the 1st, 2nd, 6th, 2 x 128 ReLU | 128 characters, 3 convolutions of 32 (kernels 7, 7, 3), max-pool 3 after each, 64 ReLU |
| hidden = dim | 1024 | 256 |
| initial weights | PyTorch's default | He et al. 2015: keeps the variance through the ReLUs, so that phi learns early |

`moves` is `fast`, and the logits of the eight moves get scores of the cells next to the agent (`moves.py`).

Map and crop share the glyph embeddings (64). Where the paper and the authors' code disagree, `paper` follows the paper:
characters are embedded in 64 dimensions (the paper's "64 input feature maps"; the code has 32), and messages become 128
features (the code: 64).

W1 [map, crop, stats, message] is the sum of W1's blocks times the parts, so every trunk ends in its block. A trunk is
then a function of its own part of the observation: with `accelerate`, repeated rows are computed once (`unique_rows`),
maps and crops patch by patch (`patches`), and while acting, results are cached (`RowMemo`). This needs float32 on the
CPU; otherwise the plain modules are used.
"""  # noqa: E501 (a table row is one line)

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional as F

from e3b_gym.encoders.generic import Encoder, he_init, seeded_init
from e3b_gym.encoders.networks import Networks
from e3b_gym.encoders.patches import embed_maps
from e3b_gym.encoders.sum_rows import add_rows_
from e3b_gym.encoders.unique_rows import RowMemo, unique_rows
from e3b_gym.envs.minihack.moves import MoveScores
from e3b_gym.envs.minihack.network_sizes import (
    MAP_SHAPE,
    VARIANTS,
    Sizes,
    check_space,
    env_options,
    num_glyphs,
    sizes_of,
)
from e3b_gym.unroll import Tree

__all__ = ["VARIANTS", "MiniHackNetwork", "env_options", "minihack_network", "networks"]

GLYPH_WIDTH = 64
NUM_CHARACTERS = 256
MAP_TILE = (4, 21)  # columns and rows: with full height the weights, which are many, need no reordering
CROP_TILES = {16: (4, 4), 9: (9, 9)}  # small tiles repeat more often; after five layers only whole crops repeat


def networks(net: str) -> Networks:
    """The networks of a run: "paper", "fast" or "moves"."""
    sizes, small = sizes_of(net), net != "paper"
    return Networks(
        trunk=lambda space: minihack_network(space, net, layer_norm=False),
        phi=lambda space: minihack_network(space, net, layer_norm=small),
        lstm=128 if small else 1024,
        action_scores=MoveScores if sizes.scores_moves else None,
        env_options=env_options(net),
    )


def minihack_network(
    observation_space: spaces.Space[Any],
    variant: str = "fast",
    *,
    layer_norm: bool = False,
    accelerate: bool = True,
    seed: int | None = None,
) -> MiniHackNetwork:
    """Builds the network of a variant for environments made with `env_options(variant)`.

    Args:
        observation_space: Space of one environment; it may have entries that the network does not read.
        variant: "paper", "fast" or "moves"; the last two have the same network below the LSTM.
        layer_norm: Apply LayerNorm to the embedding, as the authors' later variant does to phi.
        accelerate: False uses PyTorch's plain modules; outputs, gradients and parameters are the same.
        seed: Seed of the initial weights; None: they are drawn from torch's global generator.

    Raises:
        ValueError: The space lacks an entry that the network reads.
    """
    sizes = sizes_of(variant)
    check_space(observation_space, variant, sizes)
    with seeded_init(seed):
        return MiniHackNetwork(sizes, num_glyphs(observation_space, sizes), layer_norm, accelerate)


class MiniHackNetwork(Encoder):
    """Observations [rows, ...] by key -> [rows, dim]; build it with `minihack_network`.

    Attributes:
        accelerate: Use the fast path where it applies.
        memoise: Cache the outputs of the trunks when gradients are disabled; set it on the copy that acts. Call
            `clear_memo` when the weights change. Changes that PyTorch counts (optimisers, `load_state_dict`, but not
            `.data` or another process) are detected automatically.
    """

    def __init__(self, sizes: Sizes, num_glyphs: int, layer_norm: bool, accelerate: bool) -> None:
        super().__init__()
        self.dim, self.accelerate, self.memoise = sizes.hidden, accelerate, False
        self.glyphs = nn.Embedding(num_glyphs, GLYPH_WIDTH)
        self.map = GlyphTrunk(MAP_SHAPE, MAP_TILE, sizes) if sizes.full_map else None
        self.crop = GlyphTrunk((sizes.crop_side, sizes.crop_side), CROP_TILES[sizes.crop_side], sizes)
        self.stats = StatsTrunk(sizes)
        self.message = MessageTrunk(sizes)
        self.fc2 = nn.Linear(sizes.hidden, sizes.hidden)
        self.norm = nn.LayerNorm(sizes.hidden) if layer_norm else nn.Identity()
        if sizes.keep_variance:
            he_init(self)
        _start_as_one([trunk.block for trunk in (self.map, self.crop, self.stats, self.message) if trunk is not None])
        self._memos = {key: RowMemo() for key in ("glyphs", "glyphs_crop", "message")}
        self._memo_weights: list[nn.Parameter] = []
        self._memo_version = -1

    def forward(self, obs: Tree) -> Tensor:
        trunks: dict[str, Callable[[Tensor], Tensor]] = {"message": self.message}
        fast = self.accelerate and _can_accelerate(self.fc2.weight, obs)
        for key, trunk in {"glyphs_crop": self.crop, "glyphs": self.map}.items():
            if trunk is not None:
                trunks[key] = partial(trunk, embedding=self.glyphs, accelerate=fast)
        if fast and self.memoise:
            self._refresh_memo()
        x = self.stats(obs["blstats"])
        for key, function in trunks.items():
            x = self._add(x, key, function, obs[key]) if fast else x + function(obs[key])
        return self.norm(torch.relu_(self.fc2(torch.relu_(x))))  # type: ignore[no-any-return]

    def clear_memo(self) -> None:
        """Clears the outputs that were cached with earlier weights."""
        for memo in self._memos.values():
            memo.clear()
        self._memo_weights = list(self.parameters())

    def _refresh_memo(self) -> None:
        version = sum(weight._version for weight in self._memo_weights)
        if version != self._memo_version or not self._memo_weights:
            self.clear_memo()
            self._memo_version = sum(weight._version for weight in self._memo_weights)

    def _add(self, x: Tensor, key: str, function: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
        """x + function(rows), in place; calls function once for each different row."""
        if self.memoise and not torch.is_grad_enabled():
            table, numbers = self._memos[key].look_up(function, rows)
        else:
            different, numbers = unique_rows(rows)
            table = function(different)
        return add_rows_(x, table, numbers)


def _can_accelerate(weight: Tensor, obs: Tree) -> bool:
    """Whether weights are float32 on the CPU, outside autocast, and symbols are integers."""
    if weight.dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
        return False
    symbols = [leaf for key, leaf in obs.items() if key != "blstats"]
    whole = not any(leaf.is_floating_point() for leaf in symbols)
    return whole and len(obs["blstats"]) > 0 and {leaf.device.type for leaf in (weight, *symbols)} == {"cpu"}


class GlyphTrunk(nn.Module):
    """Glyphs [rows, height, width] -> embeddings -> 3x3 convolutions -> a block of the first layer, [rows, hidden]."""

    def __init__(self, shape: tuple[int, int], tile: tuple[int, int], sizes: Sizes) -> None:
        super().__init__()
        self.tile = tile
        inputs = (GLYPH_WIDTH, *sizes.filters[:-1])
        self.convolutions = nn.ModuleList(
            nn.Conv2d(i, o, 3, padding=1) for i, o in zip(inputs, sizes.filters, strict=True)
        )
        self.block = nn.Linear(shape[0] * shape[1] * sizes.filters[-1], sizes.hidden, bias=False)

    def forward(self, glyphs: Tensor, embedding: nn.Embedding, accelerate: bool) -> Tensor:
        if accelerate:
            layers: Any = self.convolutions
            return embed_maps(glyphs, embedding.weight, layers, self.block.weight, self.tile)
        x = embedding(glyphs.int()).permute(0, 3, 1, 2)  # [rows, C, H, W]
        for convolution in self.convolutions:
            x = F.elu(convolution(x))
        return self.block(x.permute(0, 3, 2, 1).flatten(1))  # type: ignore[no-any-return]  # [rows, W H C]


class StatsTrunk(nn.Module):
    """blstats, 27 numbers -> 64 -> 64 -> a block of the first layer with its bias, [rows, hidden]."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.symlog = sizes.symlog_stats
        self.layers = nn.Sequential(nn.Linear(27, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.block = nn.Linear(64, sizes.hidden)

    def forward(self, stats: Tensor) -> Tensor:
        x = stats.to(self.block.weight.dtype)
        if self.symlog:
            x = x.abs().log1p().copysign(x)
        return self.block(self.layers(x))  # type: ignore[no-any-return]


class MessageTrunk(nn.Module):
    """Characters of the message [rows, 256] -> 1-D convolutions -> a block of the first layer, [rows, hidden]."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.characters = sizes.characters
        self.embedding = nn.Embedding(NUM_CHARACTERS, sizes.message_filters)
        layers: list[nn.Module] = []
        length = sizes.characters
        for layer, kernel in enumerate(sizes.message_kernels):
            layers += [nn.Conv1d(sizes.message_filters, sizes.message_filters, kernel), nn.ReLU()]
            length -= kernel - 1
            if layer in sizes.pool_after:
                layers.append(nn.MaxPool1d(3))
                length //= 3
        layers.append(nn.Flatten())
        width = length * sizes.message_filters
        for hidden in sizes.message_hidden:
            layers += [nn.Linear(width, hidden), nn.ReLU()]
            width = hidden
        self.layers = nn.Sequential(*layers)
        self.block = nn.Linear(width, sizes.hidden, bias=False)

    def forward(self, message: Tensor) -> Tensor:
        characters = self.embedding(message[:, : self.characters].int())  # [rows, L, C]
        return self.block(self.layers(characters.transpose(1, 2)))  # type: ignore[no-any-return]


def _start_as_one(blocks: list[nn.Linear]) -> None:
    """Scales the initial weights and bias of each block to those of one nn.Linear over the inputs of all blocks."""
    inputs = sum(block.in_features for block in blocks)
    with torch.no_grad():
        for block in blocks:
            for parameter in block.parameters():
                parameter.mul_((block.in_features / inputs) ** 0.5)
