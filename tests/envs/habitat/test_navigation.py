"""Where one can stand and go: against geometry worked out by hand and against properties that distances have."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from e3b_gym.envs.habitat.navigation import SQUARE, FloorPlanPathFinder, path_finder

SEEDS = st.integers(0, 10_000)


def room_with_wall() -> FloorPlanPathFinder:
    """4 m x 4 m, and a wall at x = 2 m that leaves 1 m free at large z."""
    walkable = np.zeros((82, 82), bool)
    walkable[1:-1, 1:-1] = True
    walkable[:61, 41] = False
    return FloorPlanPathFinder(walkable)


def length(path: list[np.ndarray]) -> float:
    return sum(math.dist(a, b) for a, b in itertools.pairwise(path))


def test_a_free_way_is_straight() -> None:
    path = room_with_wall().find_path([0.5, 0, 0.6], [1.7, 0, 3.8])
    assert len(path) == 2
    assert length(path) == pytest.approx(math.hypot(1.2, 3.2), abs=1e-5)


def test_a_way_around_a_wall_touches_its_end() -> None:
    path = room_with_wall().find_path([1.0, 0, 1.0], [3.0, 0, 1.0])
    end_of_wall = 61 * SQUARE
    shortest = 2 * math.hypot(1.0, end_of_wall - 1.0)
    assert shortest - 0.1 <= length(path) <= 1.03 * shortest
    assert path[0] == pytest.approx([1, 0, 1])
    assert path[-1] == pytest.approx([3, 0, 1])


def test_no_way_leads_into_walls() -> None:
    finder = room_with_wall()
    assert finder.find_path([1.0, 0, 1.0], [2.06, 0, 1.0]) == []
    assert finder.find_path([-5.0, 0, 1.0], [1.0, 0, 1.0]) == []


# A path along the eight directions of the grid, before it is straightened, is at most so many times the shortest one.
EIGHT_DIRECTIONS = 1 / math.cos(math.pi / 8)


@given(st.integers(0, 999), SEEDS)
@example(458, 0)  # the path back is 6.7 % longer: it is straightened around other corners
@settings(deadline=None, max_examples=25)
def test_distances_are_distances(number: int, seed: int) -> None:
    finder = path_finder(number, 0.1, 1.5)
    rng = np.random.default_rng(seed)
    a, b, c = (finder.get_random_navigable_point(rng) for _ in range(3))
    ab, ba, bc, ac = (length(finder.find_path(p, q)) for p, q in ((a, b), (b, a), (b, c), (a, c)))
    assert ab >= math.dist(a, b) - 1e-4
    assert max(ab, ba) <= EIGHT_DIRECTIONS * min(ab, ba) + 0.1
    assert ac <= EIGHT_DIRECTIONS * (ab + bc) + 0.1
    for point in finder.find_path(a, b):
        assert finder.is_navigable(point)


@given(st.integers(0, 999), SEEDS, st.floats(0, math.tau))
@settings(deadline=None, max_examples=40)
def test_a_step_stays_on_the_floor_and_goes_no_farther_than_it_should(number: int, seed: int, angle: float) -> None:
    finder = path_finder(number, 0.1, 1.5)
    position = finder.get_random_navigable_point(np.random.default_rng(seed))
    for _ in range(30):
        wanted = position + 0.25 * np.array([math.sin(angle), 0, math.cos(angle)])
        slid, stopped = finder.try_step(position, wanted), finder.try_step_no_sliding(position, wanted)
        assert finder.is_navigable(slid)
        assert finder.is_navigable(stopped)
        assert math.dist(stopped, position) <= 0.25 + 1e-5
        assert math.dist(slid, position) <= 0.25 + 1e-5
        position = slid


def test_a_step_into_a_wall_at_an_angle_slides_along_it() -> None:
    finder = room_with_wall()
    start = np.array([1.9, 0, 1.0])
    end = start + 0.25 * np.array([math.cos(0.5), 0, math.sin(0.5)])
    slid = finder.try_step(start, end)
    assert slid[0] < 2.05
    assert slid[2] == pytest.approx(1.0 + 0.25 * math.sin(0.5), abs=1e-5)
    stopped = finder.try_step_no_sliding(start, end)
    assert stopped[2] < 1.0 + 0.25 * math.sin(0.5) - 0.01


def test_the_map_from_above_is_the_floor() -> None:
    finder = path_finder(4, 0.1, 1.5)
    np.testing.assert_array_equal(finder.get_topdown_view(SQUARE, 0.0), finder.walkable)
    coarse = finder.get_topdown_view(0.1, 0.0)
    assert coarse.mean() == pytest.approx(finder.walkable.mean(), abs=0.05)
    assert not finder.get_topdown_view(SQUARE, 2.0).any(), "no upper floor"
    with pytest.raises(ValueError, match="meters_per_pixel must be positive"):
        finder.get_topdown_view(0.0, 0.0)


def test_points_snap_to_the_floor() -> None:
    finder = room_with_wall()
    assert finder.snap_point([1.0, 0, 1.0]) == pytest.approx([1, 0, 1])
    snapped = finder.snap_point([2.06, 0, 1.0])
    assert finder.is_navigable(snapped)
    assert math.dist(snapped, [2.06, 0, 1.0]) < 0.06


def test_the_distance_to_an_obstacle_is_measured_to_its_edge() -> None:
    assert room_with_wall().distance_to_closest_obstacle([1.0, 0, 2.0]) == pytest.approx(0.95, abs=1e-6)
    assert room_with_wall().distance_to_closest_obstacle([1.0, 0, 2.0], 0.5) == 0.5
