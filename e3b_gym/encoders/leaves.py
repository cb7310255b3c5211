"""One small network per leaf of an observation space, which maps numbers, symbols or grids to flat float features.

`generic.py` has the table of leaves and features. There are no running statistics, so the same weights give the same
vector for the same observation.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

WIDEST_LINEAR_HALF_RANGE = 1000.0  # wider bounds say too little about typical values: symlog instead
LARGEST_ONE_HOT = 1024  # entries of one leaf; above, a table of embeddings is cheaper
LARGEST_TABLE = 2**16  # entries of one leaf; above, the binary digits of each value
LARGEST_JOINT_TABLE = 2**12  # combinations of the symbols of a cell; above, one look-up per channel
SYMBOL_WIDTH = 16  # length of the embedding of a symbol in a large grid, before convolutions
CELL_WIDTH = 8  # length of the embedding of a symbol in a small grid, whose cells feed one linear layer
SMALLEST_PICTURE = 32  # a uint8 grid whose longer side is shorter holds symbols (MiniGrid), not brightness
SMALLEST_FLOAT_MATRIX = 16  # a float matrix with a shorter side is a table of numbers, not an image
CHUNK = 2**19  # numbers of an image batch that are convolved at a time
LARGEST_MAP = 10  # convolutions reduce each side to at most this before flattening; smaller grids need none


class Scale(nn.Module):
    """Scales numbers to order one: linearly within usable bounds, otherwise by symlog(x) = sign(x) log(1 + |x|).

    Maps [low, high] to [-1, 1], or to [0, 1] with `from_zero` (black stays 0), for any leading dimensions.
    """

    middle: Tensor
    gain: Tensor
    linear: Tensor

    def __init__(self, low: NDArray[Any], high: NDArray[Any], from_zero: bool = False) -> None:
        super().__init__()
        low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
        if low.size and (low == low.flat[0]).all() and (high == high.flat[0]).all():
            low, high = low.flat[0], high.flat[0]  # all bounds are equal: scalars broadcast faster
        with np.errstate(invalid="ignore"):
            half = np.asarray(high / 2 - low / 2)
            linear = half <= WIDEST_LINEAR_HALF_RANGE
            middle = np.where(linear, low if from_zero else low + half, 0.0)
        span = np.where(linear & (half > 0), 2 * half if from_zero else half, 1.0)
        self.all_linear, self.none_linear, self.centred = linear.all(), not linear.any(), not middle.any()
        # The bounds come from the space, so they need not be in checkpoints.
        self.register_buffer("middle", torch.tensor(middle, dtype=torch.float32), persistent=False)
        self.register_buffer("gain", torch.tensor(1 / span, dtype=torch.float32), persistent=False)
        self.register_buffer("linear", torch.tensor(linear), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        # The multiplication converts uint8 to float: one pass over an image. float64 is kept until the end, since its
        # values may overflow float32.
        if x.dtype not in (torch.uint8, torch.float32, torch.float64):
            x = x.float()
        if self.none_linear:
            return _symlog(x).float()
        straight = x * self.gain if self.centred else (x - self.middle).mul_(self.gain)
        if not self.all_linear:
            straight = torch.where(self.linear, straight, _symlog(x))
        return straight.float()


def _symlog(x: Tensor) -> Tensor:
    x = x if x.is_floating_point() else x.float()
    return x.abs().log1p_().copysign_(x)


class Numbers(nn.Module):
    """[rows, *shape] -> [rows, size], scaled."""

    def __init__(self, low: NDArray[Any], high: NDArray[Any]) -> None:
        super().__init__()
        self.scale = Scale(low, high)
        self.width = int(np.prod(low.shape))

    def forward(self, x: Tensor) -> Tensor:
        scaled: Tensor = self.scale(x)
        return scaled.reshape(x.shape[0], self.width)


class OneHot(nn.Module):
    """[..., k], component i with `sizes[i]` values from `starts[i]` -> [..., sum(sizes)]; other values give zeros."""

    component: Tensor
    value: Tensor

    def __init__(self, sizes: Sequence[int], starts: Sequence[int]) -> None:
        super().__init__()
        self.width = sum(sizes)
        component = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
        value = torch.cat([torch.arange(n) + start for n, start in zip(sizes, starts, strict=True)])
        self.single = len(sizes) == 1
        self.register_buffer("component", component, persistent=False)
        self.register_buffer("value", value, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        # A single component broadcasts against its values; several are each repeated once per value.
        return ((x if self.single else x[..., self.component]).long() == self.value).float()


class Symbols(nn.Module):
    """Discrete and MultiDiscrete: one-hot, embeddings or binary digits, depending on the number of values."""

    low: Tensor
    high: Tensor
    offset: Tensor
    bit: Tensor

    def __init__(self, sizes: Sequence[int], starts: Sequence[int]) -> None:
        super().__init__()
        self.components = len(sizes)
        self.one_hot = OneHot(sizes, starts) if sum(sizes) <= LARGEST_ONE_HOT else None
        self.table = None
        first, size = torch.tensor(starts), torch.tensor(sizes)
        self.register_buffer("low", first, persistent=False)
        self.register_buffer("high", first + size - 1, persistent=False)
        self.register_buffer("offset", size.cumsum(0) - size - first, persistent=False)
        self.register_buffer("bit", torch.arange(int(max(sizes) - 1).bit_length() or 1), persistent=False)
        if self.one_hot is not None:
            self.width = self.one_hot.width
        elif sum(sizes) <= LARGEST_TABLE:
            self.table = nn.Embedding(sum(sizes), SYMBOL_WIDTH)
            self.width = self.components * SYMBOL_WIDTH
        else:
            self.width = self.components * len(self.bit)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.shape[0]
        x = x.reshape(rows, self.components)
        if self.one_hot is not None:
            return self.one_hot(x)  # type: ignore[no-any-return]
        known = torch.clamp(x.long(), self.low, self.high)  # [rows, k]
        if self.table is not None:
            return self.table(known + self.offset).reshape(rows, self.width)  # type: ignore[no-any-return]
        digits = (known - self.low).unsqueeze(-1) >> self.bit & 1  # [rows, k, bits]
        return (2.0 * digits - 1.0).reshape(rows, self.width)


class SymbolPlanes(nn.Module):
    """[rows, C, H, W] integers -> [rows, H, W, width]: the sum of one embedding per channel.

    If few combinations of symbols exist, the sums of all are computed first: one look-up per cell instead of C.
    """

    step: Tensor

    def __init__(self, channels: int, low: int, high: int, width: int) -> None:
        super().__init__()
        self.low, self.high, self.channels, levels = low, high, channels, high - low + 1
        self.joint = levels**channels <= LARGEST_JOINT_TABLE
        self.table = nn.Embedding(channels * levels, width)
        nn.init.normal_(self.table.weight, std=channels**-0.5)
        place = torch.arange(channels).view(-1, 1, 1)  # position of the digit in a joint index, or of the channel
        self.register_buffer("step", levels ** place.flip(0) if self.joint else levels * place, persistent=False)

    def forward(self, planes: Tensor) -> Tensor:
        symbol = planes.long().clamp(self.low, self.high).sub_(self.low)
        if not self.joint:
            return self.table(symbol.add_(self.step)).sum(1)  # type: ignore[no-any-return]
        return F.embedding(symbol.mul_(self.step).sum(1), self._joint_table())

    def _joint_table(self) -> Tensor:
        joint, *others = self.table.weight.chunk(self.channels)  # [levels, width] each
        for other in others:
            joint = (joint.unsqueeze(1) + other).flatten(0, 1)
        return joint  # [levels**C, width]


class Board(nn.Module):
    """A small grid of symbols [rows, *shape] -> embeddings of all cells; as good as convolutions on MiniGrid."""

    def __init__(self, low: NDArray[Any], high: NDArray[Any], layout: "Layout") -> None:
        super().__init__()
        self.layout = layout
        channels, height, width = layout.planes
        self.symbols = SymbolPlanes(channels, int(low.min()), int(high.max()), CELL_WIDTH)
        self.width = height * width * CELL_WIDTH

    def forward(self, x: Tensor) -> Tensor:
        return self.symbols(self.layout.arrange(x)).reshape(x.shape[0], self.width)  # type: ignore[no-any-return]


class Grid(nn.Module):
    """An image or a large grid of symbols [rows, *shape] -> convolutions -> [rows, width]."""

    def __init__(self, low: NDArray[Any], high: NDArray[Any], layout: "Layout", symbols: bool) -> None:
        super().__init__()
        self.layout = layout
        channels, height, width = layout.planes
        self.scale = None if symbols else Scale(low, high, from_zero=True)
        self.symbols = SymbolPlanes(channels, int(low.min()), int(high.max()), SYMBOL_WIDTH) if symbols else None
        self.convolutions, self.width = _convolutions(SYMBOL_WIDTH if symbols else channels, height, width)

    def forward(self, x: Tensor) -> Tensor:
        # On a CPU in chunks that fit the cache: new buffers for a whole batch cost more than the convolutions.
        chunk = max(1, CHUNK // self.layout.size)
        if len(x) <= chunk or x.device.type != "cpu":
            return self._features(x)
        return torch.cat([self._features(part) for part in torch.split(x, chunk)])

    def _features(self, x: Tensor) -> Tensor:
        if self.symbols is not None:
            planes = self.symbols(self.layout.arrange(x)).permute(0, 3, 1, 2)
        else:
            planes = self.layout.arrange(self.scale(x))  # type: ignore[misc]
        return self.convolutions(planes)  # type: ignore[no-any-return]


class Layout:
    """Position of channels, height and width in a leaf of rank 2, 3 or 4 (stacked frames first).

    If two sides are equal, the third is the channels; otherwise the shorter of first and last. If these are equal,
    channels are last, as in Gymnasium's images.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        *stack, first, middle, last = shape if len(shape) > 2 else (1, *shape)
        if first == middle != last:
            channels_first = False
        elif middle == last != first:
            channels_first = True
        else:
            channels_first = first < last
        channels, height, width = (first, middle, last) if channels_first else (last, first, middle)
        self.planes = (channels * int(np.prod(stack)), height, width)
        self.size = int(np.prod(shape))
        depth = len(stack) + 1
        order = (depth, depth + 1, depth + 2) if channels_first else (depth + 2, depth, depth + 1)
        self.order = (*range(depth), *order) if len(shape) > 2 else (0, 1, 2)

    def arrange(self, x: Tensor) -> Tensor:
        return x.permute(self.order).reshape(x.shape[0], *self.planes)  # [rows, C, H, W]


