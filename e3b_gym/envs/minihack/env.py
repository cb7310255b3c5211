"""MiniHack tasks as a Gymnasium environment that follows the API exactly.

A seed fixes the whole sequence of episodes, a time limit is reported as `truncated`, terminal observations are the
true ones (or are flagged), and the caller owns what `reset` and `step` return. `game` has the rules, `level` the
levels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, SupportsInt, get_args

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from nle import nethack  # type: ignore[import-untyped]
from nle.env.base import NLE_SPACE_ITEMS  # type: ignore[import-untyped]
from numpy.typing import NDArray

from e3b_gym.envs.minihack import render
from e3b_gym.envs.minihack.crop import crop_into
from e3b_gym.envs.minihack.game import CONTROL_KEYS, Game
from e3b_gym.envs.minihack.tasks import TASKS, Layout, Task, with_layout
from e3b_gym.options import Bound, Count, WholeNumber, check_fields

DEFAULT_KEYS = ("glyphs", "blstats", "message")
STONE = int(nethack.GLYPH_CMAP_OFF)
"""The glyph of solid stone: what NetHack shows where there is nothing to see."""
Glyph = Annotated[int, Bound(lambda value: 0 <= value < nethack.MAX_GLYPH, f"a glyph, 0 to {nethack.MAX_GLYPH - 1}")]

RENDER_MODES = ("ansi", "rgb_array")
RENDER_KEYS = ("tty_chars", "tty_colors")
_SECRET_KEYS = {"internal", "program_state", "misc"}  # state of the program, not of the game


@dataclass(frozen=True)
class Options:
    """Options of a MiniHack environment, single or vector."""

    observation_keys: Sequence[str] = DEFAULT_KEYS
    """NLE observations to return; "chars", "colors", "tty_chars", "inv_strs" and so on are possible too."""
    crop_size: int | tuple[int, int] | None = 9
    """Side, or (height, width), of the `glyphs_crop` around the hero; 0 or None for no crop."""
    crop_pad: Glyph = STONE
    """Glyph outside the map. The default is solid stone; MiniHack's is 0, which is also the glyph of a giant ant."""
    max_episode_steps: Count | None = None
    """Steps until `truncated`; None for the task's own limit."""
    level_pool: WholeNumber = 0
    """For levels drawn by MiniGrid: 0 compiles a new level for every episode; k > 0 compiles one for each of the first
    k episodes after a seed and then draws among those k, which makes resets several times faster."""
    layout: Layout = "standard"
    """Levels of the MultiRoom tasks. "standard": MiniHack 1.0's grid of 76x21, as many rooms as the id says.
    "authors": as the paper's authors had them, a grid of 25x25 of which levels higher than NetHack's 21 rows are drawn
    again, and six rooms where the id says four."""
    render_mode: str | None = None
    """None, "ansi" (coloured text) or "rgb_array"."""

    def __post_init__(self) -> None:
        known = [key for key, _ in NLE_SPACE_ITEMS if key not in _SECRET_KEYS]
        keys = self.observation_keys if isinstance(self.observation_keys, (list, tuple)) else ()
        if not keys or any(key not in known for key in keys):
            raise ValueError(f"observation_keys={self.observation_keys!r}: choose some of {', '.join(known)}")
        if self.crop_size and not _is_crop_size(self.crop_size):
            raise ValueError(f"crop_size={self.crop_size!r}: give a positive int, (height, width), or 0 for no crop")
        if self.layout not in get_args(Layout):
            raise ValueError(f"layout={self.layout!r}: choose one of {', '.join(get_args(Layout))}")
        if self.render_mode is not None and self.render_mode not in RENDER_MODES:
            raise ValueError(f"render_mode={self.render_mode!r}: choose None or one of {', '.join(RENDER_MODES)}")
        check_fields(self)

    @property
    def crop_shape(self) -> tuple[int, ...]:
        """(height, width) of the crop; empty without one."""
        if not self.crop_size:
            return ()
        return (self.crop_size, self.crop_size) if isinstance(self.crop_size, int) else tuple(self.crop_size)

    def observation_space(self) -> spaces.Dict:
        """The space of one environment's observations."""
        nle_spaces = dict(NLE_SPACE_ITEMS)
        entries: dict[str, spaces.Space[Any]] = {key: nle_spaces[key] for key in self.observation_keys}
        if self.crop_shape:
            entries["glyphs_crop"] = spaces.Box(0, nethack.MAX_GLYPH, self.crop_shape, np.int16)
        return spaces.Dict(entries)

    def new_buffers(self, num_envs: int) -> dict[str, NDArray[Any]]:
        """Arrays [N, ...] for everything that N games write: observations, what the game loop reads, and the
        screen if drawn.
        """
        keys = {*self.observation_keys, *CONTROL_KEYS}
        keys |= {"glyphs"} if self.crop_shape else set()
        keys |= set(RENDER_KEYS) if self.render_mode else set()
        shapes = nethack.OBSERVATION_DESC
        return {key: np.zeros((num_envs, *shapes[key]["shape"]), shapes[key]["dtype"]) for key in sorted(keys)}

    def new_game(self, task: Task, buffers: Mapping[str, NDArray[Any]], index: int) -> Game:
        """A game that writes into row `index` of the buffers."""
        rows = {key: array[index] for key, array in buffers.items()}
        return Game(task, rows, self.max_episode_steps or task.max_steps, self.level_pool)

    def draw(self, buffers: Mapping[str, NDArray[Any]], index: int) -> Any:
        """The picture of row `index` in the chosen render mode, or None without one."""
        if self.render_mode is None:
            return None
        picture = render.ansi if self.render_mode == "ansi" else render.rgb_array
        return picture(buffers["tty_chars"][index], buffers["tty_colors"][index])


