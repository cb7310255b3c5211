"""Per-environment bonus memory: explicit state, cleared where an episode starts."""

from e3b_gym.memory.counts import CountMemory
from e3b_gym.memory.hashing import hash_rows

__all__ = ["CountMemory", "hash_rows"]
