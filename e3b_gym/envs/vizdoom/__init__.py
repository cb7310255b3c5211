"""VizDoom MyWayHome: find the vest in a maze of rooms, from pixels (Pathak et al. 2017; Section 4.2 of the paper).

Dense starts anywhere in the maze (17 spots, any heading); Sparse and VerySparse start at one distant spot with a fixed
heading (a scripted player that knows the maze needs about 80 and 90 steps). Reaching the vest gives reward 1 and ends
the episode; every tic costs 0.0001; the time limit is 2100 tics (350 steps).

Observation: uint8 [4, 42, 42], the last four frames, oldest first; a frame is the maximum of the last two of six tics,
in gray, averaged down from 160x120. Channels come first, as PyTorch's convolutions and Stable-Baselines3's image check
expect. Rewards are summed over the six tics and not clipped.

Differs from stock ViZDoom: time limits are `truncated`; the terminal observation is the last screen that the engine
rendered, where stock returns zeros; seeds fix the whole sequence of episodes; nothing is written to the working
directory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from e3b_gym.envs.registry import Task
from e3b_gym.envs.vizdoom import engine as doom_engine
from e3b_gym.envs.vizdoom.wad import SPARSE, VERY_SPARSE, Spawn, with_fixed_spawn
from e3b_gym.options import Count, check

SPAWNS: dict[str, Spawn | None] = {
    "VizdoomMyWayHomeDense-v0": None,
    "VizdoomMyWayHomeSparse-v0": SPARSE,
    "VizdoomMyWayHomeVerySparse-v0": VERY_SPARSE,
}
# Each action presses the button of that name; ICM had three buttons and the action wait.
FIVE_BUTTONS = ("TURN_LEFT", "TURN_RIGHT", "MOVE_FORWARD", "MOVE_LEFT", "MOVE_RIGHT")
THREE_BUTTONS = ("WAIT", "MOVE_FORWARD", "TURN_LEFT", "TURN_RIGHT")
SKIP, STACK, SIDE, MAX_STEPS = 6, 4, 42, 350
SCREEN_HEIGHT, SCREEN_WIDTH = 120, 160
TIC_REWARD = -0.0001

TASKS = {
    id: Task("navigation", FIVE_BUTTONS, MAX_STEPS, "ICM, RIDE and the paper; ViZDoom's my_way_home.wad")
    for id in SPAWNS
}


def make(id: str, **options: Any) -> MyWayHome:
    """Makes one of the three variants; the options are those of `MyWayHome`, without `spawn`."""
    return MyWayHome(SPAWNS[id], **options)


class MyWayHome(gymnasium.Env[NDArray[np.uint8], np.int64]):
    """The MyWayHome environment. The engine starts at the first reset and stops at `close`.

    Args:
        spawn: Start of every episode; None: a random start.
        buttons: 5 for turning, walking and side steps (the paper), 3 for turning, walking and waiting (ICM).
        max_steps: Steps until truncation.
        render_mode: "rgb_array" for the engine's screen.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 6}  # noqa: RUF012  # Gymnasium's name and type

    def __init__(
        self,
        spawn: Spawn | None = None,
        buttons: Literal[3, 5] = 5,
        max_steps: int = MAX_STEPS,
        render_mode: str | None = None,
    ) -> None:
        if buttons not in (3, 5):
            raise ValueError(f"buttons must be 5 (the paper) or 3 (ICM), got {buttons!r}")
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode must be None or 'rgb_array', got {render_mode!r}")
        max_steps = check("max_steps", max_steps, Count)
        self.render_mode = render_mode
        self.action_names = FIVE_BUTTONS if buttons == 5 else THREE_BUTTONS
        self.action_space = spaces.Discrete(len(self.action_names))
        self.observation_space = spaces.Box(0, 255, (STACK, SIDE, SIDE), np.uint8)
        self.max_steps = max_steps
        self._spawn = spawn
        self._game: Any = None
        self._steps: int | None = None  # None outside an episode
        self._screen = np.zeros((SCREEN_HEIGHT, SCREEN_WIDTH), np.uint8)
        self._frames = np.zeros((STACK, SIDE, SIDE), np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        super().reset(seed=seed)
        if self._game is None:
            self._game = _start_game(self.action_names, self._spawn)
        self._game.set_seed(int(self.np_random.integers(2**31)))
        self._game.new_episode()
        self._steps = 0
        self._screen = self._game.get_state().screen_buffer
        self._frames = np.repeat(_shrink(self._screen)[None], STACK, axis=0)  # [4, 42, 42]
        return self._frames, {}

    def step(self, action: np.int64 | int) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        if self._steps is None:
            raise ResetNeeded("no episode is running; call reset() before step()")
        pressed = [name == self.action_names[action] for name in self.action_names if name != "WAIT"]
        reward = self._game.make_action(pressed, SKIP - 2)
        screens = []
        for _ in range(2):
            if not self._game.is_episode_finished():
                reward += self._game.make_action(pressed, 1)
            if state := self._game.get_state():  # None once the vest is reached
                screens.append(state.screen_buffer)
        if screens:
            self._screen = screens[-1]
            frame = _shrink(np.maximum(screens[0], screens[-1]))
        else:
            frame = self._frames[-1]
        self._frames = np.concatenate([self._frames[1:], frame[None]])  # a new array: the caller owns the old one
        self._steps += 1
        terminated = bool(self._game.is_episode_finished())
        truncated = not terminated and self._steps >= self.max_steps
        info = {"is_success": terminated} if terminated or truncated else {}
        if info:
            self._steps = None
        return self._frames, float(reward), terminated, truncated, info

    @property
    def position(self) -> tuple[float, float, float]:
        """x and y on the map and the heading in degrees, at the last tic in which the player was in the maze."""
        if self._game is None:
            raise ResetNeeded("there is no position before the first reset(); call reset()")
        from vizdoom import GameVariable

        x, y, angle = (
            self._game.get_game_variable(variable)
            for variable in (GameVariable.POSITION_X, GameVariable.POSITION_Y, GameVariable.ANGLE)
        )
        return x, y, angle

    def render(self) -> NDArray[np.uint8] | None:  # type: ignore[override]  # Gymnasium types it as a list, too
        if self.render_mode is None:
            return None
        return np.repeat(self._screen[..., None], 3, axis=2)

    def close(self) -> None:
        if self._game is not None:
            self._game.close()
            self._game = None
            self._steps = None


def _start_game(action_names: tuple[str, ...], spawn: Spawn | None) -> Any:
    """Starts the engine with the settings of the installed my_way_home.cfg, except for screen and time limit."""
    import vizdoom

    game = vizdoom.DoomGame()
    game.set_doom_map("map01")
    game.set_doom_skill(5)
    game.set_living_reward(TIC_REWARD)
    game.set_episode_start_time(10)  # by then the gun is drawn
    game.set_episode_timeout(0)  # counted here: the engine renders no screen after its own limit
    game.set_available_buttons([getattr(vizdoom.Button, name) for name in action_names if name != "WAIT"])
    game.set_mode(vizdoom.Mode.PLAYER)
    game.set_window_visible(False)
    game.set_render_hud(False)
    game.set_screen_format(vizdoom.ScreenFormat.GRAY8)
    game.set_screen_resolution(vizdoom.ScreenResolution.RES_160X120)
    wad = Path(vizdoom.scenarios_path, "my_way_home.wad").read_bytes()
    wad = wad if spawn is None else with_fixed_spawn(wad, spawn)
    doom_engine.start(game, wad, engine=Path(vizdoom.__file__).with_name("vizdoom"))
    return game


def _area_weights(source: int, target: int) -> NDArray[np.float32]:
    """Returns [target, source]: the share of each source pixel in each target pixel; rows sum to 1."""
    edges = np.linspace(0, source, target + 1)
    pixels = np.arange(source)
    overlap = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    weights: NDArray[np.float32] = (overlap.clip(0) * (target / source)).astype(np.float32)
    return weights


_ROWS = _area_weights(SCREEN_HEIGHT, SIDE)  # [42, 120]
_COLUMNS = _area_weights(SCREEN_WIDTH, SIDE).T.copy()  # [160, 42]


def _shrink(screen: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """[120, 160] -> [42, 42]; each pixel is the mean of the area that it covers."""
    small: NDArray[np.uint8] = np.rint(_ROWS @ screen.astype(np.float32) @ _COLUMNS).astype(np.uint8)
    return small
