"""Memory of the episodic bonuses: one slot per environment, cleared when an episode starts."""

from e3b_gym.memory.counts import CountMemory
from e3b_gym.memory.elliptical import EllipticalMemory
from e3b_gym.memory.hashing import hash_rows
from e3b_gym.memory.matrices import RankOneMemory, SolveMemory
from e3b_gym.memory.reference import ReferenceMemory

__all__ = ["CountMemory", "EllipticalMemory", "RankOneMemory", "ReferenceMemory", "SolveMemory", "hash_rows"]
