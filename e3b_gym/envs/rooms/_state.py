"""The state of N Rooms environments in arrays, with settings, maps and rendering.

The compiled loops are in `_kernels.py`; this module has the arrays and the checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from e3b_gym.envs.rooms import _kernels as kernels
from e3b_gym.envs.rooms._kernels import MARGIN, PITCH, TILES, VIEW

ACTIONS = ("up", "right", "down", "left", "open")
CLOCK_BITS = 10
MAX_ROOMS = 32
RENDER_MODES = ("ansi", "rgb_array")
SYMBOLS = " .#+/G"  # by tile: void, floor, wall, closed door, open door, goal
AGENT_SYMBOL = "@"
PIXELS_PER_TILE = 8
COLOURS = np.array(
    [(0, 0, 0), (225, 222, 214), (105, 102, 98), (176, 94, 32), (231, 186, 128), (52, 160, 84)], np.uint8
)
AGENT_COLOUR = (33, 96, 196)

Array = NDArray[Any]
Observation = Array | dict[str, Array]


def default_max_steps(rooms: int) -> int:
    """Returns 100 steps for 4 rooms, 150 for 5, and so on."""
    return max(50, 50 * (rooms - 2))


@dataclass(frozen=True)
class RoomsConfig:
    """Options of the environment; invalid values raise ValueError."""

    rooms: int = 4
    """Number of rooms, 2 to 32."""
    max_steps: int | None = None
    """Steps until truncation; None: 50 for each room beyond the second, at least 50."""
    clock: bool = False
    """Add the number of steps as 10 bits."""
    noise: int = 0
    """Number of random bits to add."""
    flat: bool = False
    """One float32 vector instead of a Dict."""

    def __post_init__(self) -> None:
        self._check_integer("rooms", self.rooms, low=2, high=MAX_ROOMS)
        if self.max_steps is not None:
            self._check_integer("max_steps", self.max_steps, low=1)
        self._check_integer("noise", self.noise, low=0)
        for name in ("clock", "flat"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise ValueError(f"{name} must be True or False, got {getattr(self, name)!r}")

    @staticmethod
    def _check_integer(name: str, value: object, low: int, high: int | None = None) -> None:
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not whole or value < low or (high is not None and value > high):  # type: ignore[operator]
            allowed = f"at least {low}" if high is None else f"from {low} to {high}"
            raise ValueError(f"{name} must be a whole number {allowed}, got {value!r}")

    @property
    def time_limit(self) -> int:
        """Steps until truncation."""
        return default_max_steps(self.rooms) if self.max_steps is None else self.max_steps

    @property
    def side(self) -> int:
        """Height and width of the map in tiles; the coarse grid is `rooms` cells wide."""
        return PITCH * self.rooms + 1

    @property
    def flat_length(self) -> int:
        """Length of the flat observation."""
        return VIEW * VIEW * TILES + 2 * self.side + (CLOCK_BITS if self.clock else 0) + self.noise

    def observation_space(self) -> spaces.Space[Any]:
        """Returns the observation space of one environment."""
        if self.flat:
            return spaces.Box(0.0, 1.0, (self.flat_length,), np.float32)
        parts: dict[str, spaces.Space[Any]] = {
            "view": spaces.Box(0, TILES - 1, (VIEW, VIEW), np.uint8),
            "position": spaces.MultiDiscrete([self.side, self.side]),
        }
        if self.clock:
            parts["clock"] = spaces.MultiBinary(CLOCK_BITS)
        if self.noise:
            parts["noise"] = spaces.MultiBinary(self.noise)
        return spaces.Dict(parts)


@dataclass(frozen=True)
class Layout:
    """The full map of one environment, for rendering and scripted agents. The arrays are copies."""

    tiles: Array
    """[side, side] uint8, indexed [y, x]; at the agent's position, the tile below the agent."""
    agent: tuple[int, int]
    """x, y"""
    goal: tuple[int, int]
    """x, y"""


