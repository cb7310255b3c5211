"""MiniHack levels as NetHack shows them: rooms, doors, lava and monsters are read from the map in wizard mode."""

import errno
import importlib
import os
import subprocess
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from minihack_oracle import copy_grid, minigrid_env
from minihack_player import DELTAS, read_level

from e3b_gym.envs import minihack
from e3b_gym.envs.minihack import TASKS, level
from e3b_gym.envs.minihack.grid_level import GridLevel
from e3b_gym.envs.minihack.level import (
    LevelError,
    _package_directory,
    archive,
    compile_level,
    install_level,
    level_source,
    run_lev_comp,
)
from e3b_gym.envs.minihack.tasks import LavaCrossing, MultiRoom, StockLevel

SEEDS = (0, 1, 2)
MULTIROOMS = [id for id in minihack.PAPER_IDS if "MultiRoom" in id]
# At 25x25 most levels are taller than NetHack's 21 rows: lev_comp really rejects them.
TOO_TALL = replace(TASKS["MiniHack-MultiRoom-N10-v0"], level=MultiRoom(10, width=25, height=25))
NEVER_FITS = replace(TASKS["MiniHack-LavaCrossingS19N13-v0"], level=LavaCrossing(size=41, rivers=3))


@pytest.mark.parametrize("id", [*MULTIROOMS, "MiniHack-MultiRoom-N4-v0", "MiniHack-MultiRoom-N2-v0"])
@pytest.mark.parametrize("seed", SEEDS)
def test_multirooms_are_as_the_id_says(id, seed):
    rooms = int(id.split("-N")[1].split("-")[0])
    level = read_level(id, seed)
    assert level.rooms() == rooms
    assert len(level.doors) == rooms - 1
    assert level.open_doors == (level.doors if "OpenDoor" in id else set())
    assert bool(level.lava) == ("Lava" in id)
    assert len(level.stairs_down) == 1
    assert level.way(level.start, *level.stairs_down)
    if "Monster" in id:
        assert level.monsters >= 3  # one of the three may bring its pack
    else:
        assert level.monsters == 0


def test_lava_monsters_places_three_and_some_level_has_exactly_three():
    draw = level_source(TASKS["MiniHack-MultiRoom-N6-LavaMonsters-v0"])
    assert draw(0).description().count("MONSTER:") == 3
    assert 3 in [read_level("MiniHack-MultiRoom-N6-LavaMonsters-v0", seed).monsters for seed in range(3)]


@pytest.mark.parametrize("id", ["MiniHack-LavaCrossingS19N13-v0", "MiniHack-LavaCrossingS19N17-v0"])
@pytest.mark.parametrize("seed", SEEDS)
def test_lava_crossings_have_their_rivers_and_a_way_through(id, seed):
    rivers = int(id.split("N")[1].split("-")[0])
    level = read_level(id, seed)
    left, top = level.start  # the hero starts in the north-west corner of a 17x17 floor, the goal is in the south-east
    assert level.stairs_down == {(left + 16, top + 16)}
    columns = [x for x in range(left, left + 17) if sum((x, y) in level.lava for y in range(top, top + 17)) >= 14]
    rows = [y for y in range(top, top + 17) if sum((x, y) in level.lava for x in range(left, left + 17)) >= 14]
    assert len(columns) + len(rows) == min(rivers, 16)  # there is no room for a seventeenth
    assert level.way(level.start, *level.stairs_down)


def locked_door_next_to_the_start_room(seed):
    """An environment walked to a door of its first room, and the move that leads into the door."""
    level = read_level("MiniHack-MultiRoom-N4-Locked-v0", seed)
    moves = level.way(level.start, *level.stairs_down)
    cell = level.start
    for index, move in enumerate(moves):
        cell = cell[0] + DELTAS[move][0], cell[1] + DELTAS[move][1]
        if cell in level.doors:
            return moves[:index], move
    raise AssertionError("no door on the way")


