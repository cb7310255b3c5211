"""Devices: the CPU, or a GPU where there is one."""

from __future__ import annotations

import torch
from torch import nn


def parse_device(device: str | torch.device) -> torch.device | None:
    """Returns the device of a name such as "cuda" or "cuda:1", whether or not it exists here; None for "auto".

    Raises:
        ValueError: The name is not that of a device.
    """
    if isinstance(device, str) and device == "auto":
        return None
    try:
        return torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"device must be 'auto', 'cpu', 'cuda' or 'cuda:<number>'; got {device!r}") from error


def find_device(device: str | torch.device) -> torch.device:
    """Returns a device that can be used here, with its number; "auto" is a CUDA GPU if there is one, or the CPU.

    Raises:
        ValueError: The name is not that of a device, or this machine does not have it.
    """
    found = parse_device(device)
    if found is None:
        found = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if found.type == "cpu":
        return torch.device("cpu")
    if found.type in ("mps", "meta"):
        reason = "has no float64, which the bonus needs" if found.type == "mps" else "holds no numbers"
        raise ValueError(f"device {str(found)!r} {reason}; use device='auto' or 'cpu'")
    module = getattr(torch, found.type, None)
    count = module.device_count() if module is not None and module.is_available() else 0
    if (found.index or 0) >= count:
        have = f"PyTorch finds {count} of this kind" if count else "PyTorch finds none here"
        raise ValueError(f"device {str(found)!r} is not available ({have}); use device='auto' or 'cpu'")
    return found if found.index is not None else torch.device(found.type, module.current_device())


def device_of(module: nn.Module) -> torch.device:
    """Returns where a module's weights are; the CPU if it has none."""
    tensors = (*module.parameters(), *module.buffers())
    return tensors[0].device if tensors else torch.device("cpu")
