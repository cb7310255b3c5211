"""`python -m e3b_gym.envs`: the list, one id, watching, playing by hand, films."""

import functools
import gc
import itertools
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import imageio.v3 as imageio
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from imageio_ffmpeg import count_frames_and_secs, get_ffmpeg_exe

from e3b_gym.envs import play
from e3b_gym.envs.__main__ import main
from e3b_gym.envs.registry import all_tasks
from e3b_gym.envs.video import for_video, write_video
from tests.reliability.disk import FailingDisk


def test_the_list_shows_every_id_with_actions_steps_and_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    for id, (_, task) in all_tasks().items():
        (line,) = (line for line in lines if line.split()[:1] == [id])
        assert f" {task.max_steps} " in line
        assert f" {len(task.actions)}: {task.actions[0]} " in line
        assert line.endswith(task.source)


def test_one_id_is_described_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ENV=MiniGrid-DoorKey-5x5-v0"]) == 0
    out = capsys.readouterr().out
    assert "250 steps" in out
    assert "5 toggle" in out
    assert "Discrete(7)" in out


@pytest.mark.parametrize("id", ["MiniGrid-DoorKey-5x5-v0", "MiniHack-Freeze-Horn-Restricted-v0", "Rooms-v0"])
def test_watching_shows_the_map_and_what_happened(id: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"ENV={id}", "WATCH=1", "STEPS=3", "SEED=1"]) == 0
    first = capsys.readouterr().out
    assert "episode 1 starts, seed 1" in first
    assert "step 3" in first
    assert "@" in first or ">" in first or "^" in first or "v" in first
    main([f"ENV={id}", "WATCH=1", "STEPS=3", "SEED=1"])
    assert capsys.readouterr().out == first, "a seed fixes the play"


def test_watching_continues_after_an_episode_ends() -> None:
    from e3b_gym.envs import make

    env = make("Rooms-v0", max_steps=2, render_mode="ansi")
    captions = [moment.caption for moment in play.run(env, lambda: 0, ("up",) * 5, seed=0, steps=4)]
    assert captions[2].endswith("time limit")
    assert captions[3] == "episode 2 starts"
    assert captions[4].startswith("episode 2  step 1")


def test_pictures_become_half_blocks(capsys: pytest.CaptureFixture[str]) -> None:
    image = np.zeros((4, 3, 3), np.uint8)
    image[0] = 255
    text = play.half_blocks(image, columns=3, lines=2)
    assert text.count("\u2580") == 6
    assert text.startswith("\x1b[38;2;255;255;255m\x1b[48;2;0;0;0m")
    assert main(["ENV=CartPole-v1", "WATCH=1", "STEPS=1"]) == 0
    assert "\u2580" in capsys.readouterr().out


