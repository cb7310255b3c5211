"""Turns what environments report into an Unroll: terminal observations, check for NaN, and the buffer of T steps.

    obs[0] -action[0]-> obs[1] -action[1]-> ... -> obs[T]

`UnrollBuffer` stores each observation once, in arrays [T+1, N] that an actor or a wrapper fills. Terminal observations
have a separate array, whose rows use memory only once they are written. The arrays are numpy's, whose small operations
take a third of the time of torch's.

In the step that ends an episode, an environment that resets itself returns the first observation of the next one. The
terminal observation, where the step really arrived, is reported separately; `EndingReader` reads it:

    Stable-Baselines3     infos[env]["terminal_observation"]
    Gymnasium, SAME_STEP  infos["final_obs"][env], and the ended episode's infos in infos["final_info"]
    Gymnasium, NEXT_STEP  it is the observation itself; the next step only resets

A simulator that has blanked it (NetHack after a death) reports `final_observation_valid` False in its infos: then the
step has no known arrival.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray
from torch import Tensor

from e3b_gym.errors import NonFiniteError
from e3b_gym.unroll import Tree, Unroll, kept_as, tree_leaves, tree_map

Rows: TypeAlias = slice | list[int]
VALID = "final_observation_valid"
LastObservations = dict[int, Tree]
"""The true terminal observations of the episodes that ended in a step, by environment."""


def last_of_single(done: bool, obs: Tree, info: Mapping[str, Any]) -> LastObservations:
    """The last observation of one environment that does not reset itself."""
    return {0: obs} if done and info.get(VALID, True) else {}


def last_of_sb3(info: Mapping[str, Any]) -> Tree | None:
    """The terminal observation of one environment of a VecEnv; None if its info has none, or a blanked one."""
    return info.get("terminal_observation") if info.get(VALID, True) else None


class EndingReader:
    """Reads the last observations of a batch, and warns once if the batch does not report them.

    Args:
        name: name of the batch, for the warning.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._warned = False

    def from_sb3(self, done: NDArray[np.bool_], infos: Sequence[Mapping[str, Any]]) -> LastObservations:
        """The terminal observations of a VecEnv's step; `done` is [N]."""
        if not done.any():
            return {}
        found = {env: last_of_sb3(infos[env]) for env in np.flatnonzero(done).tolist()}
        last = {env: obs for env, obs in found.items() if obs is not None}
        if any(obs is None and infos[env].get(VALID, True) for env, obs in found.items()):
            self._warn("infos['terminal_observation']; a VecEnv that resets itself must report it")
        return last

    def from_vector(
        self, done: NDArray[np.bool_], obs: Tree, infos: Mapping[str, Any], mode: AutoresetMode
    ) -> LastObservations:
        """The terminal observations of a VectorEnv's step; `done` is [N], `obs` a tree of [N, ...]."""
        if not done.any():
            return {}
        same_step = mode == AutoresetMode.SAME_STEP
        ended = infos.get("final_info", {}) if same_step else infos
        envs = np.flatnonzero(done & ended.get(VALID, True)).tolist()
        if not same_step:
            return {env: tree_map(lambda leaf, env=env: leaf[env], obs) for env in envs}
        if "final_obs" in infos:
            return {env: infos["final_obs"][env] for env in envs}
        self._warn("infos['final_obs']; a VectorEnv with SAME_STEP autoreset must report it")
        return {}

    def _warn(self, remedy: str) -> None:
        if not self._warned:
            self._warned = True
            where, must = remedy.split("; ")
            warnings.warn(
                f"episodes of {self._name} end without {where}, so their last steps get no bonus; {must}", stacklevel=5
            )


def autoreset_mode(env: VectorEnv[Any, Any, Any]) -> AutoresetMode | None:
    """The autoreset mode of a batch of environments; None if it declares none."""
    # The attribute first: SyncVectorEnv writes the metadata entry into a dict shared by all envs of the class.
    mode = getattr(env.unwrapped, "autoreset_mode", None) or env.metadata.get("autoreset_mode")
    return None if mode is None else AutoresetMode(mode)


