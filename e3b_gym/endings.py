"""The last observation of an episode, where the frameworks put it, and whether it is real.

An environment that resets itself already shows the next episode in the step that ends one. The observation in which the
step really arrived travels separately:

    Stable-Baselines3     infos[env]["terminal_observation"]
    Gymnasium, SAME_STEP  infos["final_obs"][env], and the ended episode's infos in infos["final_info"]
    Gymnasium, NEXT_STEP  it is the observation itself; the next step only resets

A simulator that has blanked it (NetHack after a death) says so with `final_observation_valid` False in its infos: then
the step has no known arrival.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from e3b_gym.unroll import Tree, tree_map

VALID = "final_observation_valid"
LastObservations = dict[int, Tree]
"""By environment, the true last observations of the episodes that ended in a step."""


def last_of_single(done: bool, obs: Tree, info: Mapping[str, Any]) -> LastObservations:
    """Of one environment that does not reset itself."""
    return {0: obs} if done and info.get(VALID, True) else {}


class EndingReader:
    """Reads the last observations of a batch, and warns once if the batch does not report them.

    Args:
        name: of the batch, for the warning.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._warned = False

    def from_sb3(self, done: NDArray[np.bool_], infos: Sequence[Mapping[str, Any]]) -> LastObservations:
        """Of a VecEnv's step; `done` is [N]."""
        if not done.any():
            return {}
        valid = [env for env in np.flatnonzero(done).tolist() if infos[env].get(VALID, True)]
        last = {env: infos[env]["terminal_observation"] for env in valid if "terminal_observation" in infos[env]}
        if len(last) < len(valid):
            self._warn("infos['terminal_observation']; a VecEnv that resets itself must report it")
        return last

    def from_vector(
        self, done: NDArray[np.bool_], obs: Tree, infos: Mapping[str, Any], mode: AutoresetMode
    ) -> LastObservations:
        """Of a VectorEnv's step; `done` is [N], `obs` a tree of [N, ...]."""
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
    """How a batch resets its environments; None if it does not say."""
    # The attribute first: SyncVectorEnv writes the metadata entry into a dict shared by all envs of the class.
    mode = getattr(env.unwrapped, "autoreset_mode", None) or env.metadata.get("autoreset_mode")
    return None if mode is None else AutoresetMode(mode)
