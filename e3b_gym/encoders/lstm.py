# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
"""An LSTM over sequences of unequal length, without padding, fast on a CPU for few sequences at a time.

    i, f, o = sigmoid(W x_t + U h_{t-1} + b),  g = tanh(W x_t + U h_{t-1} + b)
    c_t = f c_{t-1} + i g,  h_t = o tanh(c_t)

W x_t is one matrix product for all rows, and so are the gradients of W and U. Only U h_{t-1} and its transpose are
computed step by step, in compiled code: the product of a few rows with a large matrix is bound by reading the matrix,
which BLAS does about once per row and this code once per four rows. Outputs and parameters are those of nn.LSTM, which
is used where it is faster or where the kernel does not apply.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch as th
from torch import nn

from e3b_gym.compiling import cached_njit

Indices = npt.NDArray[np.int64]
Weights = tuple[th.Tensor, th.Tensor, th.Tensor | None, th.Tensor | None]

# With Python's error model a division may raise, which prevents vectorisation.
_compiled = cached_njit(nogil=True, error_model="numpy", fastmath={"contract"})
# Inlined, so that the last bits are the same with and without numba's cache (`e3b_gym.compiling`).
_inlined = cached_njit(nogil=True, error_model="numpy", fastmath={"contract"}, forceinline=True)
# Dot products vectorise only if their sums may be reordered.
_inlined_sums = cached_njit(nogil=True, error_model="numpy", fastmath={"contract", "reassoc"}, forceinline=True)

_LOG2_E = np.float32(1 / math.log(2))
_LN2_HIGH = np.float32(0.693359375)  # few bits: n * _LN2_HIGH is exact for the n that occur
_LN2_LOW = np.float32(math.log(2) - 0.693359375)
_ROUND = np.float32(1.5 * 2**23)  # adding and subtracting it rounds a float32 to an integer
_C2, _C3, _C4, _C5, _C6, _C7 = (np.float32(1 / math.factorial(k)) for k in range(2, 8))
_ZERO, _ONE, _TWO, _LIMIT = np.float32(0), np.float32(1), np.float32(2), np.float32(87)


@_inlined
def _exp(x):
    """float32 exp to 8e-8 relative (on [-30, 30]), without branches so that it vectorises; clamps, keeps NaN."""
    x = -_LIMIT if x < -_LIMIT else (_LIMIT if x > _LIMIT else x)
    n = (x * _LOG2_E + _ROUND) - _ROUND
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW
    series = _ONE + r * (_ONE + r * (_C2 + r * (_C3 + r * (_C4 + r * (_C5 + r * (_C6 + r * _C7))))))
    return series * np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)


@_inlined
def _sigmoid(x):
    return _ONE / (_ONE + _exp(-x))


@_inlined
def _tanh(x):
    return _TWO / (_ONE + _exp(-_TWO * x)) - _ONE


@_inlined_sums
def _add_1(a, weight, out):
    """out += weight @ a; a [K], weight [N, K], out [N]."""
    for j in range(len(out)):
        w = weight[j]
        total = _ZERO
        for k in range(len(a)):
            total += a[k] * w[k]
        out[j] += total


@_inlined_sums
def _add_2(a, b, weight, out_a, out_b):
    """`_add_1` for two rows in one pass over weight, four outputs at a time: eight sums fill the vector registers."""
    for j in range(0, len(out_a), 4):
        w, x, y, z = weight[j], weight[j + 1], weight[j + 2], weight[j + 3]
        wa, xa, ya, za, wb, xb, yb, zb = _ZERO, _ZERO, _ZERO, _ZERO, _ZERO, _ZERO, _ZERO, _ZERO
        for k in range(len(a)):
            wa, xa, ya, za = wa + a[k] * w[k], xa + a[k] * x[k], ya + a[k] * y[k], za + a[k] * z[k]
            wb, xb, yb, zb = wb + b[k] * w[k], xb + b[k] * x[k], yb + b[k] * y[k], zb + b[k] * z[k]
        out_a[j] += wa
        out_a[j + 1] += xa
        out_a[j + 2] += ya
        out_a[j + 3] += za
        out_b[j] += wb
        out_b[j + 1] += xb
        out_b[j + 2] += yb
        out_b[j + 3] += zb


@_inlined_sums
def _add_4(a, b, c, d, weight, out_a, out_b, out_c, out_d):
    """`_add_1` for four rows in one pass over weight, two outputs at a time."""
    for j in range(0, len(out_a), 2):
        w, x = weight[j], weight[j + 1]
        wa, wb, wc, wd, xa, xb, xc, xd = _ZERO, _ZERO, _ZERO, _ZERO, _ZERO, _ZERO, _ZERO, _ZERO
        for k in range(len(a)):
            wa, wb, wc, wd = wa + a[k] * w[k], wb + b[k] * w[k], wc + c[k] * w[k], wd + d[k] * w[k]
            xa, xb, xc, xd = xa + a[k] * x[k], xb + b[k] * x[k], xc + c[k] * x[k], xd + d[k] * x[k]
        out_a[j] += wa
        out_a[j + 1] += xa
        out_b[j] += wb
        out_b[j + 1] += xb
        out_c[j] += wc
        out_c[j + 1] += xc
        out_d[j] += wd
        out_d[j + 1] += xd


@_inlined
def _add_product(source, shift, weight, target, rows):
    """target[r] += weight @ source[r + shift] for r in rows."""
    i, n = 0, len(rows)
    spare = np.empty(target.shape[1], target.dtype)
    while n - i >= 3:  # three rows are computed as four: reading the matrix dominates the time
        a, b, c = rows[i], rows[i + 1], rows[i + 2]
        d, target_d = (rows[i + 3], target[rows[i + 3]]) if n - i > 3 else (c, spare)
        sources = source[a + shift], source[b + shift], source[c + shift], source[d + shift]
        _add_4(*sources, weight, target[a], target[b], target[c], target_d)
        i += 4
    if n - i == 2:
        a, b = rows[i], rows[i + 1]
        _add_2(source[a + shift], source[b + shift], weight, target[a], target[b])
    elif n - i == 1:
        _add_1(source[rows[i] + shift], weight, target[rows[i]])


@_inlined
def _split(gates):
    """Views i, f, g, o [H] of [4H]."""
    size = len(gates) // 4
    return gates[:size], gates[size : 2 * size], gates[2 * size : 3 * size], gates[3 * size :]


@_inlined
def _cell(gates, previous_c, c, tanh_c, h):
    """The cell of one row; gates [4H] are pre-activations and are overwritten with activations."""
    gate_i, gate_f, gate_g, gate_o = _split(gates)
    for j in range(len(c)):
        i, f, g, o = _sigmoid(gate_i[j]), _sigmoid(gate_f[j]), _tanh(gate_g[j]), _sigmoid(gate_o[j])
        value = f * previous_c[j] + i * g
        squashed = _tanh(value)
        gate_i[j], gate_f[j], gate_g[j], gate_o[j] = i, f, g, o
        c[j], tanh_c[j], h[j] = value, squashed, o * squashed


@_inlined
def _cell_backward(gates, previous_c, tanh_c, dh, dc, dgates):
    """The gradients of one row; dc [H] is the gradient from the next row, overwritten with that of the previous row."""
    gate_i, gate_f, gate_g, gate_o = _split(gates)
    d_i, d_f, d_g, d_o = _split(dgates)
    for j in range(len(dc)):
        i, f, g, o, squashed = gate_i[j], gate_f[j], gate_g[j], gate_o[j], tanh_c[j]
        d = dc[j] + dh[j] * o * (_ONE - squashed * squashed)
        d_i[j] = d * g * i * (_ONE - i)
        d_f[j] = d * previous_c[j] * f * (_ONE - f)
        d_g[j] = d * i * (_ONE - g * g)
        d_o[j] = dh[j] * squashed * o * (_ONE - o)
        dc[j] = d * f


@_compiled
def cells(gates, previous_c, c, tanh_c, h):
    """`_cell` for B rows: gates [B, 4H], the others [B, H]."""
    for b in range(len(c)):
        _cell(gates[b], previous_c[b], c[b], tanh_c[b], h[b])


@_compiled
def cells_backward(gates, previous_c, tanh_c, dh, dc, dgates):
    """`_cell_backward` for B rows."""
    for b in range(len(dc)):
        _cell_backward(gates[b], previous_c[b], tanh_c[b], dh[b], dc[b], dgates[b])


@_compiled
def _forward(first, lengths, weight, gates, previous_h, previous_c, c, tanh_c, h):
    """Runs all sequences, longest first; they are concatenated in arrays [N, 4H] or [N, H], b from row first[b] on."""
    active = len(first)
    for t in range(lengths[0]):
        while lengths[active - 1] <= t:
            active -= 1
        rows = first[:active] + t
        _add_product(previous_h, 0, weight, gates, rows)
        for b in range(active):
            row = rows[b]
            _cell(gates[row], previous_c[row], c[row], tanh_c[row], h[row])
            if t + 1 < lengths[b]:
                previous_h[row + 1] = h[row]
                previous_c[row + 1] = c[row]


@_compiled
def _backward(first, lengths, weight, gates, previous_c, tanh_c, dh, dgates):
    """Writes dgates [N, 4H]; dh [N, H] is the gradient of the output rows, to which that of later rows is added."""
    dc = np.zeros((len(first), dh.shape[1]), dh.dtype)
    active = 0
    for t in range(lengths[0] - 1, -1, -1):
        _add_product(dgates, 1, weight, dh, first[:active] + t)  # sequences that have a row t + 1
        while active < len(first) and lengths[active] > t:
            active += 1
        for b in range(active):
            row = first[b] + t
            _cell_backward(gates[row], previous_c[row], tanh_c[row], dh[row], dc[b], dgates[row])


def _run(x: th.Tensor, weights: Weights, h_0: th.Tensor, c_0: th.Tensor, *where: Indices) -> list[th.Tensor]:
    """Returns gates [N, 4H] and previous_h, previous_c, c, tanh_c, h [N, H]; where: first and lengths [S]."""
    w_ih, w_hh, b_ih, b_hh = weights
    gates = x @ w_ih.t() if b_ih is None or b_hh is None else th.addmm(b_ih + b_hh, x, w_ih.t())
    previous_h, previous_c, c, tanh_c, h = (x.new_empty(len(x), w_hh.shape[1]) for _ in range(5))
    first = th.from_numpy(where[0])
    previous_h[first], previous_c[first] = h_0, c_0
    arrays = [gates, previous_h, previous_c, c, tanh_c, h]
    _forward(*where, w_hh.contiguous().numpy(), *(array.numpy() for array in arrays))
    return arrays


class _Layer(th.autograd.Function):
    """One LSTM layer with its gradients; the initial states, which come from the buffer, get none."""

    @staticmethod
    def forward(ctx: Any, x, w_ih, w_hh, b_ih, b_hh, h_0, c_0, *where) -> th.Tensor:
        gates, previous_h, previous_c, _, tanh_c, h = _run(x, (w_ih, w_hh, b_ih, b_hh), h_0, c_0, *where)
        ctx.save_for_backward(x, w_ih, w_hh, gates, previous_h, previous_c, tanh_c)
        ctx.where, ctx.has_bias = where, b_ih is not None
        return h

    @staticmethod
    @th.autograd.function.once_differentiable
    def backward(ctx: Any, d_out: th.Tensor) -> tuple[th.Tensor | None, ...]:
        x, w_ih, w_hh, gates, previous_h, previous_c, tanh_c = ctx.saved_tensors
        d_h, d_gates = d_out.clone(memory_format=th.contiguous_format), th.empty_like(gates)
        arrays = (w_hh.t().contiguous(), gates, previous_c, tanh_c, d_h, d_gates)
        _backward(*ctx.where, *(array.numpy() for array in arrays))
        d_x = d_gates @ w_ih if ctx.needs_input_grad[0] else None
        d_bias = d_gates.sum(0) if ctx.has_bias else None
        return d_x, d_gates.t() @ x, d_gates.t() @ previous_h, d_bias, d_bias, None, None, None, None


def _layers(lstm: nn.LSTM) -> Iterator[tuple[int, Weights]]:
    for layer, (w_ih, w_hh, *biases) in enumerate(lstm.all_weights):
        b_ih, b_hh = biases or (None, None)
        yield layer, (w_ih, w_hh, b_ih, b_hh)


def _suits_kernel(lstm: nn.LSTM, x: th.Tensor, rows_per_step: float) -> bool:
    """Whether the kernel applies: float32 on a CPU, at most 64 rows per step (measured: not slower than nn.LSTM)."""
    return x.device.type == "cpu" and x.dtype == th.float32 and lstm.hidden_size % 4 == 0 and rows_per_step <= 64


def lstm_sequences(lstm: nn.LSTM, x: th.Tensor, h_0: th.Tensor, c_0: th.Tensor, lengths: Indices) -> th.Tensor:
    """Returns the outputs [N, H] of concatenated sequences x [N, F].

    Args:
        lstm: an LSTM without dropout, projection or second direction.
        x: rows of all sequences, N = sum(lengths).
        h_0, c_0: initial states [layers, S, H]; they get no gradients.
        lengths: number of rows of each sequence [S], at least one each.
    """
    if _suits_kernel(lstm, x, len(x) / lengths.max()):
        order = np.argsort(-lengths, kind="stable")
        first = (np.cumsum(lengths) - lengths)[order]
        for layer, weights in _layers(lstm):
            x = _Layer.apply(x.contiguous(), *weights, h_0[layer, order], c_0[layer, order], first, lengths[order])
        return x
    packed = nn.utils.rnn.pack_sequence(x.split(lengths.tolist()), enforce_sorted=False)
    out, _ = lstm(packed, (h_0.contiguous(), c_0.contiguous()))
    padded, _ = nn.utils.rnn.pad_packed_sequence(out, batch_first=True)  # [S, L, H]
    real = th.arange(padded.shape[1]) < th.from_numpy(lengths)[:, None]  # [S, L]
    return padded[real.to(x.device)]


def lstm_step(
    lstm: nn.LSTM, x: th.Tensor, h_0: th.Tensor, c_0: th.Tensor
) -> tuple[th.Tensor, tuple[th.Tensor, th.Tensor]]:
    """Returns the outputs [B, H] and new states [layers, B, H] of one step of B sequences; x [B, F]."""
    if th.is_grad_enabled() or not _suits_kernel(lstm, x, len(x)):
        out, states = lstm(x[None], (h_0, c_0))
        return out[0], states
    first, lengths = np.arange(len(x)), np.ones(len(x), np.int64)
    hidden, cell = [], []
    for layer, weights in _layers(lstm):
        *_, c, _, x = _run(x.contiguous(), weights, h_0[layer], c_0[layer], first, lengths)
        hidden.append(x)
        cell.append(c)
    return x, (th.stack(hidden), th.stack(cell))
