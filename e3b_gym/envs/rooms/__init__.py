"""Rooms: a small, fast environment whose reward can be found only by exploration.

In every episode a random self-avoiding walk on a coarse grid gives a new chain of rooms (3 x 3 floor each), connected
by closed doors. The agent starts in the first room; reaching the goal in the last room gives reward 1 and ends the
episode; all other rewards are 0. After `max_steps` steps the episode is truncated.

Actions: 0 up, 1 right, 2 down, 3 left, 4 open, which opens every closed door in the four neighbouring cells; doors stay
open. Walls and closed doors block a move; a blocked move counts as a step.

Observation (Dict), or with `flat=True` one float32 vector of one-hots and bits, for MLPs:
    view     [7, 7] uint8 tiles around the agent, which is in the centre; walls do not hide what is behind:
             0 nothing, 1 floor, 2 wall, 3 closed door, 4 open door, 5 goal
    position [2] x and y on the map, from the top left
    clock    with `clock=True`: [10] bits of the number of steps, least significant first. No action affects it,
             but every observation of an episode is new, so counting whole observations is useless
    noise    with `noise=n`: [n] fair random bits, drawn at every step

The state of all environments is in arrays, stepped by compiled loops; a single environment is a batch of one.
Environment i of a batch with seed s is identical to a single environment with seed s + i, over all episodes. A seed
fixes the layouts for all values of the options `clock`, `noise` and `flat`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from e3b_gym.envs.rooms._state import (
    ACTIONS,
    RENDER_MODES,
    Array,
    Layout,
    Observation,
    RoomsConfig,
    RoomsState,
    default_max_steps,
)
from e3b_gym.envs.seeds import seeds_for

__all__ = [
    "ACTIONS",
    "TASKS",
    "Layout",
    "RoomsConfig",
    "RoomsEnv",
    "RoomsTask",
    "RoomsVectorEnv",
    "make",
    "make_vec",
]


def _row(observations: Observation, i: int) -> Observation:
    """Returns a copy of the observation of environment i."""
    if isinstance(observations, dict):
        return {name: part[i].copy() for name, part in observations.items()}
    return np.array(observations[i])


def _check_render_mode(render_mode: str | None) -> None:
    if render_mode is not None and render_mode not in RENDER_MODES:
        raise ValueError(f"unknown render_mode {render_mode!r}; choose from {', '.join(RENDER_MODES)} or None")


class RoomsEnv(gymnasium.Env[Observation, Any]):
    """One environment. The last step of an episode has `info["is_success"]`."""

    def __init__(self, render_mode: str | None = None, **options: Any) -> None:
        _check_render_mode(render_mode)
        self.config = RoomsConfig(**options)
        self.metadata = {"render_modes": list(RENDER_MODES), "render_fps": 10}
        self.render_mode = render_mode
        self.observation_space = self.config.observation_space()
        self.action_space = spaces.Discrete(len(ACTIONS))
        self._state = RoomsState(1, self.config)
        self._in_episode = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        self._state.seed([seed])
        self._state.begin(self._state.all_rows)
        self._in_episode = True
        return _row(self._state.observe(), 0), {}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        if not self._in_episode:
            raise ResetNeeded("no episode is running; call reset() before step()")
        reward, terminated, truncated = self._state.advance(np.array([action]))
        self._in_episode = not (terminated[0] or truncated[0])
        info = {} if self._in_episode else {"is_success": bool(terminated[0])}
        observation = _row(self._state.observe(), 0)
        return observation, float(reward[0]), bool(terminated[0]), bool(truncated[0]), info

    def layout(self) -> Layout:
        """Returns the full map and the agent's position."""
        return self._state.layout(0)

    def render(self) -> Any:
        return self._state.render(0, self.render_mode)


