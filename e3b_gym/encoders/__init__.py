"""Networks that embed observations, and the dynamics heads that train them."""

from e3b_gym.encoders.dynamics import ActionCode, ForwardHead, InverseHead
from e3b_gym.encoders.generic import Encoder, as_encoder, make_encoder, sample_rows, seeded_init
from e3b_gym.encoders.leaves import UnsupportedSpaceError

__all__ = [
    "ActionCode",
    "Encoder",
    "ForwardHead",
    "InverseHead",
    "UnsupportedSpaceError",
    "as_encoder",
    "make_encoder",
    "sample_rows",
    "seeded_init",
]
