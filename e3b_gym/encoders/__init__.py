"""Networks that embed observations, and the dynamics heads that train them."""

from e3b_gym.encoders.dynamics import ActionCode, ForwardHead, InverseHead
from e3b_gym.encoders.generic import Encoder, as_encoder, make_encoder, sample_rows, seeded_init
from e3b_gym.encoders.networks import Networks, generic_networks
from e3b_gym.encoders.partial import show_only

__all__ = [
    "ActionCode",
    "Encoder",
    "ForwardHead",
    "InverseHead",
    "Networks",
    "as_encoder",
    "generic_networks",
    "make_encoder",
    "sample_rows",
    "seeded_init",
    "show_only",
]
