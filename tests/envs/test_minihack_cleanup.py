"""MiniHack leaves nothing behind: no files, no processes, no memory, however a process ends."""

import errno
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from e3b_gym.envs import minihack
from e3b_gym.envs.minihack import scratch

FREEZE, LAVA = "MiniHack-Freeze-Random-Restricted-v0", "MiniHack-MultiRoom-N6-Lava-v0"

PLAYER = f"""
import os, sys
from e3b_gym.envs import minihack
env, vector = minihack.make({LAVA!r}), minihack.make_vec({FREEZE!r}, 2)
env.reset(seed=0), vector.reset(seed=0)
print("playing", flush=True)
END
"""


def cleaners(directory):
    """Shells that wait to clean this temporary directory."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if any(str(directory) in word for word in process.info["cmdline"] or []):
            found.append(process)
    return found


def wait_until_clean(directory, seconds=10.0):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not list(directory.iterdir()) and not cleaners(directory):
            return
        time.sleep(0.02)
    pytest.fail(f"left behind: {list(directory.iterdir())}, {cleaners(directory)}")


def start_player(directory, ending="input()"):
    environment = os.environ | {"TMPDIR": str(directory)}
    code = PLAYER.replace("END", ending)
    player = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    assert player.stdout.readline() == b"playing\n"
    return player


@pytest.mark.parametrize("name", ["SIGKILL", pytest.param("SIGTERM", marks=pytest.mark.slow)])
def test_nothing_is_left_after_a_kill(name, tmp_path):
    with start_player(tmp_path) as player:
        (root,) = tmp_path.iterdir()
        assert len([path for path in root.iterdir() if path.is_dir()]) == 3
        assert len(cleaners(tmp_path)) == 1
        player.send_signal(getattr(signal, name))
        player.wait()
        wait_until_clean(tmp_path)


@pytest.mark.parametrize(
    "ending",
    [
        "raise RuntimeError('crash')",
        pytest.param("pass  # the interpreter ends with open games", marks=pytest.mark.slow),
        pytest.param("os.abort()", marks=pytest.mark.slow),
        "del env, vector; import gc; gc.collect(); assert not os.listdir(os.environ['TMPDIR'])",
    ],
)
def test_nothing_is_left_after_any_end_of_the_process(ending, tmp_path):
    with start_player(tmp_path, ending) as player:
        player.wait()
        wait_until_clean(tmp_path)
        assert player.returncode == 0 or "raise" in ending or "os." in ending.split(";")[0]


def test_closing_the_last_game_removes_files_and_cleaner_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(scratch, "base_directory", lambda: tmp_path)
    monkeypatch.setattr(scratch, "_root", None)
    first, second = minihack.make(FREEZE), minihack.make(LAVA)
    first.reset(seed=0)
    second.reset(seed=0)
    first.close()
    assert len(list(tmp_path.iterdir())) == 1
    second.close()
    assert list(tmp_path.iterdir()) == []
    assert cleaners(tmp_path) == []


def use_and_drop_in_child(env):
    env.close()  # a child must not delete its parent's files
    own = minihack.make(FREEZE)
    own.reset(seed=0)
    own.close()


def test_a_forked_child_leaves_its_parents_files_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(scratch, "base_directory", lambda: tmp_path)
    monkeypatch.setattr(scratch, "_root", None)
    env = minihack.make(LAVA)
    env.reset(seed=0)
    child = multiprocessing.get_context("fork").Process(target=use_and_drop_in_child, args=(env,))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert len(list(tmp_path.iterdir())) == 1
    env.reset()
    env.close()
    wait_until_clean(tmp_path)


def test_roots_of_dead_machines_are_swept_and_living_ones_kept(tmp_path, monkeypatch):
    old = time.time() - 3600
    dead = tmp_path / f"{scratch.PREFIX}dead"
    dead.mkdir()
    (dead / "lock").touch()
    os.utime(dead, (old, old))
    with start_player(tmp_path) as player:
        assert not dead.exists(), "the player's start sweeps"
        (living,) = tmp_path.iterdir()
        os.utime(living, (old, old))
        scratch._sweep(tmp_path)
        assert living.exists()
        player.communicate(b"\n")


@pytest.fixture
def memory(tmp_path, monkeypatch):
    """A place that stands for /dev/shm, with no other place named."""
    monkeypatch.setattr(scratch, "MEMORY", tmp_path)
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_games_keep_their_files_in_memory(memory, monkeypatch):
    monkeypatch.setattr(scratch, "_root", None)
    env = minihack.make(LAVA)
    env.reset(seed=0)
    assert [path.name.startswith(scratch.PREFIX) for path in memory.iterdir()] == [True]
    env.close()
    assert list(memory.iterdir()) == []


@pytest.mark.parametrize("id", [FREEZE, LAVA])
def test_games_continue_after_their_files_were_deleted(id, memory, monkeypatch):
    monkeypatch.setattr(scratch, "_root", None)
    env, untouched = minihack.make(id), minihack.make(id)
    env.reset(seed=0)
    untouched.reset(seed=0)
    shutil.rmtree(env._game._directory)
    for _ in range(2):
        restored, expected = env.reset()[0], untouched.reset()[0]
        np.testing.assert_equal(restored, expected)
    for root in memory.iterdir():
        shutil.rmtree(root)
    env.reset()
    env.close()
    untouched.close()
    assert list(memory.iterdir()) == []


def test_a_full_disk_is_named_with_the_remedy(memory, monkeypatch):
    monkeypatch.setattr(scratch, "_root", None)
    env = minihack.make(LAVA)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(OSError, match=r"No space left.*set TMPDIR.*nhdat"):
            env.reset(seed=0)
    env.close()


def test_without_memfd_the_library_stays_out_of_memory(memory, monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    assert scratch.base_directory() == Path(tempfile.gettempdir())


def test_dead_roots_are_swept_in_memory_and_on_disk(memory, monkeypatch):
    disk = memory / "disk"
    disk.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(disk))
    monkeypatch.setattr(scratch, "_root", None)
    old = time.time() - 3600
    dead = [place / f"{scratch.PREFIX}dead" for place in (memory, disk)]
    for root in dead:
        root.mkdir()
        (root / "lock").touch()
        os.utime(root, (old, old))
    minihack.make(FREEZE).close()
    assert [root.exists() for root in dead] == [False, False]


def test_little_memory_is_left_to_others(memory, monkeypatch):
    assert scratch.base_directory() == memory
    monkeypatch.setattr(scratch, "ROOM", shutil.disk_usage(memory).total + 1)
    assert scratch.base_directory() == Path(tempfile.gettempdir())


def test_a_system_without_files_in_memory_takes_the_temporary_directory(memory, monkeypatch):
    monkeypatch.setattr(scratch, "MEMORY", memory / "missing")
    assert scratch.base_directory() == Path(tempfile.gettempdir())


@pytest.mark.parametrize("name", ["TMPDIR", "TEMP", "TMP"])
def test_who_names_a_temporary_directory_gets_it(name, memory, monkeypatch):
    elsewhere = memory / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setenv(name, str(elsewhere))
    monkeypatch.setattr(tempfile, "tempdir", None)  # what it found out earlier
    assert scratch.base_directory() == elsewhere


def resident_bytes_after(env, resets):
    for _ in range(resets):
        env.reset()
        env.step(0)
    return psutil.Process().memory_info().rss


def test_memory_stays_flat_over_three_hundred_resets():
    env = minihack.make(FREEZE)
    env.reset(seed=0)
    start = resident_bytes_after(env, 100)
    assert resident_bytes_after(env, 300) - start < 3e5  # a game that is not quit properly leaves 2 kB
    env.close()


@pytest.mark.slow
@pytest.mark.parametrize("id", [FREEZE, LAVA])
def test_memory_and_files_stay_flat_over_five_thousand_resets(id):
    env = minihack.make(id)
    env.reset(seed=0)
    start = resident_bytes_after(env, 200)
    files = sorted(path.name for path in env._game._directory.iterdir())
    assert resident_bytes_after(env, 5000) - start < 2e6
    assert sorted(path.name for path in env._game._directory.iterdir()) == files
    assert sum(path.stat().st_size for path in env._game._directory.glob("*")) < 2e5
    env.close()


@pytest.mark.slow
def test_making_and_closing_five_hundred_environments_leaves_no_memory_or_descriptors():
    def cycle(count):
        for _ in range(count):
            env = minihack.make(FREEZE)
            env.reset(seed=0)
            env.close()
        return psutil.Process().memory_info().rss, psutil.Process().num_fds()

    memory, descriptors = cycle(50)
    later_memory, later_descriptors = cycle(500)
    assert later_descriptors == descriptors
    assert later_memory - memory < 1.5e7
