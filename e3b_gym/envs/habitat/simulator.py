"""`FloorPlanSim-v0`: a simulator for habitat-lab whose scenes are the generated homes.

It has the interface and conventions of habitat's `Simulator` for one agent: metres, y up, forward along -z, rotations
as quaternions about y (counter-clockwise seen from above, so turning left is positive), depth along the camera's axis.
Scenes are named `<anything>/home-0007`. A forward step that hits an obstacle slides along it; `collided` is True
whenever the agent moves less than a full step.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from e3b_gym.envs.habitat.homes import SPLITS, Home, home
from e3b_gym.envs.habitat.lab import (
    Actions,
    AgentState,
    SensorSuite,
    Simulator,
    gym_spaces,
    quaternion,
    registry,
)
from e3b_gym.envs.habitat.navigation import FloorPlanPathFinder, path_finder
from e3b_gym.envs.habitat.raycast import render
from e3b_gym.envs.habitat.sensors import camera_of, make_sensors

NAME = "FloorPlanSim-v0"
Array = NDArray[Any]


def scene_name(number: int) -> str:
    """Returns the scene id of a home in the dataset."""
    return f"home-{number:04d}"


def scene_number(scene: str) -> int:
    """Returns the number of the home with this scene id.

    Raises:
        ValueError: There is no such home.
    """
    found = re.fullmatch(r"(?:.*/)?home-(\d{4})", scene)
    number = int(found[1]) if found else -1
    if not any(number in numbers for numbers in SPLITS.values()):
        raise ValueError(f"there is no scene {scene!r}; the homes are {scene_name(0)!r} to {scene_name(999)!r}")
    return number


@registry.register_simulator(name=NAME)
class FloorPlanSim(Simulator):  # type: ignore[misc]
    """One agent in one generated home."""

    def __init__(self, config: Any) -> None:
        self.habitat_config = config
        self._sensor_suite = SensorSuite(make_sensors(config))
        self._action_space = gym_spaces.Discrete(4)
        self._rng = np.random.default_rng(0)
        self._collided = False
        self._camera = camera_of(self._sensor_suite)
        self._read(config)

    def _read(self, config: Any) -> None:
        """Reads what every step needs from the config, which is slow to access."""
        self.habitat_config = config
        agent = config.agents[config.agents_order[config.default_agent_id]]
        self._forward = float(config.forward_step_size)
        self._turn = math.radians(config.turn_angle)
        self._slides = bool(config.habitat_sim_v0.allow_sliding)
        self._home = home(scene_number(config.scene))
        self._path_finder = path_finder(self._home.number, float(agent.radius), float(agent.height))
        if agent.is_set_start_state:
            self.set_agent_state(list(agent.start_position), list(agent.start_rotation))
        else:
            self._place(self._path_finder.get_random_navigable_point(self._rng), 0.0)

    def reconfigure(self, config: Any, episode: Any = None) -> None:
        """Moves the agent to the scene and the start given in the config."""
        self._read(config)

    def reset(self) -> Any:
        self._collided = False
        self._read(self.habitat_config)
        return self._look()

    def seed(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def step(self, action: int | None, *_: Any, **__: Any) -> Any:
        """Takes one action and returns the observations; None and stop do not move the agent."""
        self._collided = False
        if action == Actions.move_forward:
            self._walk()
        elif action == Actions.turn_left:
            self._place(self._position, self._heading + self._turn)
        elif action == Actions.turn_right:
            self._place(self._position, self._heading - self._turn)
        elif action is not None and action != Actions.stop:
            raise ValueError(f"unknown action {action!r}; {NAME} can stop, move forward, turn left and turn right")
        return self._look()

    def step_physics(self, seconds: float) -> None:
        """Does nothing: no object moves by itself."""

    def _walk(self) -> None:
        ahead = np.array([-math.sin(self._heading), 0.0, -math.cos(self._heading)])
        wanted = self._position + self._forward * ahead
        finder = self._path_finder
        move = finder.try_step if self._slides else finder.try_step_no_sliding
        reached = move(self._position, wanted)
        self._collided = math.dist(reached, self._position) < self._forward - 1e-4
        self._place(reached, self._heading)

    def _place(self, position: Array, heading: float) -> None:
        self._position = np.array(position, np.float32)
        self._heading = math.remainder(heading, math.tau)

    def _look(self) -> Any:
        return self._sensor_suite.get_observations(self._pictures())

    def _pictures(self) -> dict[str, Array]:
        height, width, hfov, above = self._camera
        x, y, z = (float(each) for each in self._position)
        colours, depth = render(self._home.scene, x, y + above, z, self._heading, height, width, hfov)
        return {"rgb": colours, "depth": depth}

    @property
    def sensor_suite(self) -> Any:
        return self._sensor_suite

    @property
    def action_space(self) -> Any:
        return self._action_space

    @property
    def home(self) -> Home:
        """The home that the agent is in."""
        return self._home

    @property
    def pathfinder(self) -> FloorPlanPathFinder:
        return self._path_finder

    @property
    def up_vector(self) -> Array:
        return np.array([0.0, 1.0, 0.0])

    @property
    def forward_vector(self) -> Array:
        return np.array([0.0, 0.0, -1.0])

    def previous_step_collided(self) -> bool:
        return self._collided

    def get_agent_state(self, agent_id: int = 0) -> Any:
        """Returns a copy of position [3] float32 and rotation (quaternion)."""
        rotation = quaternion.quaternion(math.cos(self._heading / 2), 0.0, math.sin(self._heading / 2), 0.0)
        return AgentState(self._position.copy(), rotation)

    def get_agent(self, agent_id: int) -> Any:
        """Returns an object with the agent's `state`."""
        return SimpleNamespace(state=self.get_agent_state(agent_id))

    def set_agent_state(
        self, position: Sequence[float], rotation: Any, agent_id: int = 0, reset_sensors: bool = True
    ) -> bool:
        """Moves the agent to a position.

        Args:
            position: [3]
            rotation: Quaternion, or its coefficients x, y, z, w; about y only.
            agent_id: Not used: there is one agent.
            reset_sensors: Not used: sensors always move with the agent.

        Raises:
            ValueError: The agent cannot stand there, or would look up or down.
        """
        x, y, z, w = (*rotation.imag, rotation.real) if isinstance(rotation, quaternion.quaternion) else rotation
        if abs(x) > 1e-3 or abs(z) > 1e-3 or math.hypot(y, w) < 1e-3:
            raise ValueError(f"rotation must be about the y axis (x, y, z, w = 0, sin, 0, cos), got {(x, y, z, w)}")
        if not self._path_finder.is_navigable(position):
            place = ", ".join(f"{each:.2f}" for each in position)
            raise ValueError(
                f"an agent cannot stand at ({place}) in {scene_name(self._home.number)!r}; "
                "pathfinder.snap_point finds the nearest place where it can"
            )
        self._place(np.array(position), 2 * math.atan2(y, w))
        return True

    def get_observations_at(
        self, position: Sequence[float], rotation: Any, keep_agent_at_new_pose: bool = False
    ) -> Any:
        """Returns the observations at a position; None where an agent cannot stand."""
        if not self.is_navigable(position):
            return None
        before = self._position, self._heading
        self.set_agent_state(position, rotation)
        seen = self._look()
        if not keep_agent_at_new_pose:
            self._place(*before)
        return seen

    def sample_navigable_point(self) -> list[float]:
        return [float(each) for each in self._path_finder.get_random_navigable_point(self._rng)]

    def is_navigable(self, point: Sequence[float]) -> bool:
        return self._path_finder.is_navigable(point)

    def distance_to_closest_obstacle(self, position: Sequence[float], max_search_radius: float = 2.0) -> float:
        return self._path_finder.distance_to_closest_obstacle(position, max_search_radius)

    def island_radius(self, position: Sequence[float]) -> float:
        """Returns the radius in metres of a circle with the area of the walkable floor, which is one island."""
        return math.sqrt(self._path_finder.navigable_area / math.pi) if self.is_navigable(position) else 0.0

    def get_straight_shortest_path_points(self, position_a: Any, position_b: Any) -> list[Array]:
        return self._path_finder.find_path(position_a, position_b)

    def geodesic_distance(self, position_a: Any, position_b: Any, episode: Any = None) -> float:
        """Returns the length in metres of the path to position_b, or to the nearest of several; infinite if none."""
        goals = position_b if np.ndim(position_b) == 2 else [position_b]
        return min((_length(self._path_finder.find_path(position_a, goal)) for goal in goals), default=math.inf)

    def render(self, mode: str = "rgb") -> Array:
        """Returns the current observation of one sensor."""
        seen = self._look()
        if mode not in seen:
            raise ValueError(f"no sensor is called {mode!r}; there are {', '.join(seen)}")
        picture: Array = seen[mode]
        return picture

    def close(self, destroy: bool = True) -> None:
        """Does nothing: the simulator holds no resources."""


def _length(path: list[Array]) -> float:
    if not path:
        return math.inf
    return float(sum(np.linalg.norm(b - a) for a, b in pairwise(path)))
