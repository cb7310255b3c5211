"""NetHack is started again in place: with NLE's own games, without a trace of the last one, and never at a risk."""

import ctypes
import dataclasses
import gc
import hashlib
import multiprocessing
import threading

import nle
import numpy as np
import psutil
import pytest
from minihack_player import fingerprint
from nle import _pynethack, nethack

from e3b_gym.envs import minihack
from e3b_gym.envs.minihack import engine, library
from e3b_gym.envs.minihack.level import compile_level, install_level, level_source

FREEZE, LAVA, MONSTERS = (
    "MiniHack-Freeze-Random-Restricted-v0",
    "MiniHack-MultiRoom-N6-Lava-v0",
    "MiniHack-MultiRoom-N6-LavaMonsters-v0",
)
KEYS = tuple(key for key in nethack.OBSERVATION_DESC if key not in ("internal", "program_state", "misc"))

pytestmark = pytest.mark.skipif(
    not engine.works_in_place(), reason="this NLE is not known well enough to start in place"
)


def new_nethack(directory, in_place=True):
    """NetHack in the first level of N6, with all observations, and its file."""
    for name in ("perm", "record", "logfile", "xlogfile"):
        (directory / name).touch()
    (directory / "save").mkdir(exist_ok=True)
    install_level(compile_level(level_source(minihack.TASKS[LAVA])(0), directory), directory)
    file, path = library.private_copy(directory)
    options = "name:Agent-rog-hum-cha-mal,pettype:none,!autopickup,nobones,nolegacy"
    if in_place:
        game = engine.InPlaceNetHack(path, str(directory), options)
    else:
        game = _pynethack.Nethack(path, str(directory), options, spawn_monsters=False, fix_moon_phase=True)
    buffers = {name: np.zeros(**description) for name, description in nethack.OBSERVATION_DESC.items()}
    game.set_buffers(**buffers)
    return game, buffers, file


@pytest.fixture
def game(tmp_path):
    """(NetHack in place, its buffers), closed after the test."""
    opened, buffers, file = new_nethack(tmp_path)
    yield opened, buffers
    opened.close()
    file.close()


def start(game, core):
    game.set_initial_seeds(core, core + 5, False, None)
    game.reset()


@pytest.mark.parametrize("id", [FREEZE, LAVA, MONSTERS, "MiniHack-WoD-Hard-Restricted-v0"])
def test_environments_show_the_same_in_place_and_reloaded(id, monkeypatch):
    in_place = minihack.make(id, observation_keys=KEYS)
    monkeypatch.setattr(engine, "KNOWN_RELEASES", ())
    reloaded = minihack.make(id, observation_keys=KEYS)
    assert type(in_place._game._nethack) is engine.InPlaceNetHack
    assert type(reloaded._game._nethack) is _pynethack.Nethack
    for seed in (0, 1):
        assert fingerprint(in_place, seed, 150) == fingerprint(reloaded, seed, 150)
    in_place.close()
    reloaded.close()


def test_games_are_nles_on_all_days(tmp_path):
    """Core seeds decide the date, too: full moons and Fridays the 13th are among these."""
    places = [tmp_path / "ours", tmp_path / "nles"]
    for place in places:
        place.mkdir()
    (ours, our_buffers, our_file), (nles, nles_buffers, nles_file) = (
        new_nethack(place, in_place) for place, in_place in zip(places, (True, False), strict=True)
    )
    said = b""
    for core in (*range(40), 2**64 - 1):
        for nethack_game in (ours, nles):
            nethack_game.set_initial_seeds(core, 7, False, None)
            nethack_game.reset()
        for key in (None, 32, ord("j"), ord("l"), ord("k"), ord("i"), 27):
            if key is not None and not ours.done():
                ours.step(key)
                nles.step(key)
            assert ours.done() == nles.done()
            for name in our_buffers:
                np.testing.assert_array_equal(our_buffers[name], nles_buffers[name], err_msg=f"{name}, seed {core}")
            said += our_buffers["message"].tobytes()
    assert b"Full moon" in said
    assert b"New moon" in said
    ours.close()
    nles.close()
    our_file.close()
    nles_file.close()


def test_a_restored_library_is_the_loaded_one_byte_for_byte(game):
    nethack_game, _ = game
    where = library.layout()
    base = ctypes.addressof(ctypes.c_char.in_dll(nethack_game._library, "settings")) - where.settings[0]

    def memory():
        return [ctypes.string_at(base + address, size) for address, size in (where.data, where.bss)]

    first = memory()
    start(nethack_game, 3)
    assert memory() != first
    nethack_game._end_game()
    nethack_game._variables.restore()
    assert memory() == first


@pytest.mark.parametrize("quits", [True, False])
def test_nothing_of_a_game_reaches_the_next(game, quits):
    nethack_game, buffers = game
    start(nethack_game, 3)
    expected = {name: array.copy() for name, array in buffers.items()}
    start(nethack_game, 4)
    for key in b"jjjjllllkkkkhhhh":
        if not nethack_game.done():
            nethack_game.step(key)
    for key in (27, 0x80 | ord("q"), ord("y"), *[32] * 20):
        if quits and not nethack_game.done():
            nethack_game.step(key)
    assert nethack_game.done() or not quits
    start(nethack_game, 3)
    np.testing.assert_equal(buffers, expected)


