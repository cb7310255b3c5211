"""The file of a reward wrapper: settings, encoder, optimiser, scale, memory. Plain data; reading it runs no code."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym

from e3b_gym.bonuses import Bonus
from e3b_gym.building import RECORD_STEPS, build_explorer
from e3b_gym.config import BonusConfig
from e3b_gym.errors import DamagedFileError
from e3b_gym.online import OnlineExplorer
from e3b_gym.space_identity import space_identity
from e3b_gym.tensor_files import load_tensors, save_tensors

_FORMAT = 2
_PLAIN = (str, int, float, bool, type(None))


def save_explorer(
    path: str | Path,
    config: BonusConfig,
    explorer: OnlineExplorer,
    observation_space: gym.Space[Any],
    action_space: gym.Space[Any],
) -> None:
    """Writes the file, all or nothing."""
    options = {name: value for name, value in config.options.items() if _is_plain(value)}
    state = {
        "format": _FORMAT,
        "config": replace(config, options=options).as_dict(),
        "objects": sorted(set(config.options) - set(options)),  # such as an encoder: given again on loading
        "spaces": [space_identity(observation_space), space_identity(action_space)],
        "spaces_text": [str(observation_space), str(action_space)],  # for the error message
        "explorer": explorer.state_dict(),
    }
    save_tensors(path, state)


def _is_plain(value: Any) -> bool:
    return isinstance(value, _PLAIN) or (isinstance(value, (list, tuple)) and all(map(_is_plain, value)))


def load_explorer(
    path: str | Path,
    observation_space: gym.Space[Any],
    action_space: gym.Space[Any],
    num_envs: int,
    bonus: Bonus | None,
    objects: dict[str, Any],
    record_steps: int = RECORD_STEPS,
) -> tuple[BonusConfig, OnlineExplorer]:
    """Loads what `save_explorer` wrote, for `num_envs` environments with the same spaces.

    Args:
        bonus: the bonus object, rebuilt, if the saved wrapper had a custom one.
        objects: the options that are not plain values, such as an encoder, rebuilt.
    """
    state = _read(path)
    if [space_identity(observation_space), space_identity(action_space)] != state["spaces"]:
        spaces = [str(observation_space), str(action_space)]
        raise ValueError(f"{path} was saved for the spaces {state['spaces_text']}, but this environment has {spaces}")
    method = state["config"]["method"]
    if method is None and bonus is None:
        raise ValueError(f"{path} contains a custom bonus; rebuild it and pass bonus=: load(..., bonus=...)")
    if method is not None and bonus is not None:
        raise ValueError(f"{path} contains the method {method!r}, which is built from the file; remove bonus=...")
    if set(objects) != set(state["objects"]):
        wanted = ", ".join(f"{name}=..." for name in state["objects"]) or "no options"
        raise ValueError(f"{path} was saved with options that cannot be stored in a file: load(...) needs {wanted}")
    config = BonusConfig.from_dict({**state["config"], **objects})
    explorer = build_explorer(config, bonus, observation_space, action_space, num_envs, record_steps)
    saved = state["explorer"]
    if saved["num_envs"] != num_envs and not explorer.bonus.episodic:
        warnings.warn(
            f"{path} has the memory of {saved['num_envs']} environments, but there are {num_envs} here: the lifelong "
            "memory starts empty. Load with the same number to keep it",
            stacklevel=3,
        )
    try:
        explorer.load_state_dict(saved)
    except (RuntimeError, KeyError) as error:
        raise ValueError(f"{path} does not fit this bonus; rebuild the same bonus or encoder ({error})") from error
    return config, explorer


def _read(path: str | Path) -> dict[str, Any]:
    try:
        state = load_tensors(path)
    except DamagedFileError as error:
        raise DamagedFileError(f"{path} was not written by the save() of a reward wrapper ({error})") from error
    if not isinstance(state, dict) or state.get("format") != _FORMAT:
        raise DamagedFileError(f"{path} was not written by the save() of this version's reward wrappers")
    return state
