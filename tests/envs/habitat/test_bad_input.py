"""Mistakes with Habitat's environment: each is answered by an error that says what is wrong, and leaves no mess."""

import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest
from gymnasium.error import ResetNeeded

from e3b_gym.envs import make
from e3b_gym.envs.habitat import dataset

ID = "Habitat-FloorPlan-v0"


@pytest.fixture(scope="module")
def env():
    made = make(ID, split="val", size=4)
    yield made
    made.close()


def write_episodes(folder: Path, episodes: list[dict]) -> str:
    (folder / "val").mkdir()
    (folder / "val" / "val.json.gz").write_bytes(gzip.compress(json.dumps({"episodes": episodes}).encode()))
    return str(folder / "{split}" / "{split}.json.gz")


def episode(**changes) -> dict:
    path = dataset.write_split("val")
    return {**json.loads(gzip.decompress(path.read_bytes()))["episodes"][0], **changes}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size must be a whole number of at least 1, got 0; the paper has 256 pixels"),
        ({"size": "big"}, "size must be a whole number of at least 1, got 'big'"),
        ({"max_steps": 1.5}, "max_steps must be a whole number of at least 1 or None; got 1.5"),
        ({"split": "validation"}, "unknown split 'validation'; choose from train, val, test"),
        ({"coverage_ratio": "half"}, "unknown coverage_ratio 'half'; choose from navigable, authors"),
        ({"render_mode": "human"}, "unknown render_mode 'human'"),
    ],
)
def test_bad_options_are_explained(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(ID, **{"split": "val", **options})


def test_an_empty_split_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the split 'val' has no episodes"):
        make(ID, split="val", data_path=write_episodes(tmp_path, []))


def test_missing_episodes_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"val\.json\.gz; docs/habitat\.md"):
        make(ID, split="val", data_path=str(tmp_path / "{split}.json.gz"))


def test_a_scene_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no scene 'floorplan/home-2000'"):
        make(ID, split="val", data_path=write_episodes(tmp_path, [episode(scene_id="home-2000")]))


def test_a_start_inside_a_wall_is_an_error(tmp_path: Path) -> None:
    path = write_episodes(tmp_path, [episode(), episode(start_position=[0.0, 0.0, 0.0])])
    env = make(ID, split="val", size=4, data_path=path)
    env.reset(options={"episode": 0})
    place = r"\(0\.00, 0\.00, 0\.00\)"
    with pytest.raises(ValueError, match=rf"episode 1 of 'val' cannot start: .* stand at {place} in 'home-0800'"):
        env.reset(options={"episode": 1})


@pytest.mark.parametrize("start", [[500.0, 0.0, 500.0], [float("nan"), 0.0, 1.0]])
def test_a_start_outside_the_home_is_an_error(start: list[float], tmp_path: Path) -> None:
    env = make(ID, split="val", size=4, data_path=write_episodes(tmp_path, [episode(start_position=start)]))
    with pytest.raises(ValueError, match="an agent cannot stand at"):
        env.reset()


@pytest.mark.parametrize("allow_stop", [True, False])
def test_an_action_that_does_not_exist_is_an_error(allow_stop: bool) -> None:
    env = make(ID, split="val", size=4, allow_stop=allow_stop)
    env.reset(seed=0)
    for wrong in (-1, env.action_space.n, 1.0, "move_forward", np.array([1])):
        with pytest.raises(ValueError, match=rf"actions are 0 to {env.action_space.n - 1} \(.*turn_right\), got "):
            env.step(wrong)
    for right in (1, np.int32(1), np.array(1)):
        env.step(right)


@pytest.mark.parametrize("wrong", [-1, 500, 1.5, "3", None])
def test_an_episode_that_does_not_exist_is_an_error(env, wrong) -> None:
    with pytest.raises(ValueError, match=f"no episode {wrong!r}; the split has 500"):
        env.reset(options={"episode": wrong})


@pytest.mark.parametrize("wrong", [{"scene_id": "home-2000"}, {"start_position": [0.0, 0.0, 0.0]}])
def test_after_an_episode_that_could_not_begin_none_is_running(wrong: dict, tmp_path: Path) -> None:
    path = write_episodes(tmp_path, [episode(), episode(**wrong)])
    env = make(ID, split="val", size=4, data_path=path, render_mode="rgb_array")
    first, _ = env.reset(options={"episode": 0})
    with pytest.raises(ValueError, match=r"there is no scene|cannot stand"):
        env.reset(options={"episode": 1})
    with pytest.raises(ResetNeeded):
        env.step(1)
    assert env.render() is None
    again, _ = env.reset(options={"episode": 0})
    np.testing.assert_array_equal(again["rgb"], first["rgb"])


@pytest.mark.parametrize(
    "content",
    [b"hello", gzip.compress(b"hello"), gzip.compress(b"{}"), gzip.compress(b'{"episodes": []}')[:-12]],
    ids=["text", "no JSON", "no episodes", "cut off"],
)
def test_a_file_that_holds_no_episodes_is_named(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "mine.json.gz"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"mine\.json\.gz is not a file of habitat-lab's PointNav episodes"):
        make(ID, split="val", data_path=str(file))


def test_a_file_that_was_rewritten_is_read_again(tmp_path: Path) -> None:
    path = write_episodes(tmp_path, [episode()])
    assert make(ID, split="val", size=4, data_path=path).num_episodes == 1
    file = Path(path.format(split="val"))
    file.write_bytes(gzip.compress(json.dumps({"episodes": [episode(), episode()]}).encode()))
    os.utime(file, (1, 1))
    assert make(ID, split="val", size=4, data_path=path).num_episodes == 2