def _is_crop_size(size: Any) -> bool:
    sides = (size, size) if isinstance(size, int) else size
    return isinstance(sides, tuple) and len(sides) == 2 and all(isinstance(side, int) and side > 0 for side in sides)


def find_task(task: str | Task) -> Task:
    """The task of an id; a `Task` passes through, so that variants can be made with `dataclasses.replace`."""
    if isinstance(task, Task):
        return task
    if task not in TASKS:
        raise ValueError(f"unknown MiniHack id {task!r}; choose from {', '.join(TASKS)}")
    return TASKS[task]


class MiniHackEnv(gymnasium.Env[dict[str, NDArray[Any]], Any]):
    """One MiniHack task.

    When an episode ends, `info["is_success"]` says whether it reached the goal, and
    `info["final_observation_valid"]` is False if NetHack has wiped the screen (death), True otherwise.

    Args:
        task: An id of `TASKS`, or your own `Task`.
        **options: The fields of `Options`.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": list(RENDER_MODES), "render_fps": 10}  # type: ignore[misc]

    def __init__(self, task: str | Task, **options: Any) -> None:
        self.options = Options(**options)
        self.task = with_layout(find_task(task), self.options.layout)
        self.render_mode = self.options.render_mode
        self.observation_space = self.options.observation_space()
        self.action_space = spaces.Discrete(len(self.task.actions))
        self._arguments = (task, options)
        self._buffers = self.options.new_buffers(1)
        self._game = self.options.new_game(self.task, self._buffers, 0)
        self._started = self._running = False

    def __reduce__(self) -> Any:
        """Pickles the arguments: a copy is a new environment of the same task, not the same game."""
        return _rebuild, self._arguments

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Starts the next episode; with a seed, the first episode of the seed's sequence.

        `options` are not used.
        """
        self._check_open()
        super().reset(seed=seed)
        if seed is not None:
            self._game.forget_levels()
        self._game.reset(self.np_random)
        self._started = self._running = True
        return self._observation(), {}

    def step(self, action: SupportsInt) -> tuple[dict[str, NDArray[Any]], float, bool, bool, dict[str, Any]]:
        """Plays one action."""
        self._check_open()
        if not self._running:
            raise ResetNeeded("the episode is over or has not begun; call reset() before step()")
        if not 0 <= int(action) < len(self.task.actions):
            raise ValueError(f"action {action} is outside 0..{len(self.task.actions) - 1} of {self.task.id}")
        reward, end = self._game.step(int(action))
        self._running = end is None
        info = {} if end is None else {"is_success": end == "success", "final_observation_valid": end != "death"}
        return self._observation(), reward, end in ("success", "death"), end == "timeout", info

    def render(self) -> Any:
        """Returns the terminal in the render mode; None without one."""
        if not self._started:
            raise ResetNeeded("nothing to render yet; call reset() first")
        return self.options.draw(self._buffers, 0)

    def close(self) -> None:
        """Ends the game and deletes its files; may be called twice."""
        self._game.close()

    def _check_open(self) -> None:
        if not self._game.close.alive:
            raise ClosedEnvironmentError(f"this {self.task.id} is closed; make a new one")

    def _observation(self) -> dict[str, NDArray[Any]]:
        observation = {key: self._buffers[key][0].copy() for key in self.options.observation_keys}
        if self.options.crop_shape:
            crop = np.empty((1, *self.options.crop_shape), np.int16)
            blstats = self._buffers["blstats"]
            crop_into(self._buffers["glyphs"], blstats[:, 0], blstats[:, 1], self.options.crop_pad, crop)
            observation["glyphs_crop"] = crop[0]
        return observation


def _rebuild(task: str | Task, options: dict[str, Any]) -> MiniHackEnv:
    return MiniHackEnv(task, **options)
