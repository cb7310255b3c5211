"""MyWayHome: the spawns, the rewards, the observation, the way to the vest, and nothing left behind."""

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
import vizdoom
from gymnasium.error import ResetNeeded

from e3b_gym.envs import make
from e3b_gym.envs.vizdoom import MAX_STEPS, SIDE, STACK, TIC_REWARD, MyWayHome, _shrink
from e3b_gym.envs.vizdoom.wad import SPARSE, VERY_SPARSE, with_fixed_spawn

INSTALLED = Path(vizdoom.scenarios_path, "my_way_home.wad").read_bytes()
VEST = (1040, -352)
# From each of the map's 17 spots the next one on the way to the vest.
NEXT = {
    (544, -672): (460, -596),
    (460, -596): (467, -467),
    (467, -467): (470, -322),
    (470, -322): (464, -176),
    (240, -176): (464, -176),
    (464, -60): (464, -176),
    (460, 56): (572, 55),
    (572, 55): (694, 58),
    (464, -176): (575, -172),
    (575, -172): (687, -173),
    (687, -173): (687, -62),
    (687, -62): (694, 58),
    (694, 58): (871, 55),
    (871, 55): (1043, 60),
    (1043, 60): (1040, -62),
    (1040, -62): (1039, -170),
    (1039, -170): VEST,
}


def drive(env: MyWayHome) -> list[tuple]:
    """Walks from spot to spot to the vest, by position alone; returns what every step gave."""
    target = NEXT[min(NEXT, key=lambda spot: math.dist(spot, env.position[:2]))]
    shown = []
    while True:
        x, y, angle = env.position
        if target != VEST and math.dist(target, (x, y)) < 40:
            target = NEXT[target]
        error = (math.degrees(math.atan2(target[1] - y, target[0] - x)) - angle + 180) % 360 - 180
        name = "MOVE_FORWARD" if abs(error) < 20 else "TURN_LEFT" if error > 0 else "TURN_RIGHT"
        shown.append(env.step(env.action_names.index(name)))
        if shown[-1][2] or shown[-1][3]:
            return shown


@pytest.fixture(scope="module")
def dense() -> Iterator[MyWayHome]:
    env = make("VizdoomMyWayHomeDense-v0")
    yield env
    env.close()


@pytest.fixture(scope="module")
def sparse() -> Iterator[MyWayHome]:
    env = make("VizdoomMyWayHomeSparse-v0", render_mode="rgb_array")
    yield env
    env.close()


@pytest.mark.parametrize(
    ("id", "x", "y", "angle"),
    [("VizdoomMyWayHomeSparse-v0", 240.0, -176.0, 0.0), ("VizdoomMyWayHomeVerySparse-v0", 543.986, -672.089, 180.0)],
)
@pytest.mark.parametrize("buttons", [5, 3])
def test_the_sparse_variants_start_at_one_spot_and_their_vest_can_be_reached(id, x, y, angle, buttons) -> None:
    env = make(id, buttons=buttons)
    for seed in (0, 1, 2):
        env.reset(seed=seed)
        assert env.position == pytest.approx((x, y, angle), abs=1e-3)
    *before, (_, reward, terminated, truncated, info) = drive(env)
    assert (terminated, truncated, info) == (True, False, {"is_success": True})
    assert all(step[1] == pytest.approx(6 * TIC_REWARD) for step in before)
    assert 1 + 6 * TIC_REWARD <= reward <= 1
    assert all(step[4] == {} for step in before)
    with pytest.raises(ResetNeeded):
        env.step(0)
    env.close()


def test_dense_starts_at_every_spot_with_any_heading_and_the_vest_can_be_reached(dense: MyWayHome) -> None:
    starts = set()
    headings = []
    for seed in range(120):
        dense.reset(seed=seed)
        x, y, angle = dense.position
        starts.add((round(x), round(y)))
        headings.append(angle)
    assert starts == set(NEXT)
    assert np.histogram(headings, bins=6, range=(0, 360))[0].min() > 5
    for seed in (0, 6, 12):
        dense.reset(seed=seed)
        assert drive(dense)[-1][4] == {"is_success": True}


def test_the_time_limit_is_2100_tics_and_not_a_death(sparse: MyWayHome) -> None:
    sparse.reset(seed=0)
    steps = [sparse.step(0) for _ in range(MAX_STEPS)]
    assert MAX_STEPS * 6 == 2100
    assert not any(terminated for _, _, terminated, _, _ in steps)
    assert [truncated for _, _, _, truncated, _ in steps] == [False] * (MAX_STEPS - 1) + [True]
    assert sum(step[1] for step in steps) == pytest.approx(2100 * TIC_REWARD)
    assert steps[-1][0][-1].max() > 0, "the last observation is a screen, not zeros"