def test_locked_doors_refuse_to_open_and_give_way_to_kicks():
    env = minihack.make("MiniHack-MultiRoom-N4-Locked-v0")
    actions = env.task.actions
    observation, _ = env.reset(seed=0)
    way, into_door = locked_door_next_to_the_start_room(0)
    for move in way:
        observation, *_ = env.step(actions.index(move))
    env.step(actions.index("OPEN"))
    observation, *_ = env.step(actions.index(into_door))
    assert b"This door is locked" in observation["message"].tobytes()
    messages = b""
    for _ in range(40):
        env.step(actions.index("KICK"))
        observation, *_ = env.step(actions.index(into_door))
        messages += observation["message"].tobytes()
        if b"crashes open" in messages or b"crash to" in messages or b"shatters" in messages:
            break
    else:
        pytest.fail("forty kicks did not open the door")
    env.close()


def test_the_archive_is_the_one_that_nethacks_own_tool_writes(tmp_path):
    files = {"a": b"first", "mylevel.lev": bytes(range(256)) * 9, "z.dat": b"\n\0"}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    subprocess.run([_package_directory("nle") / "nethackdir" / "dlb", "cf", "nhdat", *files], cwd=tmp_path, check=True)
    assert archive(files) == (tmp_path / "nhdat").read_bytes()


def whole_archive(content, directory):
    """What nhdat holds after the level was installed where there was none."""
    directory.mkdir()
    install_level(content, directory)
    return (directory / "nhdat").read_bytes()


def test_a_level_written_into_the_archive_in_place_gives_the_whole_archive(tmp_path):
    contents = [b"short", b"long" * 2000, b"", b"middle" * 100]
    wholes = [whole_archive(content, tmp_path / str(i)) for i, content in enumerate(contents)]
    for content, whole in zip(contents, wholes, strict=True):
        install_level(content, tmp_path)
        assert (tmp_path / "nhdat").read_bytes() == whole


