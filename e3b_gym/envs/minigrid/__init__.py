"""MiniGrid (Chevalier-Boisvert et al. 2023): the ids of the paper and of prior work, RIDE, AGAC and NovelD.

Observation: Dict of `image` [7, 7, 3] uint8 (object, colour, state of the cells in front of the agent) and `direction`
(Discrete(4)).

Differs from stock MiniGrid: `mission`, a text that is constant in these tasks, is left out; reaching the goal at the
time limit is `terminated`, not `truncated`; `info["is_success"]` is True if the goal was reached; the MultiRoom ids of
prior work that MiniGrid does not register are registered; `render_mode="ansi"` draws the map as coloured text.
`MultiRoom-N4-S5-v0` has six rooms, as upstream; `-v1` has four.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from e3b_gym.envs.registry import Task, unknown
from e3b_gym.options import check

ACTIONS = ("left", "right", "forward", "pickup", "drop", "toggle", "done")

# Objects have indices up to 10 (the agent), colours up to 5, states up to 3.
LARGEST_SYMBOL = 10

# Characters of cells in text rendering, and terminal codes of colours.
SYMBOLS = {"wall": "#", "floor": ".", "key": "k", "ball": "o", "box": "b", "goal": "G", "lava": "~"}
AGENT = ">v<^"  # by direction
COLOURS = {"red": 31, "green": 32, "yellow": 33, "blue": 34, "purple": 35, "grey": 37}

# id without prefix and version -> rooms, largest room; MiniGrid registers none of them.
MISSING = {
    "MultiRoom-N6-S4": (6, 4),
    "MultiRoom-N7-S4": (7, 4),
    "MultiRoom-N7-S8": (7, 8),
    "MultiRoom-N10-S4": (10, 4),
    "MultiRoom-N10-S6": (10, 6),
    "MultiRoom-N10-S10": (10, 10),
    "MultiRoom-N12-S10": (12, 10),
}


def _tasks() -> dict[str, Task]:
    """The time limits are MiniGrid's: 20 steps per room, 30 room_size^2, 144 per visited room, 10 size^2.

    "Prior work" is RIDE, AGAC, NovelD and what followed them.
    """
    tasks: dict[str, Task] = {}

    def add(name: str, kind: str, max_steps: int, source: str, version: int = 0) -> None:
        tasks[f"MiniGrid-{name}-v{version}"] = Task(kind, ACTIONS, max_steps, source)

    add("MultiRoom-N2-S4", "rooms", 40, "MiniGrid")
    add("MultiRoom-N4-S5", "rooms", 120, "MiniGrid; six rooms, kept as upstream")
    add("MultiRoom-N4-S5", "rooms", 80, "MiniGrid; four rooms", version=1)
    add("MultiRoom-N6", "rooms", 120, "prior work; MiniGrid")
    for name, (rooms, _) in MISSING.items():
        add(name, "rooms", 20 * rooms, "prior work; MiniGrid's MultiRoomEnv")
    for size, rows in ((3, 1), (3, 2), (3, 3), (4, 3), (5, 3), (6, 3)):
        add(f"KeyCorridorS{size}R{rows}", "keys", 30 * size**2, "prior work; MiniGrid")
    mazes = {"1Dl": 2, "1Dlh": 2, "1Dlhb": 2, "2Dl": 4, "2Dlh": 4, "2Dlhb": 4, "1Q": 5, "2Q": 11, "Full": 25}
    for name, visited in mazes.items():
        add(f"ObstructedMaze-{name}", "keys", 144 * visited, "prior work; MiniGrid")
    for name in ("2Dlhb", "1Q", "2Q", "Full"):
        source = "MiniGrid; all doors placed before the keys"
        add(f"ObstructedMaze-{name}", "keys", 144 * mazes[name], source, version=1)
    for size in (5, 6, 8, 16):
        add(f"DoorKey-{size}x{size}", "keys", 10 * size**2, "MiniGrid")
    return tasks


TASKS = _tasks()


def make(
    id: str, *, image_only: bool = False, position: bool = False, mission: bool = False, **options: Any
) -> gymnasium.Env[Any, Any]:
    """Makes a MiniGrid environment.

    Args:
        id: Any id that MiniGrid registers, or one of `TASKS`.
        image_only: The observation is the image, not a Dict.
        position: Adds `position`, the agent's (x, y) on the map, which the `-position` methods count.
        mission: Keeps the mission text, for tasks in which it varies (Fetch, GoToDoor, ...).
        **options: Passed to MiniGrid: `render_mode` ("ansi" as well), `max_steps`, `agent_view_size`, `tile_size`, ...
    """
    import minigrid  # noqa: F401  # registers its ids

    _register_missing()
    if id not in gymnasium.registry:
        raise unknown(id)
    # By spec, because by id Gymnasium warns that -v0 is outdated; without the passive checker, which warns about the
    # text space that is dropped here and costs time at every step.
    as_text = options.get("render_mode") == "ansi"
    options |= {"render_mode": None} if as_text else {}
    stock = gymnasium.make(gymnasium.registry[id], disable_env_checker=True, **options)
    return GridView(stock, image_only=image_only, position=position, mission=mission, as_text=as_text)


def _register_missing() -> None:
    for name, (rooms, size) in MISSING.items():
        if f"MiniGrid-{name}-v0" not in gymnasium.registry:
            gymnasium.register(
                f"MiniGrid-{name}-v0",
                entry_point="minigrid.envs:MultiRoomEnv",
                kwargs={"minNumRooms": rooms, "maxNumRooms": rooms, "maxRoomSize": size},
            )


class GridView(gymnasium.Wrapper[Any, Any, Any, Any], gymnasium.utils.RecordConstructorArgs):
    """Selects the observation of a MiniGrid environment, and adds `info["is_success"]`."""

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        image_only: bool = False,
        position: bool = False,
        mission: bool = False,
        as_text: bool = False,
    ) -> None:
        image_only = check("image_only", image_only, bool)
        position = check("position", position, bool)
        mission = check("mission", mission, bool)
        if image_only and (position or mission):
            raise ValueError("image_only=True returns the image alone, without position or mission; choose one")
        gymnasium.utils.RecordConstructorArgs.__init__(
            self, image_only=image_only, position=position, mission=mission, as_text=as_text
        )
        super().__init__(env)
        self.metadata = {**env.metadata, "render_modes": [*env.metadata["render_modes"], "ansi"]}
        self._as_text = as_text
        if not isinstance(env.observation_space, spaces.Dict):
            raise ValueError(f"expected MiniGrid's Dict observation, got {env.observation_space}")
        stock = env.observation_space
        self._image_only = image_only
        self._position = position
        self._kept = ("image", "direction", "mission") if mission else ("image", "direction")
        parts: dict[str, spaces.Space[Any]] = {name: stock[name] for name in self._kept}
        # MiniGrid declares 0..255; SB3 then treats the 7 x 7 grid of symbols as an image and fails.
        parts["image"] = spaces.Box(0, LARGEST_SYMBOL, stock["image"].shape, np.uint8)
        if position:
            width, height = env.get_wrapper_attr("width"), env.get_wrapper_attr("height")
            parts["position"] = spaces.MultiDiscrete([width, height])
        self.observation_space = parts["image"] if image_only else spaces.Dict(parts)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return self._view(observation), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            info["is_success"] = bool(terminated and float(reward) > 0)
        return self._view(observation), float(reward), terminated, truncated and not terminated, info

    def _view(self, observation: dict[str, Any]) -> Any:
        if self._image_only:
            return observation["image"]
        view = {name: observation[name] for name in self._kept}
        if self._position:
            view["position"] = np.array(self.env.unwrapped.agent_pos, np.int64)  # type: ignore[attr-defined]
        return view

    @property
    def render_mode(self) -> str | None:  # type: ignore[override]  # an attribute in Env, a property in Wrapper
        return "ansi" if self._as_text else self.env.render_mode

    def render(self) -> Any:
        """Returns the whole map as text with terminal colours for "ansi", otherwise MiniGrid's image."""
        if not self._as_text:
            return self.env.render()
        unwrapped: Any = self.env.unwrapped
        rows = [[_draw(unwrapped.grid.get(x, y)) for x in range(unwrapped.width)] for y in range(unwrapped.height)]
        x, y = unwrapped.agent_pos
        rows[y][x] = f"\x1b[1;31m{AGENT[unwrapped.agent_dir]}\x1b[0m"
        return "\n".join(" ".join(row) for row in rows)


def _draw(cell: Any) -> str:
    if cell is None:
        return " "
    if cell.type == "door":
        symbol = "/" if cell.is_open else "L" if cell.is_locked else "+"
    else:
        symbol = SYMBOLS.get(cell.type, "?")
    return f"\x1b[{COLOURS[cell.color]}m{symbol}\x1b[0m"