@pytest.mark.parametrize("ending", [".gif", ".mp4"])
def test_a_film_holds_what_was_played(tmp_path: Path, ending: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"film{ending}"
    assert main(["ENV=MiniGrid-DoorKey-5x5-v0", f"RECORD={path}", "STEPS=30", "SEED=0", "FPS=20"]) == 0
    assert "31 frames" in capsys.readouterr().out
    if ending == ".gif":
        film = imageio.imread(path)
        assert 3 < len(film) <= 31, "a GIF joins equal pictures"
    else:
        decode = [get_ffmpeg_exe(), "-v", "error", "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
        raw = subprocess.run(decode, capture_output=True, check=True).stdout
        film = np.frombuffer(raw, np.uint8).reshape(-1, 320, 320, 3)
        assert len(film) == 31
    assert film.shape[1:] == (320, 320, 3)
    assert film.mean() > 10


def test_small_pictures_are_enlarged_and_padded_for_a_film() -> None:
    image = np.full((20, 30, 3), 9, np.uint8)
    framed = for_video(image)
    assert framed.shape == (208, 304, 3)
    assert (framed[:200, :300] == 9).all()
    assert (framed[200:] == 0).all()


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("ending", [".gif", ".mp4"])
def test_a_full_disk_leaves_the_earlier_film(tmp_path: Path, ending: str, capsys: pytest.CaptureFixture[str]) -> None:
    path, failed = tmp_path / f"film{ending}", list[str]()
    for write in itertools.count(1):
        path.write_bytes(b"an earlier film")
        with FailingDisk(tmp_path, write) as disk:
            code = main(["ENV=MiniGrid-DoorKey-5x5-v0", f"RECORD={path}", "STEPS=5", "SEED=0"])
        gc.collect()  # the writer of imageio complains when it is deleted
        if not disk.failed:
            break
        if disk.failed == [f"mkdir {tmp_path.name}"]:  # the folder exists
            assert code == 0
            continue
        assert code == 2, disk.failed
        assert capsys.readouterr().err.count("\n") == 1
        if path.read_bytes() != b"an earlier film":  # it was replaced, and the disk failed after that
            assert path.stat().st_size > 100
        failed += disk.failed
        assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert code == 0
    assert {what.split()[0] for what in failed} >= {"open", "write", "fsync", "replace"}


@pytest.mark.parametrize("ending", [".gif", ".mp4"])
def test_ctrl_c_ends_a_film_where_it_is(tmp_path: Path, ending: str) -> None:
    def images():
        for shade in range(0, 200, 50):
            yield np.full((32, 32, 3), shade, np.uint8)
        raise KeyboardInterrupt

    path = tmp_path / f"film{ending}"
    assert write_video(images(), path, fps=10) == 4
    assert (len(imageio.imread(path)) if ending == ".gif" else count_frames_and_secs(str(path))[0]) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["WATCH=1"], "no environment id"),
        (["ENV=MiniGrid-DoorKey-5x5-v1000"], "did you mean"),
        (["ENV=CartPole-v1", "RECORD=film.avi"], "must end in .gif or .mp4"),
        (["ENV=CartPole-v1", "KEYS=1"], "needs a terminal"),
        (
            ["ENV=Rooms-K3-v0", "WATCH=1", "SEED=-1"],
            "SEED must be a whole number from 0 to 2**32 - 1 or None; got '-1'",
        ),
        (["ENV=Rooms-K3-v0", "WATCH=1", "STEPS=-5"], "STEPS must be a whole number of at least 1; got '-5'"),
        (["ENV=Rooms-K3-v0", "WATCH=1", "FPS=0"], "FPS must be a positive number of at most 1000; got '0'"),
        (["ENV=Rooms-K3-v0", "WATCH=maybe"], "WATCH must be true or false; got 'maybe'"),
        (["ENV=CartPole-v1", "RECORD=setup.cfg/film.gif"], "cannot use setup.cfg: file exists; choose another path"),
        (["ENV=Rooms K3"], "unknown environment id 'Rooms K3'"),
        (["ENV=../../etc/passwd"], "unknown environment id '../../etc/passwd'"),
        (["ENV=Rooms-K3-v0", "stray"], "expected NAME=value, got 'stray'"),
        (["ENV=Rooms-K3-v0", "--watch"], "expected NAME=value, got '--watch'"),
        (["ENV=Rooms-K3-v0", "WACTH=1"], "unknown option WACTH=1; did you mean WATCH?"),
        (["ENV=Rooms-\udcff-v0"], "options must be UTF-8; got 'ENV=Rooms-\\udcff-v0'"),
    ],
)
def test_mistakes_are_answered_in_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text("abcxyzNSEW_", min_size=1, max_size=6), min_size=1, max_size=30, unique=True))
def test_every_action_has_its_own_key(names: list[str]) -> None:
    keys = play.assign_keys(tuple(names))
    assert sorted(keys.values()) == list(range(len(names)))


@pytest.mark.parametrize("variant", ["Restricted", "Full"])
def test_nethack_players_find_their_keys(variant: str) -> None:
    names = all_tasks()[f"MiniHack-Freeze-Random-{variant}-v0"][1].actions
    keys = play.assign_keys(names)
    assert {key: names[i] for key, i in keys.items() if key in "hjkl,zaf"} == {
        "h": "W", "j": "S", "k": "N", "l": "E", ",": "PICKUP", "z": "ZAP", "a": "APPLY", "f": "FIRE",
    }  # fmt: skip


def test_keys_and_arrows_play_in_a_terminal_and_leave_it_as_it_was() -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd()), "TERM": "xterm"}
    command = [sys.executable, "-m", "e3b_gym.envs", "ENV=MiniGrid-DoorKey-5x5-v0", "KEYS=1", "SEED=0"]
    hear_interrupts = functools.partial(
        signal.signal, signal.SIGINT, signal.SIG_DFL
    )  # a run in the background does not
    player = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, preexec_fn=hear_interrupts
    )

    def read_until(text: str) -> str:
        seen, deadline = "", time.monotonic() + 60
        while text not in seen:
            assert time.monotonic() < deadline, f"{text!r} did not come; got {seen!r}"
            if select.select([ours], [], [], 0.2)[0]:
                seen += os.read(ours, 65536).decode()
        return seen

    try:
        read_until("Ctrl-C quits")
        os.write(ours, b"w")
        read_until("step 1  action forward")
        os.write(ours, b"Z\x1b[C")  # no meaning, then the right arrow
        read_until("step 2  action right")
        player.send_signal(signal.SIGINT)  # what Ctrl-C sends
        assert player.wait(timeout=20) == 0
        settings = subprocess.run(["stty", "-a"], stdin=theirs, capture_output=True, text=True, check=True).stdout
        assert " icanon " in settings
        assert " echo " in settings
    finally:
        player.kill()
        player.wait()
        os.close(ours)
        os.close(theirs)