@dataclass
class UnrollBuffer:
    """Arrays of T steps of N environments. A ring has T+1 rows in every array, the last one unused.

    Attributes:
        obs: tree of [T+1, N, ...].
        action: [T, N, ...].
        done: bool [T, N].
        terminal_known: bool [T, N].
        terminal_obs: tree of [T, N, ...]; filled where `terminal_known`.
        logits: float32 [T, N, A], of the policy that acted, or None.
    """

    obs: Tree
    action: NDArray[Any]
    done: NDArray[np.bool_]
    terminal_known: NDArray[np.bool_]
    terminal_obs: Tree
    logits: NDArray[np.float32] | None

    @classmethod
    def like(cls, obs: Tree, action: NDArray[Any], rows: int) -> UnrollBuffer:
        """Room for `rows` rows of what looks like `obs` and `action`, each [N, ...]."""

        def empty(leaf: NDArray[Any]) -> NDArray[Any]:
            return np.empty((rows, *leaf.shape), kept_as(leaf.dtype))

        lead = (rows, len(action))
        return cls(
            obs=tree_map(empty, obs),
            action=np.empty((rows, *action.shape), action.dtype),
            done=np.zeros(lead, np.bool_),
            terminal_known=np.zeros(lead, np.bool_),
            terminal_obs=tree_map(empty, obs),
            logits=None,
        )

    @property
    def num_envs(self) -> int:
        return self.done.shape[1]

    def write_obs(self, row: int, obs: Tree) -> None:
        """`obs`: tree of [N, ...]."""
        write_row(self.obs, row, obs)

    def write_step(
        self, row: int, action: NDArray[Any], done: NDArray[np.bool_], last_observations: Mapping[int, Tree]
    ) -> None:
        """The step that leaves obs[row]; `last_observations` by environment, where an episode ended and it is known."""
        self.action[row], self.done[row] = action, done
        self.terminal_known[row] = False
        for env, last in last_observations.items():
            self.terminal_known[row, env] = True
            write_row(self.terminal_obs, (row, env), last)

    def read(
        self,
        obs_rows: Rows,
        step_rows: Rows,
        starts: NDArray[np.bool_],
        *,
        slots: Tensor | None = None,
        with_logits: bool = True,
    ) -> Unroll:
        """Some rows as an Unroll, of views where the rows are slices.

        Args:
            obs_rows: rows of the observations, one more than steps.
            step_rows: rows of the steps.
            starts: bool [N], the first observation opens an episode.
            slots: which environments the columns are; see `Unroll`.
            with_logits: whether the steps have the policy's logits.
        """
        known = self.terminal_known[step_rows]
        last = None
        if known.any():
            last = tree_map(lambda leaf: torch.from_numpy(leaf[step_rows][known]), self.terminal_obs)
        return Unroll(
            obs=tree_map(lambda leaf: torch.from_numpy(leaf[obs_rows]), self.obs),
            action=torch.from_numpy(self.action[step_rows]),
            done=torch.from_numpy(self.done[step_rows]),
            starts=torch.from_numpy(starts),
            terminal_obs=last,
            terminal_known=torch.from_numpy(known),
            slots=slots,
            policy_logits=torch.from_numpy(self.logits[step_rows]) if with_logits and self.logits is not None else None,
        )


def write_row(tree: Tree, row: int | tuple[int, int], values: Tree) -> None:
    """Writes `values` into a row of every leaf."""
    for leaf, value in zip(tree_leaves(tree), tree_leaves(values), strict=True):
        leaf[row] = value


def require_finite_step(obs: Tree, reward: NDArray[Any] | None, last_observations: Mapping[int, Tree]) -> None:
    """The gate for what environments report: NaN or infinity is an error that names the value and the environment."""
    _require_finite(obs, "the observation")
    for env, last in last_observations.items():
        rows = tree_map(lambda leaf: np.asarray(leaf)[None], last)
        _require_finite(rows, "the last observation of an episode", [env])
    if reward is not None and not np.isfinite(reward).all():
        bad = np.flatnonzero(~np.isfinite(reward)).tolist()
        raise NonFiniteError(f"the reward of environment {bad} is NaN or infinite; fix the environment")


def _require_finite(tree: Tree, name: str, envs: list[int] | None = None) -> None:
    """Row i of each leaf is environment i, or `envs[i]`."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            _require_finite(value, f"{name}[{key!r}]", envs)
    elif isinstance(tree, tuple):
        for i, value in enumerate(tree):
            _require_finite(value, f"{name}[{i}]", envs)
    elif tree.dtype.kind == "f" and not np.isfinite(tree).all():
        bad = np.flatnonzero(~np.isfinite(tree).reshape(len(tree), -1).all(axis=1)).tolist()
        raise NonFiniteError(
            f"{name} has NaN or infinite values in environment {bad if envs is None else [envs[i] for i in bad]}; "
            "fix the environment, or clip its observations"
        )
