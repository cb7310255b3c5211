"""An LSTM over unrolls [T, B] in which episodes start anywhere.

    h, c <- 0 where an episode starts;  i, f, o = sigmoid(W x_t + U h + b),  g = tanh(W x_t + U h + b)
    c = f c + i g,  h = o tanh(c)

nn.LSTM would have to be called step by step. Here W x is one matrix product for the whole unroll and so are the
gradients of W and U; a step is one product with U and one compiled pass over the cells. Same function, same
parameters and same gradients as nn.LSTM, which `fused=False` uses step by step.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from agents.impala.shapes import require_shape
from e3b_gym.encoders.lstm import cells, cells_backward


class ResetLSTM(nn.LSTM):
    """nn.LSTM whose state is cleared where an episode starts.

    Args:
        input_size, hidden_size, num_layers: as in nn.LSTM.
        fused: use the fast path where it applies (float32 on a CPU).
    """

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, *, fused: bool = True) -> None:
        super().__init__(input_size, hidden_size, num_layers)
        self.fused = fused

    def forward(  # type: ignore[override]
        self, x: Tensor, starts: Tensor, state: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Outputs [T, B, H] and the state after the last row.

        Args:
            x: [T, B, F].
            starts: [T, B] bool, row t opens an episode: the state before it is zero.
            state: h and c, each [layers, B, H], before row 0; no gradient flows into them.
        """
        out, (h, c) = self.trajectory(x, starts, state)
        return out, (torch.stack([rows[-1] for rows in h]), torch.stack([rows[-1] for rows in c]))

    def trajectory(
        self, x: Tensor, starts: Tensor, state: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, tuple[list[Tensor], list[Tensor]]]:
        """As `forward`, with the state after every row: h and c of each layer, [T, B, H], without gradients."""
        require_shape(x.shape[:2], "[T, B]", starts=starts)
        require_shape((self.num_layers, x.shape[1], self.hidden_size), "[layers, B, H]", h=state[0], c=state[1])
        keep = (~starts).to(x.dtype)[..., None]  # [T, B, 1]
        if self.fused and x.device.type == "cpu" and x.dtype == torch.float32:
            return self._fast(x, keep, state)
        outputs, hidden, cell = [], [], []
        for t in range(len(x)):
            before = (state[0] * keep[t], state[1] * keep[t])
            out, state = super().forward(x[t : t + 1], before)
            outputs.append(out)
            hidden.append(state[0].detach())
            cell.append(state[1].detach())
        h, c = torch.stack(hidden, 1), torch.stack(cell, 1)  # [layers, T, B, H]
        return torch.cat(outputs), (list(h), list(c))

    def _fast(
        self, x: Tensor, keep: Tensor, state: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, tuple[list[Tensor], list[Tensor]]]:
        hidden, cell = [], []
        for layer, weights in enumerate(self.all_weights):
            x, c = _Layer.apply(x, keep, state[0][layer], state[1][layer], *weights)  # type: ignore[no-untyped-call]
            hidden.append(x.detach())
            cell.append(c)
        return x, (hidden, cell)


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, keep: Tensor, h: Tensor, c: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
    ) -> tuple[Tensor, Tensor]:
        steps, batch, _ = x.shape
        size = w_hh.shape[1]
        gates = torch.addmm(b_ih + b_hh, x.reshape(steps * batch, -1), w_ih.t()).view(steps, batch, 4 * size)
        before_h, before_c, out, after_c, tanh_c = x.new_empty(5, steps, batch, size).unbind()
        for t in range(steps):
            torch.mul(h, keep[t], out=before_h[t])
            torch.mul(c, keep[t], out=before_c[t])
            gates[t].addmm_(before_h[t], w_hh.t())  # as fast as with a transposed copy
            cells(*(array[t].numpy() for array in (gates, before_c, after_c, tanh_c, out)))
            h, c = out[t], after_c[t]
        ctx.save_for_backward(x, keep, w_ih, w_hh, gates, before_h, before_c, tanh_c)
        ctx.mark_non_differentiable(after_c)
        return out, after_c

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_out: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        x, keep, w_ih, w_hh, gates, before_h, before_c, tanh_c = ctx.saved_tensors
        steps, batch, size = before_h.shape
        d_h = d_out.clone(memory_format=torch.contiguous_format)
        d_gates, d_c = torch.empty_like(gates), torch.zeros_like(tanh_c[0])
        for t in range(steps - 1, -1, -1):
            if t + 1 < steps:
                d_h[t].addcmul_(d_gates[t + 1] @ w_hh, keep[t + 1])
                d_c *= keep[t + 1]
            cells_backward(*(array.numpy() for array in (gates[t], before_c[t], tanh_c[t], d_h[t], d_c, d_gates[t])))
        rows = d_gates.view(steps * batch, 4 * size)
        d_x = (rows @ w_ih).view_as(x) if ctx.needs_input_grad[0] else None
        d_bias = rows.sum(0)
        d_ih, d_hh = rows.t() @ x.reshape(steps * batch, -1), rows.t() @ before_h.view(steps * batch, size)
        return d_x, None, None, None, d_ih, d_hh, d_bias, d_bias