def test_frames_enter_at_the_end_and_the_first_fills_the_stack(sparse: MyWayHome) -> None:
    observation, _ = sparse.reset(seed=0)
    assert observation.shape == (STACK, SIDE, SIDE)
    assert all(np.array_equal(frame, observation[0]) for frame in observation)
    for _ in range(STACK + 1):
        before = observation
        observation, *_ = sparse.step(0)
        assert np.array_equal(observation[:-1], before[1:])
        assert not np.array_equal(observation[-1], before[-1]), "turning changes what is seen"


def test_after_the_vest_the_last_screen_stays(sparse: MyWayHome) -> None:
    sparse.reset(seed=0)
    final = drive(sparse)[-1][0]
    assert final[-1].max() > 0
    assert sparse.render().max() > 0


def test_the_picture_is_the_screen_in_gray(sparse: MyWayHome) -> None:
    observation, _ = sparse.reset(seed=0)
    picture = sparse.render()
    assert picture.shape == (120, 160, 3)
    assert np.array_equal(_shrink(picture[..., 0]), observation[-1])


def test_shrinking_keeps_brightness() -> None:
    for value in (0, 7, 255):
        assert (_shrink(np.full((120, 160), value, np.uint8)) == value).all()
    noise = np.random.default_rng(0).integers(256, size=(120, 160), dtype=np.uint8)
    assert _shrink(noise).mean() == pytest.approx(noise.mean(), abs=0.5)
    left_half = np.zeros((120, 160), np.uint8)
    left_half[:, :80] = 200
    assert (_shrink(left_half) == np.repeat([200, 0], SIDE // 2)).all(), "pixels fall where they were"


def test_a_fixed_spawn_changes_only_the_spot_and_the_heading() -> None:
    variants = [with_fixed_spawn(INSTALLED, spawn) for spawn in (SPARSE, VERY_SPARSE)]
    for variant in variants:
        assert len(variant) == len(INSTALLED)
        assert sum(a != b for a, b in zip(variant, INSTALLED, strict=True)) <= 2 + 9
    assert variants[0] != variants[1]


def test_another_map_is_refused() -> None:
    with pytest.raises(ValueError, match=r"found them 0 times.*install vizdoom"):
        with_fixed_spawn(b"PWAD" + bytes(100), SPARSE)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"buttons": 4}, "buttons must be 5"),
        ({"max_steps": "9"}, "max_steps"),
        ({"render_mode": "human"}, "render_mode"),
    ],
)
def test_wrong_options_are_named(options, message) -> None:
    with pytest.raises(ValueError, match=message):
        make("VizdoomMyWayHomeDense-v0", **options)


PLAYER = """
import sys
from e3b_gym.envs import make_vec
envs = make_vec("VizdoomMyWayHomeVerySparse-v0", 2, seed=0, kind=sys.argv[1])
envs.reset()
envs.step([2, 2])
print("playing", flush=True)
input()
envs.close()
"""


@pytest.mark.parametrize("kind", ["inline", "process"])
@pytest.mark.parametrize("ending", ["close", "kill"])
def test_nothing_is_left_behind(tmp_path: Path, kind: str, ending: str) -> None:
    cwd, temporary = tmp_path / "cwd", tmp_path / "tmp"
    cwd.mkdir()
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(Path.cwd())}
    shared_before = set(os.listdir("/dev/shm"))
    player = subprocess.Popen(
        [sys.executable, "-c", PLAYER, kind],
        cwd=cwd,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with player:
        assert player.stdout is not None
        assert player.stdout.readline() == "playing\n"
        family = psutil.Process(player.pid).children(recursive=True)
        engines = [child for child in family if any("viz_instance_id" in word for word in child.cmdline())]
        assert len(engines) == 2
        instances = {words[words.index("+viz_instance_id") + 1] for words in (engine.cmdline() for engine in engines)}
        if ending == "kill":
            player.send_signal(signal.SIGKILL)
            player.wait(timeout=30)
        else:
            player.communicate("\n", timeout=30)
            assert player.returncode == 0
        assert psutil.wait_procs(family, timeout=20)[1] == [], "a process lives on"
        new_shared = set(os.listdir("/dev/shm")) - shared_before
        assert not [name for name in new_shared if any(name.endswith(word) for word in instances)]
        deadline = time.monotonic() + 5
        while list(temporary.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert list(cwd.iterdir()) == []
        assert [path.name for path in temporary.iterdir() if path.name.startswith("e3b-doom")] == []
