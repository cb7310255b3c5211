"""The cameras of `FloorPlanSim-v0`: each returns its part of one rendered image.

They have the names of habitat-sim's sensors, so that one configuration works with both simulators.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from e3b_gym.envs.habitat.lab import DepthSensor, RGBSensor, gym_spaces

Array = NDArray[Any]


class FloorPlanRGB(RGBSensor):  # type: ignore[misc]  # habitat-lab is untyped here
    """Colours, uint8 [height, width, 3]."""

    def _get_observation_space(self, *_: Any, **__: Any) -> Any:
        return gym_spaces.Box(0, 255, (self.config.height, self.config.width, 3), np.uint8)

    def get_observation(self, pictures: dict[str, Array]) -> Array:
        return pictures["rgb"]


class FloorPlanDepth(DepthSensor):  # type: ignore[misc]
    """Depth along the camera's axis, float32 [height, width, 1]; scaled to [0, 1] with `normalize_depth`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._range = np.float32(self.config.min_depth), np.float32(self.config.max_depth)
        self._normalize = bool(self.config.normalize_depth)

    def _get_observation_space(self, *_: Any, **__: Any) -> Any:
        low, high = (0.0, 1.0) if self.config.normalize_depth else (self.config.min_depth, self.config.max_depth)
        return gym_spaces.Box(low, high, (self.config.height, self.config.width, 1), np.float32)

    def get_observation(self, pictures: dict[str, Array]) -> Array:
        low, high = self._range
        depth = pictures["depth"][..., None]  # [height, width, 1], a new array, changed in place
        np.clip(depth, low, high, out=depth)
        if self._normalize:
            depth -= low
            depth *= np.float32(1 / (high - low))
        return depth


SENSORS: dict[str, Any] = {"HabitatSimRGBSensor": FloorPlanRGB, "HabitatSimDepthSensor": FloorPlanDepth}


def make_sensors(config: Any) -> list[Any]:
    agent = config.agents[config.agents_order[config.default_agent_id]]
    sensors = []
    for each in agent.sim_sensors.values():
        if each.type not in SENSORS:
            raise ValueError(f"this simulator has no sensor {each.type!r}; it has {', '.join(SENSORS)}")
        if each.height < 1 or each.width < 1:
            raise ValueError(f"a sensor must be at least 1 x 1 pixel, got {each.height} x {each.width}")
        sensors.append(SENSORS[each.type](config=each))
    return sensors


def camera_of(suite: Any) -> tuple[int, int, float, float]:
    """Returns (height, width, field of view, metres above the floor), which must be the same for all sensors, since one
    pass renders all of them."""
    cameras = {
        (each.config.height, each.config.width, float(each.config.hfov), float(each.config.position[1]))
        for each in suite.sensors.values()
    }
    if len(cameras) != 1:
        raise ValueError(f"the sensors of this simulator must share size, angle and position, got {sorted(cameras)}")
    return next(iter(cameras))
