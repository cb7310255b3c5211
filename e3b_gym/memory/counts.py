"""N(s): how often each state has been seen, in the running episode or over the whole of training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class CountMemory:
    """A table of counts for every environment (episodic), or one that all share (global).

    Args:
        num_envs: how many environments.
        episodic: clear an environment's table where its episode starts. False: one table, never cleared.
    """

    def __init__(self, num_envs: int, episodic: bool = True) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs must be at least 1; got {num_envs}")
        self.num_envs = num_envs
        self.episodic = episodic
        self._tables: list[dict[int, int]] = [{} for _ in range(num_envs if episodic else 1)]

    def visit(
        self,
        keys: NDArray[np.int64],
        first: Tensor,
        valid: Tensor,
        opening: NDArray[np.int64],
        slots: Tensor | None = None,
    ) -> Tensor:
        """Counts every visit once and returns N(s_{t+1}) [T, B], this visit included; 0 where not `valid`.

        Args:
            keys: [T, B] of the arriving observations.
            first: [T, B] bool, the step opens an episode.
            valid: [T, B] bool, the arriving observation is known.
            opening: [K], the key of the episode's first observation, for every True of `first`, row-major: a visit too.
            slots: [B], which environments the columns are.
        """
        tables = self._columns(first.shape[1], slots)
        counts = torch.zeros(first.shape, dtype=torch.int64)
        openings = iter(opening.tolist())
        for t, (key_row, first_row, valid_row) in enumerate(
            zip(keys.tolist(), first.tolist(), valid.tolist(), strict=True)
        ):
            for table, key, opens, known in zip(tables, key_row, first_row, valid_row, strict=True):
                if opens:
                    if self.episodic:
                        table.clear()
                    start = next(openings)
                    table[start] = table.get(start, 0) + 1
                if known:
                    table[key] = table.get(key, 0) + 1
            # All visits of one step are counted before any is read, so the order of environments does not matter.
            row = [
                table.get(key, 0) if known else 0 for table, key, known in zip(tables, key_row, valid_row, strict=True)
            ]
            counts[t] = torch.tensor(row)
        return counts

    def _columns(self, envs: int, slots: Tensor | None) -> list[dict[int, int]]:
        """The table of every column."""
        columns = list(range(envs)) if slots is None else slots.tolist()
        if len(columns) != envs or min(columns, default=0) < 0 or max(columns, default=0) >= self.num_envs:
            raise ValueError(
                f"slots must name {envs} of the {self.num_envs} environments, 0 to {self.num_envs - 1}; got {columns}"
            )
        return [self._tables[slot] for slot in columns] if self.episodic else self._tables * envs

    def state_dict(self) -> dict[str, Any]:
        entries = [(env, key, n) for env, table in enumerate(self._tables) for key, n in table.items()]
        return {
            "num_envs": self.num_envs,
            "episodic": self.episodic,
            "entries": torch.tensor(entries, dtype=torch.int64).reshape(-1, 3),  # rows of (table, key, count)
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        ours, theirs = (self.num_envs, self.episodic), (state["num_envs"], state["episodic"])
        if ours != theirs:
            raise ValueError(
                f"the saved counts are of num_envs={theirs[0]}, episodic={theirs[1]}; this memory has "
                f"num_envs={ours[0]}, episodic={ours[1]}; build it with the same sizes"
            )
        tables: list[dict[int, int]] = [{} for _ in self._tables]
        for env, key, n in state["entries"].tolist():
            tables[env][key] = n
        self._tables = tables
