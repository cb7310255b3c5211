"""A second device for machines without a GPU: its tensors hold ordinary numbers, but mixing them with the CPU's raises.

PyTorch's fake tensors on "cuda" abort a build without CUDA as soon as a gradient is asked for, and hold no numbers, so
that code that looks at them (`if mask.any()`) cannot run. Here every operation is computed on the CPU, after the check
that a GPU makes: all tensors are on one device, apart from scalars and indices. So whole updates run, and their results
can be compared with the CPU's. It is registered as PyTorch's PrivateUse1 backend, "pretend".
"""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

aten = torch.ops.aten
COPIES = (aten._to_copy, aten.copy_, aten.copy)
PACKED = (aten._pack_padded_sequence, aten._pack_padded_sequence_backward)  # a GPU has their lengths on the CPU
INDEXED = (aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_)  # a GPU takes indices from the CPU


class Pretend(torch.Tensor):
    """A tensor on the device; `numbers` is the CPU tensor behind it."""

    @staticmethod
    def __new__(cls, numbers):
        layout = {"strides": numbers.stride(), "storage_offset": numbers.storage_offset(), "dtype": numbers.dtype}
        made = torch.Tensor._make_wrapper_subclass(cls, numbers.shape, device=torch.device("pretend:0"), **layout)
        made.numbers = numbers
        return made

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return run(function, args, kwargs or {})

    def tolist(self):  # which PyTorch's devices have and its subclasses have not
        return self.numbers.tolist()

    def __repr__(self):
        return f"pretend {self.numbers}"


class FromNumbers(TorchFunctionMode):
    """torch.tensor(..., device="pretend"), which copies from the CPU where no dispatch mode sees it."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        target = kwargs.get("device")
        if function not in (torch.tensor, torch.as_tensor) or target is None or torch.device(target).type != "pretend":
            return function(*args, **kwargs)
        return function(*args, **{**kwargs, "device": "cpu"}).to(target)


class Device(TorchDispatchMode):
    """Context in which tensors can be made on the device."""

    def __init__(self):
        super().__init__()
        self._from_numbers = FromNumbers()

    def __enter__(self):
        self._from_numbers.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self._from_numbers.__exit__(*error)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return run(function, args, kwargs or {})


def run(function, args, kwargs):
    """Computes an operation; raises RuntimeError where a GPU would, for tensors of two devices."""
    packet, target = function.overloadpacket, kwargs.get("device")
    compared = (args[0], *args[2:3]) if packet in INDEXED else args[0] if packet in PACKED else (args, kwargs)
    tensors = [leaf for leaf in pytree.tree_leaves(compared) if isinstance(leaf, torch.Tensor)]
    there = any(isinstance(tensor, Pretend) for tensor in tensors)
    here = any(not isinstance(tensor, Pretend) and tensor.dim() > 0 for tensor in tensors)
    if there and here and packet not in COPIES:
        raise RuntimeError(f"{function}: expected all tensors on one device, but found pretend:0 and cpu")
    known = {id(x.numbers): x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, Pretend)}
    args, kwargs = pytree.tree_map(lambda x: x.numbers if isinstance(x, Pretend) else x, (args, kwargs))
    if target is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
        there = torch.device(target).type == "pretend"
    elif packet in COPIES:
        there = isinstance(tensors[0], Pretend)
    out = OWN.get(packet, function)(*args, **kwargs)

    def placed(x):
        if not isinstance(x, torch.Tensor) or not there:
            return x
        return known[id(x)] if id(x) in known else Pretend(x)  # operations in place return what they were given

    if packet is aten._pack_padded_sequence:
        return placed(out[0]), out[1]
    return pytree.tree_map(placed, out)


def lstm_cell(from_input, from_hidden, c, b_input=None, b_hidden=None):
    """The fused LSTM cell that GPUs have and the CPU has not."""
    gates = from_input + from_hidden + (0 if b_input is None else b_input + b_hidden)
    i, f, g, o = gates.chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    after = f * c + i * g
    return o * after.tanh(), after, torch.cat([i, f, g, o], 1)


def lstm_cell_backward(d_h, d_after, c, after, workspace, has_bias):
    i, f, g, o = workspace.chunk(4, 1)
    tanh = after.tanh()
    d_c = (0 if d_after is None else d_after) + (0 if d_h is None else d_h * o * (1 - tanh * tanh))
    d_o = tanh * (0 if d_h is None else d_h)
    parts = d_c * g * i * (1 - i), d_c * c * f * (1 - f), d_c * i * (1 - g * g), d_o * o * (1 - o)
    d_gates = torch.cat(parts, 1)
    return d_gates, d_c * f, d_gates.sum(0) if has_bias else None


OWN = {aten._thnn_fused_lstm_cell: lstm_cell, aten._thnn_fused_lstm_cell_backward_impl: lstm_cell_backward}


def register() -> None:
    """Makes the device known to PyTorch, once in a process."""
    if not hasattr(torch, "pretend"):
        module = SimpleNamespace(
            is_available=lambda: True,
            device_count=lambda: 1,
            current_device=lambda: 0,
            is_initialized=lambda: True,
            _is_in_bad_fork=lambda: False,
            manual_seed_all=lambda seed: None,
            manual_seed=lambda seed: None,
        )
        _setup_privateuseone_for_python_backend("pretend", backend_module=module)
