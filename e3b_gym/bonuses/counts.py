"""Count-based bonuses: the blue terms of the paper's Table 1.

    FirstVisit         1[N(s') = 1]        NovelD
    InverseSqrtCount   1 / sqrt(N(s'))     RIDE, AGAC

N counts the visits in the current episode, its first observation included (with episodic=False: over all of training).
Departs from the authors' code: every visit is counted exactly once, and all environments share one global table.
"""

from __future__ import annotations

import torch
from torch import Tensor

from e3b_gym.bonuses.base import Bonus
from e3b_gym.bonuses.keys import Key
from e3b_gym.memory import CountMemory, hash_rows
from e3b_gym.options import check
from e3b_gym.unroll import Tree, Unroll, tree_map


class InverseSqrtCount(Bonus):
    """1 / sqrt(N(s')).

    Args:
        key: function that selects the counted part of an observation tree [rows, ...]; see `make_key`.
        episodic: count visits within the episode; False: over all of training and all environments.

    Examples:
        >>> import gymnasium as gym
        >>> from e3b_gym import check_bonus
        >>> from e3b_gym.bonuses import InverseSqrtCount, make_key
        >>> space, actions = gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(3)
        >>> bonus = InverseSqrtCount(make_key("full", space))
        >>> check_bonus(bonus, space, actions)
    """

    def __init__(self, key: Key, *, episodic: bool = True) -> None:
        super().__init__()
        self.key = key
        self.episodic = self.independent_envs = check("episodic", episodic, bool)

    def new_memory(self, num_envs: int) -> CountMemory:
        return CountMemory(num_envs, self.episodic)

    @torch.no_grad()
    def score(self, features: None, unroll: Unroll, memory: CountMemory) -> Tensor:
        counts = self._visit(unroll, memory).to(unroll.done.device)  # [T, B], 0 where unknown
        return unroll.masked(self.bonus_of_count(counts.clamp(min=1).float()))

    def bonus_of_count(self, count: Tensor) -> Tensor:
        """Returns the bonus for the `count`-th visit to a state."""
        return count.rsqrt()

    def _visit(self, unroll: Unroll, memory: CountMemory) -> Tensor:
        first = unroll.first
        keys = self._hash(tree_map(lambda leaf: leaf[1:].flatten(0, 1), unroll.obs)).reshape(first.shape)  # [T, B]
        if unroll.terminal_obs is not None:
            keys[unroll.known.cpu().numpy()] = self._hash(unroll.terminal_obs)
        opening = self._hash(tree_map(lambda leaf: leaf[:-1][first], unroll.obs)) if bool(first.any()) else keys[:0, 0]
        return memory.visit(keys, first, unroll.valid, opening, unroll.slots)

    def _hash(self, rows: Tree):  # type: ignore[no-untyped-def]
        return hash_rows(self.key(rows))


class FirstVisit(InverseSqrtCount):
    """1 on the first visit to a state in the episode, 0 on later visits.

    Examples:
        >>> import gymnasium as gym
        >>> from e3b_gym import check_bonus
        >>> from e3b_gym.bonuses import FirstVisit
        >>> space, actions = gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(3)
        >>> bonus = FirstVisit(lambda obs: obs[:, :2])  # counts the first two numbers only
        >>> check_bonus(bonus, space, actions)
    """

    def bonus_of_count(self, count: Tensor) -> Tensor:
        return (count == 1).float()