def _convolutions(channels: int, height: int, width: int) -> tuple[nn.Sequential, int]:
    """Returns a first layer whose stride depends on the size, then 3x3 layers until the map is small."""
    sides = (height, width)
    strides = _each_side(sides, lambda n: 1 if n < 32 else 2 if n < 64 else 4 if n < 160 else 8)
    kernel = _each_side(strides, lambda stride: max(3, 2 * stride - 1))  # windows overlap and miss no pixel
    padding = _each_side(kernel, lambda k: k // 2)
    layers: list[nn.Module] = []
    filters = 16
    while len(layers) < 4 or max(sides) > LARGEST_MAP:
        layers += [nn.Conv2d(channels, filters, kernel, strides, padding), nn.ReLU(inplace=True)]
        reach = zip(sides, padding, kernel, strides, strict=True)
        height, width = ((side + 2 * margin - window) // stride + 1 for side, margin, window, stride in reach)
        sides = (height, width)
        channels, filters, kernel = filters, 32, (3, 3)
        strides = _each_side(sides, lambda n: 2 if n > LARGEST_MAP else 1)
        padding = _each_side(sides, lambda n: 0 if 5 <= n <= LARGEST_MAP else 1)  # a small grid needs no padding
    return nn.Sequential(*layers, nn.Flatten()), channels * sides[0] * sides[1]


def _each_side(sides: tuple[int, int], rule: Callable[[int], int]) -> tuple[int, int]:
    return rule(sides[0]), rule(sides[1])


def make_leaf(space: spaces.Space[Any]) -> Numbers | Symbols | Board | Grid | None:
    """Returns the network of one leaf (output size `width`), or None if this kind of space is not supported."""
    if isinstance(space, spaces.Discrete):
        return Symbols([int(space.n)], [int(space.start)])
    if isinstance(space, spaces.MultiDiscrete):
        return Symbols([int(n) for n in space.nvec.flat], [int(start) for start in space.start.flat])
    if isinstance(space, spaces.MultiBinary):
        return _numeric_leaf(np.zeros(space.shape), np.ones(space.shape), np.float32)
    if isinstance(space, spaces.Box):
        return _numeric_leaf(space.low, space.high, space.dtype)
    return None


def _numeric_leaf(low: NDArray[Any], high: NDArray[Any], dtype: Any) -> Numbers | Board | Grid:
    shape, integer = low.shape, np.issubdtype(dtype, np.integer)
    if len(shape) not in (2, 3, 4):
        return Numbers(low, high)
    layout = Layout(shape)
    channels, height, width = layout.planes
    if not channels or min(height, width) < 3:  # too thin for a 3x3 neighbourhood
        return Numbers(low, high)
    if len(shape) == 2 and not integer:
        bounded = np.isfinite(low).all() and np.isfinite(high).all()
        if not bounded or min(shape) < SMALLEST_FLOAT_MATRIX:
            return Numbers(low, high)
    light = dtype == np.uint8 and high.max() == 255 and max(height, width) >= SMALLEST_PICTURE
    entries = channels * (int(high.max()) - int(low.min()) + 1) if integer else 0
    symbols = integer and not light and entries <= LARGEST_TABLE
    if symbols and max(height, width) <= LARGEST_MAP:
        return Board(low, high, layout)
    return Grid(low, high, layout, symbols)
