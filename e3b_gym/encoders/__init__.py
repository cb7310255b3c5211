"""Networks that embed observations, and the dynamics heads that train them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from e3b_gym.encoders.dynamics import ActionCode, ForwardHead, InverseHead
from e3b_gym.encoders.generic import Encoder, as_encoder, make_encoder, sample_rows, seeded_init
from e3b_gym.encoders.partial import show_only

if TYPE_CHECKING:
    from e3b_gym.encoders.habitat import habitat_network
    from e3b_gym.encoders.minihack import minihack_network
    from e3b_gym.encoders.pixels import vizdoom_network

# name -> module. These are imported on first use, because they import numba, which is slow.
_LAZY_MODULES = {"habitat_network": "habitat", "minihack_network": "minihack", "vizdoom_network": "pixels"}

__all__ = [
    "ActionCode",
    "Encoder",
    "ForwardHead",
    "InverseHead",
    "as_encoder",
    "habitat_network",
    "make_encoder",
    "minihack_network",
    "sample_rows",
    "seeded_init",
    "show_only",
    "vizdoom_network",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY_MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY_MODULES[name]}"), name)
