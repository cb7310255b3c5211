"""Reference renderer in NumPy, pixel by pixel: slow and simple.

Every pixel has its own ray, which traverses the grid until it hits a surface. `raycast.py` paints whole columns from
near to far instead. Both use the same arithmetic, so the images agree bit by bit, which the tests check.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from e3b_gym.envs.habitat.homes import FRAME, Scene
from e3b_gym.envs.habitat.materials import BANK, LEVELS, SIDE
from e3b_gym.envs.habitat.plan import CELL
from e3b_gym.envs.habitat.raycast import (
    DIMMEST,
    FADE,
    FINEST_GRAIN,
    LIGHT_CEILING,
    LIGHT_FLOOR,
    LIGHT_X,
    LIGHT_Z,
    camera,
)

Array = NDArray[Any]


def render_reference(
    scene: Scene, x: float, y: float, z: float, heading: float, height: int, width: int, hfov: float
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Returns the same as `raycast.render`."""
    rays, slopes, focal = camera(heading, height, width, hfov)
    ray_x, ray_z = (np.repeat(rays[None, :, axis], height, axis=0).ravel() for axis in (0, 1))  # [pixels]
    slope = np.repeat(slopes[:, None], width, axis=1).ravel()  # [pixels]
    hits = _hits(scene, x, y, z, ray_x, ray_z, slope)
    colours = _shade(scene, 1.0 / focal, **hits)
    return colours.reshape(height, width, 3), hits["t"].reshape(height, width).astype(np.float32)


def _hits(scene: Scene, x: float, y: float, z: float, ray_x: Array, ray_z: Array, slope: Array) -> dict[str, Array]:
    """Returns for each pixel the depth t, the material, the position (u, v) on the surface in metres, and the light."""
    count = len(slope)
    hit = {
        "t": np.zeros(count),
        "material": np.zeros(count, np.int64),
        "u": np.zeros(count),
        "v": np.zeros(count),
        "light": np.zeros(count, np.int64),
    }
    i, j = np.full(count, int(x / CELL)), np.full(count, int(z / CELL))
    with np.errstate(divide="ignore", invalid="ignore"):  # rays along an axis never reach the other axis' borders
        next_x = np.where(ray_x == 0, np.inf, ((i + (ray_x > 0)) * CELL - x) / ray_x)
        next_z = np.where(ray_z == 0, np.inf, ((j + (ray_z > 0)) * CELL - z) / ray_z)
        pitch_x, pitch_z = CELL / np.abs(ray_x), CELL / np.abs(ray_z)
    open_ = np.arange(count)  # pixels whose rays have not hit a surface
    while len(open_):
        p = open_
        crosses_x = next_x[p] <= next_z[p]
        t = np.where(crosses_x, next_x[p], next_z[p])
        kind = scene.cells[j[p], i[p]]
        i[p] += np.where(crosses_x, np.where(ray_x[p] > 0, 1, -1), 0)
        j[p] += np.where(crosses_x, 0, np.where(ray_z[p] > 0, 1, -1))
        next_x[p] = np.where(crosses_x, next_x[p] + pitch_x[p], next_x[p])
        next_z[p] = np.where(crosses_x, next_z[p], next_z[p] + pitch_z[p])
        entered = scene.cells[j[p], i[p]]
        changes = entered != kind  # floor and ceiling are checked up to where the kind changes
        rises, falls = scene.floor[kind] - y, scene.ceiling[kind] - y
        on_floor = changes & (slope[p] < 0) & (rises > slope[p] * t)
        on_ceiling = changes & (slope[p] > 0) & (falls < slope[p] * t)
        v = y + slope[p] * t
        steps_up = (scene.floor[entered] > scene.floor[kind]) & (v <= scene.floor[entered])
        steps_down = (scene.ceiling[entered] < scene.ceiling[kind]) & (v >= scene.ceiling[entered])
        on_face = changes & ~on_floor & ~on_ceiling & (steps_up | steps_down)
        with np.errstate(divide="ignore", invalid="ignore"):
            d = np.where(on_floor, rises, falls) / slope[p]
        flat = on_floor | on_ceiling
        closed = flat | on_face
        hit["t"][p] = np.where(flat, d, t)
        with np.errstate(invalid="ignore"):
            along_x, along_z = x + ray_x[p] * hit["t"][p], z + ray_z[p] * hit["t"][p]
        hit["u"][p] = np.where(flat | ~crosses_x, along_x, along_z)
        hit["v"][p] = np.where(flat, along_z, v)
        surface = np.where(on_floor, scene.top[kind], scene.under[kind])
        hit["material"][p] = np.where(flat, surface, _face_material(scene, entered, kind, v))
        face_light = np.where(crosses_x, LIGHT_X, LIGHT_Z)
        hit["light"][p] = np.where(on_floor, LIGHT_FLOOR, np.where(on_ceiling, LIGHT_CEILING, face_light))
        open_ = p[~closed]
    return hit


def _face_material(scene: Scene, entered: Array, seen_from: Array, v: Array) -> Array:
    """Returns the material of the vertical surface at the border of the cells `entered`, at height v."""
    plain = np.where(scene.side[entered] > 0, scene.side[entered], scene.wall[seen_from])
    decor = scene.decor[entered]
    low, high = scene.decor_heights[decor].T
    is_frame = (v < low + FRAME) | (v >= high - FRAME)
    ornament = np.where(is_frame, scene.decor_materials[decor, 1], scene.decor_materials[decor, 0])
    return np.where((low <= v) & (v < high), ornament, plain)


def _shade(scene: Scene, pixel_size: float, t: Array, material: Array, u: Array, v: Array, light: Array) -> Array:
    """Returns colours, uint8 [pixels, 3]."""
    density = scene.densities[material]
    grain = density * t * pixel_size
    level = np.zeros(len(t), np.int64)
    for _ in range(LEVELS - 1):
        coarser = grain > FINEST_GRAIN
        level += coarser
        grain = np.where(coarser, grain * 0.5, grain)
    row, column = ((place * density).astype(np.int64) & (SIDE - 1) for place in (v, u))
    tone = BANK[scene.patterns[material], level, row, column]
    faded = (light * np.maximum(256 - (FADE * t).astype(np.int64), DIMMEST)) >> 8
    bright = np.where(scene.glows[material], 256, faded)[:, None]  # [pixels, 1]
    return np.asarray((scene.tones[material, tone].astype(np.int64) * bright) >> 8, np.uint8)
