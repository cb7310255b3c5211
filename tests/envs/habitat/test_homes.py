"""Homes: always the same from their numbers, in one piece, furnished without blocking anything, and each different."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e3b_gym.envs.habitat.homes import SPLITS, home
from e3b_gym.envs.habitat.navigation import SQUARE, walkable_squares
from e3b_gym.envs.habitat.plan import CELL, OUTER_WALL

NUMBERS = st.integers(0, 999)
RADIUS, HEIGHT = 0.1, 1.5


def test_there_are_1000_homes_in_three_splits_that_share_none() -> None:
    assert {name: len(numbers) for name, numbers in SPLITS.items()} == {"train": 800, "val": 100, "test": 100}
    assert sorted(number for numbers in SPLITS.values() for number in numbers) == list(range(1000))


@pytest.mark.parametrize("number", [-1, 1000])
def test_there_are_no_other_homes(number: int) -> None:
    with pytest.raises(ValueError, match=f"no home {number}; they are numbered 0 to 999"):
        home(number)


@given(NUMBERS)
@settings(deadline=None, max_examples=25)
def test_a_home_has_rooms_that_an_agent_can_all_reach(number: int) -> None:
    of = home(number)
    walkable = walkable_squares(of, RADIUS, HEIGHT)  # one connected part
    for room in of.plan.rooms:
        inside = walkable[2 * room.z0 : 2 * room.z1, 2 * room.x0 : 2 * room.x1]
        assert inside.mean() > 0.2, room
    for door in of.plan.doorways:
        assert walkable[door.z0 + door.z1, door.x0 + door.x1], "the middle of a door"


@given(NUMBERS)
@settings(deadline=None, max_examples=25)
def test_a_home_is_as_large_as_a_home_and_closed(number: int) -> None:
    of = home(number)
    assert all(8 <= side <= 14.1 for side in of.size)
    assert 5 <= len(of.plan.rooms) <= 25
    floor = of.scene.floor[of.scene.cells]  # [Z, X]
    assert floor.shape == (of.plan.depth, of.plan.width)
    for border in (floor[:OUTER_WALL], floor[-OUTER_WALL:], floor[:, :OUTER_WALL], floor[:, -OUTER_WALL:]):
        assert np.isinf(border).all()


@given(NUMBERS)
@settings(deadline=None, max_examples=10)
def test_a_number_fixes_the_home(number: int) -> None:
    again = home.__wrapped__(number)
    assert again.plan == home(number).plan
    assert again.furniture == home(number).furniture
    for ours, theirs in zip(again.scene, home(number).scene, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_homes_differ_and_have_doors_furniture_windows_and_pictures() -> None:
    some = [home(number) for number in range(0, 1000, 40)]
    assert len({of.scene.cells.tobytes() for of in some}) == len(some)
    for of in some:
        assert len(of.furniture) >= len(of.plan.rooms)
        assert len(of.plan.doorways) >= len(of.plan.rooms) - 1
        assert of.scene.glows[of.scene.decor_materials[:, 0]].any(), "a window"
        assert (~of.scene.glows[of.scene.decor_materials[1:, 0]]).any(), "a picture"
    assert np.mean([any(room.is_corridor for room in of.plan.rooms) for of in some]) > 0.4


def test_an_agent_of_any_radius_keeps_its_distance() -> None:
    """Against the definition: no blocked cell is nearer to the centre of a walkable square than the radius."""
    of = home(3)
    blocked = np.argwhere(of.scene.floor[of.scene.cells] > 0)  # [N, 2] z, x
    for radius in (0.1, 0.2):
        walkable = np.argwhere(walkable_squares(of, radius, HEIGHT))[::37]  # [M, 2]
        centre = (walkable + 0.5) * SQUARE
        nearest = np.clip(centre[:, None], blocked * CELL, (blocked + 1) * CELL)  # [M, N, 2]
        assert np.linalg.norm(nearest - centre[:, None], axis=2).min() >= radius - 1e-6


def test_a_tall_agent_does_not_fit_through_doors() -> None:
    of = home(3)
    assert walkable_squares(of, RADIUS, 2.2).sum() < 0.6 * walkable_squares(of, RADIUS, HEIGHT).sum()