class RoomsVectorEnv(VectorEnv[Observation, Any, Any]):
    """N environments, which reset in the step that ends an episode (`AutoresetMode.SAME_STEP`).

    Infos are those of Gymnasium's SyncVectorEnv in that mode: for ended episodes `final_obs` has the terminal
    observations and `final_info` their `is_success`, with masks (`_final_obs`, ...); otherwise infos are empty.
    """

    def __init__(self, num_envs: int, render_mode: str | None = None, **options: Any) -> None:
        _check_render_mode(render_mode)
        if not isinstance(num_envs, int | np.integer) or num_envs < 1:
            raise ValueError(f"num_envs must be a whole number of at least 1, got {num_envs!r}")
        self.config = RoomsConfig(**options)
        self.num_envs = num_envs
        self.metadata = {"render_modes": list(RENDER_MODES), "autoreset_mode": AutoresetMode.SAME_STEP}
        self.render_mode = render_mode
        self.single_observation_space = self.config.observation_space()
        self.single_action_space = spaces.Discrete(len(ACTIONS))
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._state = RoomsState(num_envs, self.config)
        self._in_episode = False

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Starts a new episode in every environment.

        Args:
            seed: an int seeds environment i with seed + i; a sequence has one seed per environment. Without a seed, an
                environment continues its random stream.
            options: not used.
        """
        self._state.seed(seeds_for(seed, self.num_envs))
        self._state.begin(self._state.all_rows)
        self._in_episode = True
        return self._state.observe(), {}

    def step(self, actions: Any) -> tuple[Observation, Array, Array, Array, dict[str, Any]]:
        if not self._in_episode:
            raise ResetNeeded("no episode is running; call reset() before step()")
        reward, terminated, truncated = self._state.advance(np.asarray(actions))
        observations = self._state.observe()
        ended = terminated | truncated
        infos: dict[str, Any] = {}
        if ended.any():
            infos = self._final_infos(observations, ended, terminated)
            self._state.begin(ended)
            self._state.observe_into(observations, ended)
        return observations, reward, terminated, truncated, infos

    def _final_infos(self, observations: Observation, ended: Array, terminated: Array) -> dict[str, Any]:
        final_obs = np.full(self.num_envs, None, dtype=object)
        for i in np.flatnonzero(ended):
            final_obs[i] = _row(observations, i)
        final_info = {"is_success": terminated.copy(), "_is_success": ended.copy()}
        masks = {"_final_obs": ended.copy(), "_final_info": ended.copy()}
        return {"final_obs": final_obs, "final_info": final_info, **masks}

    def layout(self, i: int) -> Layout:
        """Returns the full map of environment i and its agent's position."""
        return self._state.layout(i)

    def render(self) -> tuple[Any, ...] | None:
        if self.render_mode is None:
            return None
        return tuple(self._state.render(i, self.render_mode) for i in range(self.num_envs))


@dataclass(frozen=True)
class RoomsTask:
    """One id of the suite; the fields are those of `registry.Task`."""

    rooms: int
    max_steps: int
    kind: str = "navigation"
    actions: tuple[str, ...] = ACTIONS
    source: str = "made for this library"


TASKS = {f"Rooms-K{rooms}-v0": RoomsTask(rooms, default_max_steps(rooms)) for rooms in range(3, 11)}
TASKS["Rooms-v0"] = TASKS["Rooms-K4-v0"]


def _options_for(id: str, options: dict[str, Any]) -> dict[str, Any]:
    """Returns the settings of an id together with the caller's options; raises ValueError for unknown options."""
    if id not in TASKS:
        raise ValueError(f"unknown task {id!r}; choose from {', '.join(sorted(TASKS))}")
    allowed = {"max_steps", "clock", "noise", "flat", "render_mode"}
    if id == "Rooms-v0" or options.get("rooms") == TASKS[id].rooms:
        allowed.add("rooms")
    if unknown := sorted(set(options) - allowed):
        hint = "; the id fixes the number of rooms, use Rooms-v0 to choose it" if "rooms" in unknown else ""
        raise ValueError(f"{id} has no option {', '.join(unknown)}; choose from {', '.join(sorted(allowed))}{hint}")
    return {"rooms": TASKS[id].rooms, **options}


def make(id: str, **options: Any) -> RoomsEnv:
    """Makes one environment, e.g. `make("Rooms-K5-v0", clock=True, noise=256, flat=True, render_mode="ansi")`."""
    return RoomsEnv(**_options_for(id, options))


def make_vec(id: str, num_envs: int, **options: Any) -> RoomsVectorEnv:
    """Makes `num_envs` environments with the options of `make`."""
    return RoomsVectorEnv(num_envs, **_options_for(id, options))
