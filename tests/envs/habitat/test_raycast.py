"""The renderer: equal to its reference, and true to the geometry it draws."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from e3b_gym.envs.habitat.homes import home
from e3b_gym.envs.habitat.navigation import path_finder
from e3b_gym.envs.habitat.plan import CELL
from e3b_gym.envs.habitat.raycast import render
from e3b_gym.envs.habitat.raycast_reference import render_reference

EYE = 1.25


def somewhere(number: int, seed: int) -> tuple[float, float]:
    point = path_finder(number, 0.1, 1.5).get_random_navigable_point(np.random.default_rng(seed))
    return float(point[0]), float(point[2])


@given(
    st.integers(0, 999),
    st.integers(0, 1000),
    st.floats(-7, 7) | st.sampled_from([0.0, np.pi / 2, np.pi, -np.pi / 2]),
    st.sampled_from([(48, 48, 90.0), (17, 40, 90.0), (33, 20, 60.0), (1, 1, 90.0)]),
    st.floats(0.3, 2.0),
)
@settings(deadline=None, max_examples=40)
def test_the_reference_renders_the_same_pixels(number, seed, heading, camera, eye) -> None:
    x, z = somewhere(number, seed)
    colours, depth = render(home(number).scene, x, eye, z, heading, *camera)
    colours_there, depth_there = render_reference(home(number).scene, x, eye, z, heading, *camera)
    np.testing.assert_array_equal(colours, colours_there)
    np.testing.assert_array_equal(depth, depth_there)


def test_the_paper_s_size_renders_the_same_pixels() -> None:
    x, z = somewhere(5, 0)
    for ours, theirs in zip(
        render(home(5).scene, x, EYE, z, 0.7, 256, 256, 90.0),
        render_reference(home(5).scene, x, EYE, z, 0.7, 256, 256, 90.0),
        strict=True,
    ):
        np.testing.assert_array_equal(ours, theirs)


@given(st.integers(0, 999), st.integers(0, 1000), st.floats(-7, 7))
@settings(deadline=None, max_examples=30)
def test_depth_is_how_far_the_ray_goes_before_it_enters_something(number, seed, heading) -> None:
    """Along the middle row, at eye height: cell by cell, from one line of the grid that the ray crosses to the next."""
    x, z = somewhere(number, seed)
    scene = home(number).scene
    _, depth = render(scene, x, EYE, z, heading, 1, 9, 90.0)
    right = (np.arange(9) - 4) / 4.5
    rows, columns = scene.cells.shape
    for column in range(9):
        ray_x = right[column] * np.cos(heading) - np.sin(heading)
        ray_z = -right[column] * np.sin(heading) - np.cos(heading)
        with np.errstate(all="ignore"):
            lines = [(np.arange(columns + 1) * CELL - x) / ray_x, (np.arange(rows + 1) * CELL - z) / ray_z]
        crossed = np.sort(np.concatenate([[0.0], *lines]))
        crossed = crossed[(crossed >= 0) & (crossed < 20)]  # [T]
        inside = (crossed[:-1] + crossed[1:]) / 2  # the middle of each piece of the ray, which is in one cell
        i, j = (((start + ray * inside) / CELL).astype(int) for start, ray in ((x, ray_x), (z, ray_z)))
        kinds = scene.cells[j.clip(0, rows - 1), i.clip(0, columns - 1)]
        enters = (scene.floor[kinds] >= EYE) | (scene.ceiling[kinds] <= EYE)
        through = enters & (np.diff(crossed) > 1e-5)  # a shorter piece touches a corner, and rounding decides
        assert depth[0, column] <= crossed[np.argmax(through)] + 1e-3
        assert np.abs(crossed[:-1][enters] - depth[0, column]).min() < 1e-3


def test_the_floor_is_where_perspective_says() -> None:
    """A row that looks down by slope s sees the floor at depth eye / s, unless something stands before it."""
    x, z = somewhere(12, 3)
    scene = home(12).scene
    _, depth = render(scene, x, EYE, z, 0.3, 64, 64, 90.0)
    slopes = (np.arange(64) - 31.5) / 32
    floor = EYE / slopes[40:]  # [rows]
    assert (depth[40:] <= floor[:, None] + 1e-4).all()
    assert (np.abs(depth[40:] - floor[:, None]) < 1e-4).mean() > 0.2


def test_turning_left_moves_what_is_seen_to_the_right() -> None:
    x, z = somewhere(7, 1)
    before, _ = render(home(7).scene, x, EYE, z, 0.0, 9, 301, 90.0)
    after, _ = render(home(7).scene, x, EYE, z, np.arctan(30 / 150.5), 9, 301, 90.0)
    centre = before[4, 150].astype(int)
    assert np.abs(after[4, 180].astype(int) - centre).max() <= 12  # the light is the same, the texel may not be


def test_homes_are_distinguished_by_their_looks() -> None:
    """Mean colours of what is seen spread widely over places: a network has something to go by."""
    seen = []
    for number in range(30):
        x, z = somewhere(number, 0)
        seen.append(render(home(number).scene, x, EYE, z, 1.0, 32, 32, 90.0)[0].reshape(-1, 3).mean(axis=0))
    assert np.std(seen, axis=0).min() > 20