def test_a_reset_loads_no_library(monkeypatch):
    env = minihack.make(LAVA)
    env.reset(seed=0)
    monkeypatch.setattr(ctypes, "PyDLL", lambda *_: pytest.fail("a library was loaded"))
    for _ in range(5):
        env.reset()
    env.close()


def test_misuse_is_an_error_and_no_crash(game):
    nethack_game, _ = game
    with pytest.raises(RuntimeError, match="without reset"):
        nethack_game.step(32)
    start(nethack_game, 3)
    with pytest.raises(RuntimeError, match="after reset"):
        nethack_game.set_buffers()
    for key in (27, 0x80 | ord("q"), ord("y"), *[32] * 20):
        if not nethack_game.done():
            nethack_game.step(key)
    with pytest.raises(RuntimeError, match="finished"):
        nethack_game.step(32)
    nethack_game.close()
    nethack_game.close()
    for call in (nethack_game.reset, lambda: nethack_game.step(32)):
        with pytest.raises(RuntimeError, match=r"closed|without reset"):
            call()


@pytest.mark.parametrize(
    "wrong",
    [np.zeros((21, 79), np.int32), np.zeros((79, 21), np.int16), np.zeros((21, 158), np.int16)[:, ::2]],
    ids=["type", "shape", "not contiguous"],
)
def test_buffers_that_nethack_would_overrun_are_refused(wrong, tmp_path):
    opened, _, file = new_nethack(tmp_path)
    with pytest.raises(ValueError, match=r"glyphs.*int16"):
        opened.set_buffers(glyphs=wrong)
    opened.close()
    file.close()


def test_unknown_libraries_are_left_to_nle(monkeypatch):
    where = library.layout()
    assert engine.works_in_place()
    for other in (None, dataclasses.replace(where, settings=(where.settings[0], where.settings[1] + 8))):
        monkeypatch.setattr(library, "layout", lambda other=other: other)
        assert not engine.works_in_place()
    monkeypatch.undo()
    monkeypatch.setattr(nle, "__version__", "9.9.9")
    assert not engine.works_in_place()


def test_a_file_that_is_no_library_has_no_layout(tmp_path, monkeypatch):
    for content in (b"", b"\x7fELF", b"\x7fELF\x02\x01" + bytes(100), b"#!/bin/sh\n"):
        (tmp_path / "library.so").write_bytes(content)
        monkeypatch.setattr(library, "DLPATH", str(tmp_path / "library.so"))
        assert library.layout.__wrapped__() is None


def test_threads_play_their_games_at_the_same_time():
    ids = (LAVA, FREEZE, LAVA, MONSTERS)
    envs = [minihack.make(id) for id in ids]
    alone = [fingerprint(env, 3, 40) for env in envs]
    together = [b""] * len(ids)

    def play(index):
        together[index] = fingerprint(envs[index], 3, 40)

    threads = [threading.Thread(target=play, args=(index,)) for index in range(len(ids))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone
    for env in envs:
        env.close()


def hashes(envs):
    """Short, as a pipe holds 64 kB."""
    return [hashlib.sha1(fingerprint(env, 3, 40)).hexdigest() for env in envs]


def play_in_child(env, queue):
    queue.put(hashes([minihack.make(LAVA), env]))


def drop_and_play_in_child(envs, queue):
    envs.clear()
    gc.collect()  # closes the file of a library that stays loaded
    own = [minihack.make(LAVA) for _ in range(3)]
    queue.put(hashes(own))


def test_a_forked_child_plays_its_own_and_its_parents_game():
    context = multiprocessing.get_context("fork")
    env, queue = minihack.make(LAVA), context.SimpleQueue()
    (expected,) = hashes([env])
    child = context.Process(target=play_in_child, args=(env, queue))
    child.start()
    child.join(timeout=60)
    assert child.exitcode == 0
    assert queue.get() == [expected, expected]
    assert hashes([env]) == [expected]
    env.close()


def test_a_forked_child_that_drops_its_parents_games_can_make_its_own():
    context = multiprocessing.get_context("fork")
    envs, queue = [minihack.make(LAVA) for _ in range(2)], context.SimpleQueue()
    expected = hashes(envs)[0]
    child = context.Process(target=drop_and_play_in_child, args=(envs, queue))
    child.start()
    child.join(timeout=60)
    assert child.exitcode == 0
    assert queue.get() == [expected] * 3
    for env in envs:
        env.close()


def test_descriptors_and_mappings_stay_the_same_over_resets_and_return_after_closing():
    process = psutil.Process()

    def count():
        return process.num_fds(), sum("nle.so" in region.path for region in process.memory_maps(grouped=False))

    minihack.make(LAVA).close()  # loads what stays
    before = count()
    env = minihack.make(LAVA)
    env.reset(seed=0)
    playing = count()
    for _ in range(50):
        env.reset()
    assert count() == playing
    env.close()
    assert count()[1] == before[1]