@pytest.mark.parametrize("wrote", [None, 0, 10])
def test_an_archive_that_could_not_be_written_is_not_left_half_new(wrote, tmp_path, monkeypatch):
    def full(file, data, offset):
        if wrote is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        return wrote

    install_level(b"old", tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space left"):
            install_level(b"new" * 1000, tmp_path)
    assert not (tmp_path / "nhdat").exists()
    install_level(b"new", tmp_path)
    assert (tmp_path / "nhdat").read_bytes() == whole_archive(b"new", tmp_path / "other")


def test_a_level_that_does_not_compile_raises_lev_comps_message(tmp_path):
    with pytest.raises(LevelError, match="syntax error"):
        compile_level("MAZE: nonsense", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_levels_that_fail_to_compile_are_retried_and_never_stale(tmp_path):
    draw = level_source(TOO_TALL)
    failures = 0
    for seed in range(12):
        try:
            compile_level(draw(seed), tmp_path)
        except LevelError:
            failures += 1
    assert failures >= 3, "this test needs a generator that fails often"
    env = minihack.make(TOO_TALL)
    maps = {env.reset(seed=0)[0]["glyphs"].tobytes()}
    maps |= {env.reset()[0]["glyphs"].tobytes() for _ in range(11)}
    assert len(maps) == 12
    again = minihack.make(TOO_TALL)
    assert again.reset(seed=0)[0]["glyphs"].tobytes() in maps
    env.close()
    again.close()


def test_a_generator_that_never_compiles_says_so():
    env = minihack.make(NEVER_FITS)
    with pytest.raises(LevelError, match=r"none of 100 levels compiled.*lev_comp"):
        env.reset(seed=0)
    env.close()


@pytest.mark.parametrize("id", ["MiniHack-MultiRoom-N4-Locked-v0", "MiniHack-MultiRoom-N6-LavaMonsters-v0"])
def test_descriptions_compile_to_the_bytes_of_minihacks_own(id, tmp_path):
    drawn = TASKS[id].level
    grid_env = minigrid_env(drawn)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pkg_resources
        stock_class = importlib.import_module("minihack.envs.minigrid").MiniGridHack
    for seed in range(5):
        grid_env.reset(seed=seed)
        stock = object.__new__(stock_class)
        stock.minigrid_env = SimpleNamespace(unwrapped=grid_env, reset=lambda: None)
        stock.wall, stock.door_state = "L" if drawn.lava_walls else "|", drawn.doors
        stock.num_mon, stock.num_trap = drawn.monsters, 0
        stock.__dict__["_close_nethack"] = lambda: None
        ours = compile_level(copy_grid(grid_env, drawn), tmp_path)
        assert ours == compile_level(stock.get_env_desc(), tmp_path)


@pytest.mark.parametrize("id", [id for id, task in TASKS.items() if not isinstance(task.level, StockLevel)])
def test_drawn_levels_are_assembled_to_lev_comps_bytes(id, tmp_path):
    draw, opening = level_source(TASKS[id]), level._opening()
    assert opening is not None, "lev_comp of this NLE writes something else"
    for seed in range(4):
        drawn = draw(seed)
        assert drawn.assemble(opening) == run_lev_comp(drawn.description(), tmp_path)


def test_no_compiler_runs_for_a_drawn_level(monkeypatch):
    env = minihack.make("MiniHack-MultiRoom-N6-Lava-v0")
    env.reset(seed=0)
    monkeypatch.setattr(level, "run_lev_comp", lambda *_: pytest.fail("lev_comp ran"))
    env.reset()
    env.close()


MISTAKES = {
    "start turned": lambda level: replace(level, start=level.start[::-1]),
    "start always the same": lambda level: replace(level, start=(1, 3)),
    "goal turned": lambda level: replace(level, goal=level.goal[::-1]),
    "goal at a door": lambda level: replace(level, goal=level.doors[0] if level.doors else level.goal),
    "one door": lambda level: replace(level, doors=level.doors[:1]),
    "doors always closed": lambda level: replace(level, door_state="closed"),
    "one monster": lambda level: replace(level, monsters=min(level.monsters, 1)),
    "a row short": lambda level: replace(level, rows=level.rows[:-1]),
    "a column short": lambda level: replace(level, rows=tuple(row[:-1] for row in level.rows)),
    "no lava": lambda level: replace(level, rows=tuple(row.replace("L", ".") for row in level.rows)),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_where_the_assembler_and_lev_comp_disagree_lev_comp_compiles(mistake, tmp_path, monkeypatch):
    task = TASKS["MiniHack-MultiRoom-N4-v0"]
    expected = compile_level(level_source(task)(0), tmp_path)
    right = GridLevel._instructions
    monkeypatch.setattr(GridLevel, "_instructions", lambda self: right(MISTAKES[mistake](self)))
    monkeypatch.setattr(level, "_opening", level._opening.__wrapped__)  # asks lev_comp again
    assert level._opening() is None
    assert compile_level(level_source(task)(0), tmp_path) == expected


def test_doors_of_an_unknown_kind_are_compiled_by_lev_comp(tmp_path):
    drawn = replace(level_source(TASKS["MiniHack-MultiRoom-N4-v0"])(0), door_state="broken")
    assert len(compile_level(drawn, tmp_path)) > 1000


def test_a_level_pool_repeats_its_levels_and_nothing_else():
    def rooms(env):
        return tuple(np.flatnonzero(env.reset()[0]["glyphs"] >= 2360).tolist())  # what the hero sees of walls and floor

    env = minihack.make("MiniHack-MultiRoom-N6-v0", level_pool=3)
    env.reset(seed=5)
    seen = {rooms(env) for _ in range(15)}
    assert 2 <= len(seen) <= 3
    fresh = minihack.make("MiniHack-MultiRoom-N6-v0")
    assert len({rooms(fresh) for _ in range(8)}) == 8
    first = env.reset(seed=5)[0]["glyphs"]
    np.testing.assert_array_equal(first, fresh.reset(seed=5)[0]["glyphs"])
    env.close()
    fresh.close()