class RoomsState:
    """The state of N environments in arrays, used by the single and the vector environment."""

    def __init__(self, num_envs: int, config: RoomsConfig) -> None:
        self.config = config
        self.all_rows = np.ones(num_envs, np.bool_)
        # without a seed, the streams start from the system's entropy
        self.streams = np.random.SeedSequence().generate_state(2 * num_envs, np.uint64).reshape(num_envs, 2)
        self.tiles = np.zeros((num_envs,) + (config.side + 2 * MARGIN,) * 2, np.uint8)
        self.agent = np.zeros((num_envs, 2), np.int64)
        self.elapsed = np.zeros(num_envs, np.int64)
        self._path = np.zeros((config.rooms, 2), np.int64)
        self._scratch = self._empty_parts()

    def _empty_parts(self) -> dict[str, Array]:
        """Returns new arrays for all parts of the observation in the order of spaces.Dict; disabled: width 0."""
        n, clock_bits = len(self.all_rows), CLOCK_BITS if self.config.clock else 0
        return {
            "clock": np.empty((n, clock_bits), np.int8),
            "noise": np.empty((n, self.config.noise), np.int8),
            "position": np.empty((n, 2), np.int64),
            "view": np.empty((n, VIEW, VIEW), np.uint8),
        }

    def seed(self, seeds: Sequence[int | None]) -> None:
        """Seeds the random streams of the environments that have a seed; the others continue."""
        for i, seed in enumerate(seeds):
            if seed is not None:
                if seed < 0:
                    raise ValueError(f"a seed must be a non-negative integer; got {seed}")
                kernels.seed_streams(np.array([int(seed) % 2**64], np.uint64), self.streams[i : i + 1])

    def begin(self, rows: Array) -> None:
        """Starts a new episode in each environment of `rows` [N] bool."""
        kernels.begin_episodes(rows, self.streams, self.tiles, self.agent, self.elapsed, self._path)

    def advance(self, actions: Array) -> tuple[Array, Array, Array]:
        """Steps all environments; returns reward, terminated and truncated, each [N]."""
        n, whole = len(self.all_rows), actions.dtype.kind in "iu"
        if not whole or actions.shape != (n,) or actions.min() < 0 or actions.max() >= len(ACTIONS):
            raise ValueError(f"actions must be {n} numbers from 0 to {len(ACTIONS) - 1}, got {actions!r}")
        reward, terminated, truncated = np.empty(n), np.empty(n, np.bool_), np.empty(n, np.bool_)
        state = self.tiles, self.agent, self.elapsed
        kernels.advance(
            actions.astype(np.int64, copy=False), *state, self.config.time_limit, reward, terminated, truncated
        )
        return reward, terminated, truncated

    def observe(self) -> Observation:
        """Returns the observations of all environments in new arrays."""
        if self.config.flat:
            out: Observation = np.empty((len(self.all_rows), self.config.flat_length), np.float32)
        else:
            out = {name: part for name, part in self._empty_parts().items() if part.shape[1]}
        self.observe_into(out, self.all_rows)
        return out

    def observe_into(self, out: Observation, rows: Array) -> None:
        """Writes the observations of `rows` [N] bool into `out`."""
        parts = {**self._scratch, **out} if isinstance(out, dict) else self._scratch
        clock, noise, position, view = parts.values()
        state = self.streams, self.tiles, self.agent, self.elapsed
        kernels.observe(rows, *state, view, position, clock, noise)
        if not isinstance(out, dict):
            kernels.flatten(rows, self.config.side, view, position, clock, noise, out)

    def layout(self, i: int) -> Layout:
        """Returns the current map of environment i."""
        if not self.tiles[i].any():
            raise ResetNeeded("there is no map yet; call reset() first")
        tiles = self.tiles[i, MARGIN:-MARGIN, MARGIN:-MARGIN].copy()
        goal_y, goal_x = np.argwhere(tiles == kernels.GOAL)[0]
        return Layout(tiles, (int(self.agent[i, 0]), int(self.agent[i, 1])), (int(goal_x), int(goal_y)))

    def render(self, i: int, mode: str | None) -> Any:
        """Returns the map of environment i as text or RGB image; None without a render mode."""
        layout = self.layout(i)
        x, y = layout.agent
        if mode == "ansi":
            symbols = np.array(list(SYMBOLS))[layout.tiles]
            symbols[y, x] = AGENT_SYMBOL
            return "\n".join("".join(row) for row in symbols)
        if mode == "rgb_array":
            colours = COLOURS[layout.tiles]
            colours[y, x] = AGENT_COLOUR
            return colours.repeat(PIXELS_PER_TILE, 0).repeat(PIXELS_PER_TILE, 1)
        return None
