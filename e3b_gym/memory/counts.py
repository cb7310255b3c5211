"""N(s): number of visits to each state, in the current episode or over all of training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class CountMemory:
    """One table of counts per environment (episodic), or one table for all environments (global).

    Args:
        num_envs: number of environments.
        episodic: clear the table of an environment when its episode starts; False: one table, never cleared.
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
            keys: [T, B], hashes of the next observations.
            first: [T, B] bool, the step is the first of its episode.
            valid: [T, B] bool, the next observation is known.
            opening: [K], hash of the episode's first observation for every True of `first`, in row-major order; it
                counts as a visit.
            slots: [B], index of each column's environment; None: 0..B-1.
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
            # All visits of one step are counted before any count is read, so the order of environments is irrelevant.
            row = [
                table.get(key, 0) if known else 0 for table, key, known in zip(tables, key_row, valid_row, strict=True)
            ]
            counts[t] = torch.tensor(row)
        return counts

    def _columns(self, envs: int, slots: Tensor | None) -> list[dict[int, int]]:
        """Returns the table of each column."""
        columns = list(range(envs)) if slots is None else slots.tolist()
        if len(columns) != envs or min(columns, default=0) < 0 or max(columns, default=0) >= self.num_envs:
            raise ValueError(
                f"slots must be {envs} of the {self.num_envs} environments, 0 to {self.num_envs - 1}; got {columns}"
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
                f"the counts were saved with num_envs={theirs[0]}, episodic={theirs[1]}, but this memory has "
                f"num_envs={ours[0]}, episodic={ours[1]}; build it with the same values"
            )
        tables: list[dict[int, int]] = [{} for _ in self._tables]
        for env, key, n in state["entries"].tolist():
            tables[env][key] = n
        self._tables = tables
