"""Rooms: a small, fast world in which only exploration finds the reward.

A chain of rooms (3 x 3 floor each) is laid out by a random self-avoiding walk on a coarse grid and joined by
closed doors, anew in every episode. The agent starts in the first room; reaching the goal in the last room
pays +1 and ends the episode, nothing else pays. After `max_steps` steps the episode is truncated.

Actions: 0 up, 1 right, 2 down, 3 left, 4 open: opens every closed door in the four neighbouring cells, for
good. Walls and closed doors block a move; a blocked move passes the time.

Observation (Dict), or with `flat=True` the same as one float32 vector of one-hots and bits, as MLPs like it:
    view     [7, 7] uint8 tiles around the agent, who is in the centre cell; walls do not hide what is behind:
             0 nothing, 1 floor, 2 wall, 3 closed door, 4 open door, 5 goal
    position [2] x and y on the map, from the top left
    clock    with `clock=True`: [10] bits of the number of steps taken, the lowest first. No action touches
             it, yet it makes every observation of an episode new: counting whole observations is useless
    noise    with `noise=n`: [n] fair random bits, drawn anew at every step

Worlds live in arrays and are advanced by compiled loops; a single env is a batch of one. World i of a batch
seeded with s is the single env seeded with s + i, episode after episode. A seed fixes the layouts whatever
the options `clock`, `noise` and `flat` are.
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

from e3b_gym.envs.rooms._worlds import (
    ACTIONS,
    RENDER_MODES,
    Array,
    Layout,
    Observation,
    RoomsConfig,
    Worlds,
    default_max_steps,
)

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
    """World i's own observation out of a batch, as a copy."""
    if isinstance(observations, dict):
        return {name: part[i].copy() for name, part in observations.items()}
    return np.array(observations[i])


def _check_render_mode(render_mode: str | None) -> None:
    if render_mode is not None and render_mode not in RENDER_MODES:
        raise ValueError(f"unknown render_mode {render_mode!r}; choose from {', '.join(RENDER_MODES)} or None")


class RoomsEnv(gymnasium.Env[Observation, Any]):
    """One world. `info["is_success"]` comes with the last step of an episode."""

    def __init__(self, render_mode: str | None = None, **options: Any) -> None:
        _check_render_mode(render_mode)
        self.config = RoomsConfig(**options)
        self.metadata = {"render_modes": list(RENDER_MODES), "render_fps": 10}
        self.render_mode = render_mode
        self.observation_space = self.config.observation_space()
        self.action_space = spaces.Discrete(len(ACTIONS))
        self._worlds = Worlds(1, self.config)
        self._in_episode = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        self._worlds.seed([seed])
        self._worlds.begin(self._worlds.everyone)
        self._in_episode = True
        return _row(self._worlds.observe(), 0), {}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        if not self._in_episode:
            raise ResetNeeded("no episode is running; call reset() before step()")
        reward, terminated, truncated = self._worlds.advance(np.array([action]))
        self._in_episode = not (terminated[0] or truncated[0])
        info = {} if self._in_episode else {"is_success": bool(terminated[0])}
        observation = _row(self._worlds.observe(), 0)
        return observation, float(reward[0]), bool(terminated[0]), bool(truncated[0]), info

    def layout(self) -> Layout:
        """The full map with the agent's cell."""
        return self._worlds.layout(0)

    def render(self) -> Any:
        return self._worlds.render(0, self.render_mode)


class RoomsVectorEnv(VectorEnv[Observation, Any, Any]):
    """N worlds, resetting in the step in which an episode ends (`AutoresetMode.SAME_STEP`).

    Infos are those of Gymnasium's SyncVectorEnv in that mode: where episodes ended, `final_obs` holds their
    last observations and `final_info` their `is_success`, with masks (`_final_obs`, ...); else nothing.
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
        self._worlds = Worlds(num_envs, self.config)
        self._in_episode = False

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begins a new episode everywhere; an int seeds world i with seed + i, a sequence gives each its own.

        A world that gets no seed continues its random stream. `options` are not used.
        """
        if seed is None:
            seed = [None] * self.num_envs
        elif isinstance(seed, int | np.integer):
            seed = [int(seed) + i for i in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ValueError(f"got {len(seed)} seeds for {self.num_envs} worlds; give one int or one seed for each")
        self._worlds.seed(seed)
        self._worlds.begin(self._worlds.everyone)
        self._in_episode = True
        return self._worlds.observe(), {}

    def step(self, actions: Any) -> tuple[Observation, Array, Array, Array, dict[str, Any]]:
        if not self._in_episode:
            raise ResetNeeded("no episode is running; call reset() before step()")
        reward, terminated, truncated = self._worlds.advance(np.asarray(actions))
        observations = self._worlds.observe()
        ended = terminated | truncated
        infos: dict[str, Any] = {}
        if ended.any():
            infos = self._final_infos(observations, ended, terminated)
            self._worlds.begin(ended)
            self._worlds.observe_into(observations, ended)
        return observations, reward, terminated, truncated, infos

    def _final_infos(self, observations: Observation, ended: Array, terminated: Array) -> dict[str, Any]:
        final_obs = np.full(self.num_envs, None, dtype=object)
        for i in np.flatnonzero(ended):
            final_obs[i] = _row(observations, i)
        final_info = {"is_success": terminated.copy(), "_is_success": ended.copy()}
        masks = {"_final_obs": ended.copy(), "_final_info": ended.copy()}
        return {"final_obs": final_obs, "final_info": final_info, **masks}

    def layout(self, i: int) -> Layout:
        """The full map of world i with its agent's cell."""
        return self._worlds.layout(i)

    def render(self) -> tuple[Any, ...] | None:
        if self.render_mode is None:
            return None
        return tuple(self._worlds.render(i, self.render_mode) for i in range(self.num_envs))


@dataclass(frozen=True)
class RoomsTask:
    """What the registry says about an id."""

    rooms: int
    max_steps: int
    kind: str = "navigation"
    actions: tuple[str, ...] = ACTIONS
    source: str = "made for this library"


TASKS = {f"Rooms-K{rooms}-v0": RoomsTask(rooms, default_max_steps(rooms)) for rooms in range(3, 11)}
TASKS["Rooms-v0"] = TASKS["Rooms-K4-v0"]


def _options_for(id: str, options: dict[str, Any]) -> dict[str, Any]:
    """Joins an id's fixed settings with the caller's; names what does not fit."""
    if id not in TASKS:
        raise ValueError(f"unknown task {id!r}; choose from {', '.join(sorted(TASKS))}")
    allowed = {"max_steps", "clock", "noise", "flat", "render_mode"}
    if id == "Rooms-v0":
        allowed.add("rooms")
    if unknown := sorted(set(options) - allowed):
        hint = "; the id fixes the rooms, use Rooms-v0 to choose them" if "rooms" in unknown else ""
        raise ValueError(f"{id} has no option {', '.join(unknown)}; choose from {', '.join(sorted(allowed))}{hint}")
    return {"rooms": TASKS[id].rooms, **options}


def make(id: str, **options: Any) -> RoomsEnv:
    """One world by id, e.g. `make("Rooms-K5-v0", clock=True, noise=256, flat=True, render_mode="ansi")`."""
    return RoomsEnv(**_options_for(id, options))


def make_vec(id: str, num_envs: int, **options: Any) -> RoomsVectorEnv:
    """`num_envs` worlds by id, with the options of `make`."""
    return RoomsVectorEnv(num_envs, **_options_for(id, options))
