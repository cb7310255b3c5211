"""Renderer: colours and depth of a camera in a home, one column of pixels at a time.

The camera is level, so every column of pixels is a vertical plane. Its ray traverses the grid of cells (Amanatides and
Woo 1987) and reaches surfaces from near to far. Where the kind of cell changes, first the floor and the ceiling up to
there are painted, then the step up or down at the border. Rows from `high` to `low` are not painted yet; a wall paints
all of them. Every pixel is painted once.

Depth is measured along the camera's axis, as in habitat. `raycast_reference.py` computes the same pixel by pixel in
NumPy with the same arithmetic: the images are equal bit by bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from e3b_gym.compiling import cached_njit
from e3b_gym.envs.habitat.homes import FRAME, Scene
from e3b_gym.envs.habitat.materials import BANK, LEVELS, SIDE
from e3b_gym.envs.habitat.plan import CELL

Array = NDArray[Any]

# Brightness of surfaces, of 256: facing along x, along z, floors, ceilings; and its decrease per metre.
LIGHT_X, LIGHT_Z, LIGHT_FLOOR, LIGHT_CEILING = 216, 256, 236, 228
FADE, DIMMEST = 10.0, 140
FINEST_GRAIN = 1.5
"""Texels per pixel up to which the sharpest pattern is used; each level of detail doubles it."""
_MASK = SIDE - 1


def render(
    scene: Scene, x: float, y: float, z: float, heading: float, height: int, width: int, hfov: float
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Returns colours [height, width, 3] and depth [height, width] in metres.

    Args:
        scene: The home.
        x, y, z: Position of the camera in metres (y up), inside the home and not in a wall.
        heading: Radians to the left of -z, as seen from above.
        height, width: Size of the image in pixels.
        hfov: Horizontal field of view in degrees. Pixels are square.
    """
    rays, slopes, focal = camera(heading, height, width, hfov)
    colours = np.empty((height, width, 3), np.uint8)
    depth = np.empty((height, width), np.float32)
    _render(scene, BANK, x, y, z, rays, slopes, 1.0 / focal, colours, depth)
    return colours, depth


def camera(heading: float, height: int, width: int, hfov: float) -> tuple[Array, Array, float]:
    """Returns the ray of each column (x and z per metre of depth) [width, 2], the slope of each row [height], and the
    focal length in pixels; row 0 is the top.
    """
    focal = 0.5 * width / np.tan(0.5 * np.deg2rad(hfov))
    right = (np.arange(width) + 0.5 - 0.5 * width) / focal
    sine, cosine = np.sin(heading), np.cos(heading)
    rays = np.stack([right * cosine - sine, -right * sine - cosine], axis=1)  # [width, 2]
    slopes = (0.5 * height - 0.5 - np.arange(height)) / focal  # [height]
    return rays, slopes, float(focal)


@cached_njit()
def _paint(
    pixel: Array, scene: Scene, material: int, bank: Array, u: float, v: float, light: int, t: float, pixel_size: float
) -> None:
    """Paints one pixel of a surface at depth t; (u, v) is the position on the surface in metres."""
    density = scene.densities[material]
    grain = density * t * pixel_size  # texels per pixel
    level = 0
    while level < LEVELS - 1 and grain > FINEST_GRAIN:
        grain *= 0.5
        level += 1
    tone = bank[scene.patterns[material], level, np.int64(v * density) & _MASK, np.int64(u * density) & _MASK]
    light = 256 if scene.glows[material] else (light * max(256 - int(FADE * t), DIMMEST)) >> 8
    for i in range(3):
        pixel[i] = (scene.tones[material, tone, i] * light) >> 8


@cached_njit()
def _render(
    scene: Scene,
    bank: Array,
    x: float,
    y: float,
    z: float,
    rays: Array,
    slopes: Array,
    pixel_size: float,
    colours: Array,
    depth: Array,
) -> None:
    for column in range(len(rays)):
        ray_x, ray_z = rays[column, 0], rays[column, 1]
        i, j = np.int64(x / CELL), np.int64(z / CELL)
        step_x = 1 if ray_x > 0 else -1
        step_z = 1 if ray_z > 0 else -1
        # Depth at the next border along x and along z, and between two borders.
        next_x = next_z = pitch_x = pitch_z = np.inf
        if ray_x != 0:
            next_x = ((i + (1 if ray_x > 0 else 0)) * CELL - x) / ray_x
            pitch_x = CELL / abs(ray_x)
        if ray_z != 0:
            next_z = ((j + (1 if ray_z > 0 else 0)) * CELL - z) / ray_z
            pitch_z = CELL / abs(ray_z)
        high, low = 0, len(slopes)
        kind = scene.cells[j, i]
        while high < low:
            crosses_x = next_x <= next_z
            if crosses_x:
                t = next_x
                next_x += pitch_x
                i += step_x
            else:
                t = next_z
                next_z += pitch_z
                j += step_z
            entered = scene.cells[j, i]
            if entered == kind:
                continue
            m = scene.top[kind]
            rise = scene.floor[kind] - y
            while high < low and slopes[low - 1] < 0 and rise > slopes[low - 1] * t:
                low -= 1
                d = rise / slopes[low]
                _paint(colours[low, column], scene, m, bank, x + ray_x * d, z + ray_z * d, LIGHT_FLOOR, d, pixel_size)
                depth[low, column] = d
            m = scene.under[kind]
            rise = scene.ceiling[kind] - y
            while high < low and slopes[high] > 0 and rise < slopes[high] * t:
                d = rise / slopes[high]
                _paint(
                    colours[high, column], scene, m, bank, x + ray_x * d, z + ray_z * d, LIGHT_CEILING, d, pixel_size
                )
                depth[high, column] = d
                high += 1
            u = z + ray_z * t if crosses_x else x + ray_x * t
            light = LIGHT_X if crosses_x else LIGHT_Z
            ornament = scene.decor[entered]
            edge, frame = scene.decor_heights[ornament, 0], scene.decor_heights[ornament, 1]
            plain = scene.side[entered] if scene.side[entered] > 0 else scene.wall[kind]
            floor, ceiling = scene.floor[entered], scene.ceiling[entered]
            steps_up, steps_down = floor > scene.floor[kind], ceiling < scene.ceiling[kind]
            while high < low:
                v = y + slopes[low - 1] * t
                if steps_up and v <= floor:
                    low -= 1
                    row = low
                else:
                    v = y + slopes[high] * t
                    if not (steps_down and v >= ceiling):
                        break
                    row = high
                    high += 1
                m = plain
                if edge <= v < frame:  # an empty range where there is no decoration
                    m = scene.decor_materials[ornament, 1 if v < edge + FRAME or v >= frame - FRAME else 0]
                _paint(colours[row, column], scene, m, bank, u, v, light, t, pixel_size)
                depth[row, column] = t
            kind = entered
