"""MiniHack's drawn levels are MiniGrid's, seed by seed, and so are the random numbers behind them."""

import numpy as np
import pytest
from gymnasium.utils import seeding
from hypothesis import given
from hypothesis import strategies as st
from minihack_oracle import copy_grid, minigrid_env

from e3b_gym.envs.minihack import TASKS, drawing, room_kernels
from e3b_gym.envs.minihack.level import level_source
from e3b_gym.envs.minihack.tasks import MultiRoom, StockLevel, with_layout

DRAWN = [task for task in TASKS.values() if not isinstance(task.level, StockLevel)]
N6, N10, N4_LOCKED = (TASKS[f"MiniHack-MultiRoom-{name}-v0"] for name in ("N6-Lava", "N10-OpenDoor", "N4-Locked"))


def seeds(count):
    return np.random.default_rng(0).integers(2**62, size=count).tolist()


def differences(task, count):
    """Seeds whose level is not MiniGrid's."""
    grid_env, draw = minigrid_env(task.level), level_source(task)
    found = []
    for seed in seeds(count):
        grid_env.reset(seed=seed)
        if draw(seed) != copy_grid(grid_env, task.level):
            found.append(seed)
    return found


@pytest.mark.parametrize("task", DRAWN, ids=lambda task: task.id)
def test_every_drawn_level_is_minigrids(task):
    assert differences(task, 12) == []


@pytest.mark.parametrize(
    "task", [N6, N10, N4_LOCKED, TASKS["MiniHack-LavaCrossingS19N13-v0"]], ids=lambda task: task.id
)
def test_hundreds_of_levels_of_the_papers_tasks_are_minigrids(task):
    assert differences(task, 300) == []


@pytest.mark.parametrize("task", [N6, N4_LOCKED], ids=lambda task: task.id)
def test_levels_of_the_authors_layout_are_minigrids(task):
    assert differences(with_layout(task, "authors"), 60) == []


def integers(seed, ranges):
    """One number of each range [low, low + count)."""
    for words in drawing._growing_words(seed):
        used = np.zeros(1, np.int64)
        drawn = [int(room_kernels.integers(words, used, low, low + count)) for low, count in ranges]
        if used[0] <= words.size:
            break
    return drawn


@given(
    seed=st.integers(0, 2**62),
    ranges=st.lists(st.tuples(st.integers(-100, 100), st.integers(1, 2**31 - 1)), min_size=1, max_size=300),
)
def test_integers_are_those_of_numpys_generator(seed, ranges):
    numpys = seeding.np_random(seed)[0]
    assert integers(seed, ranges) == [numpys.integers(low, low + count) for low, count in ranges]


def test_ranges_for_which_numpy_skips_words_skip_the_same():
    count = 3 * 2**29 + 1  # every fourth word is skipped
    expected = seeding.np_random(1)[0].integers(0, count, size=2000).tolist()
    assert integers(1, [(0, count)] * 2000) == expected


def test_levels_are_the_same_when_the_first_words_do_not_suffice(monkeypatch):
    expected = [level_source(N10)(seed) for seed in range(20)]
    monkeypatch.setattr(drawing, "_NUMBERS", 3)
    assert [level_source(N10)(seed) for seed in range(20)] == expected


def test_a_level_says_what_it_holds():
    drawn = level_source(N6)(0)
    assert drawn.rows[drawn.start[1]][drawn.start[0]] == drawn.rows[drawn.goal[1]][drawn.goal[0]] == "."
    assert [drawn.rows[y][x] for x, y in drawn.doors] == ["+"] * 5
    assert len({len(row) for row in drawn.rows}) == 1
    assert isinstance(N6.level, MultiRoom)
