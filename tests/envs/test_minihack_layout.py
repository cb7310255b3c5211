"""`layout="authors"`: MultiRoom levels as the paper's authors had them."""

import numpy as np
import pytest
from minihack_player import fingerprint, read_level

from e3b_gym.envs import make, make_vec, minihack
from e3b_gym.envs.minihack import TASKS
from e3b_gym.envs.minihack.level import LevelError, compile_level, level_source, run_lev_comp
from e3b_gym.envs.minihack.tasks import MAP_HEIGHT, MultiRoom, with_layout

MULTIROOMS = [task for task in TASKS.values() if isinstance(task.level, MultiRoom)]
N4_LOCKED, N6, N10 = (f"MiniHack-MultiRoom-{name}-v0" for name in ("N4-Locked", "N6-Lava", "N10-OpenDoor"))


@pytest.mark.parametrize(("id", "rooms"), [(N4_LOCKED, 6), (N6, 6), (N10, 10), ("MiniHack-MultiRoom-N2-v0", 2)])
def test_levels_have_the_authors_rooms_on_their_grid(id, rooms):
    for seed in range(3):
        level = read_level(with_layout(TASKS[id], "authors"), seed)
        assert level.rooms() == rooms
        assert len(level.doors) == rooms - 1
        columns = [x for x, _ in level.floor]
        assert max(columns) - min(columns) < 25
        assert level.way(level.start, *level.stairs_down)


@pytest.mark.parametrize("task", MULTIROOMS, ids=lambda task: task.id)
def test_only_the_grid_and_the_rooms_of_n4_change(task):
    authors = with_layout(task, "authors")
    assert isinstance(task.level, MultiRoom)
    assert isinstance(authors.level, MultiRoom)
    assert (authors.level.width, authors.level.height) == (25, 25)
    assert authors.level.rooms == (6 if task.level.rooms == 4 else task.level.rooms)
    kept = ("max_room_size", "doors", "lava_walls", "monsters")
    assert [getattr(authors.level, name) for name in kept] == [getattr(task.level, name) for name in kept]
    assert (authors.id, authors.actions, authors.max_steps) == (task.id, task.actions, task.max_steps)
    assert with_layout(task, "standard") is task


def test_levels_that_do_not_fit_nethack_are_drawn_again(tmp_path):
    task = with_layout(TASKS[N10], "authors")
    levels = [level_source(task)(seed) for seed in range(40)]
    tall = [level for level in levels if len(level.rows) > MAP_HEIGHT]
    assert 20 <= len(tall) < 40  # about a quarter fits
    for level in tall[:3]:
        with pytest.raises(LevelError, match=r"lev_comp takes 21 rows"):
            compile_level(level, tmp_path)
        with pytest.raises(LevelError):  # and lev_comp says so itself
            run_lev_comp(level.description(), tmp_path)
    env = make(N10, layout="authors")
    maps = {env.reset(seed=0)[0]["glyphs"].tobytes()} | {env.reset()[0]["glyphs"].tobytes() for _ in range(7)}
    assert len(maps) == 8
    env.close()


@pytest.mark.parametrize("id", [N4_LOCKED, N6])
def test_a_seed_decides_the_episodes_of_either_layout(id):
    envs = [make(id, layout=layout) for layout in ("authors", "authors", "standard")]
    first, second, standard = (fingerprint(env, 5) for env in envs)
    assert first == second
    assert first != standard
    assert fingerprint(envs[0], 6) != first
    for env in envs:
        env.close()


def test_a_batch_plays_the_levels_of_single_environments():
    envs, single = make_vec(N6, 2, layout="authors"), make(N6, layout="authors")
    observations, _ = envs.reset(seed=3)
    np.testing.assert_array_equal(observations["glyphs"][1], single.reset(seed=4)[0]["glyphs"])
    envs.close()
    single.close()


def test_the_default_is_the_standard_layout():
    default, standard = minihack.make(N4_LOCKED), minihack.make(N4_LOCKED, layout="standard")
    assert default.task is standard.task is TASKS[N4_LOCKED]
    default.close()
    standard.close()


def test_other_layouts_and_other_tasks_are_refused():
    with pytest.raises(ValueError, match=r"layout='paper': choose one of standard, authors"):
        minihack.make(N6, layout="paper")
    with pytest.raises(ValueError, match=r"layout='authors': MiniHack-Labyrinth-Big-v0 is not a MultiRoom task"):
        minihack.make("MiniHack-Labyrinth-Big-v0", layout="authors")
