"""Shape checks for V-trace, the LSTM and the losses: a shape that would silently broadcast raises an error."""

from __future__ import annotations

from torch import Tensor


def require_shape(shape: tuple[int, ...], meaning: str, **tensors: Tensor) -> None:
    """Raises ValueError for the first tensor that has another shape.

    Args:
        shape: what each must have.
        meaning: its axes, such as "[T, B]".
        tensors: by name.
    """
    for name, tensor in tensors.items():
        if tensor.shape != shape:
            raise ValueError(f"{name} must be {meaning} = {list(shape)}; got {list(tensor.shape)}")
