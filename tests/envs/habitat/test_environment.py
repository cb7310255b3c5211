"""The Gymnasium environment: the paper's setting, seeded episodes, endings, quiet imports."""

import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from gymnasium.error import ResetNeeded

from e3b_gym.envs import SuiteNotInstalledError, make, make_vec
from e3b_gym.envs.__main__ import main as show
from e3b_gym.envs.habitat import dataset, environment
from e3b_gym.envs.habitat.config import Source, make_config
from e3b_gym.envs.habitat.homes import SPLITS
from e3b_gym.envs.habitat.lab import PointNavDataset, habitat, has_habitat_sim
from e3b_gym.envs.habitat.simulator import scene_number

ID = "Habitat-FloorPlan-v0"
STOP, FORWARD, LEFT, RIGHT = range(4)


@pytest.fixture(scope="module")
def env():
    made = make(ID, split="val", size=16)
    yield made
    made.close()


def test_it_is_the_paper_s_setting() -> None:
    env = make(ID, split="val")
    lab = env.config.habitat
    sensors = lab.simulator.agents.main_agent.sim_sensors
    for sensor in (sensors.rgb_sensor, sensors.depth_sensor):
        assert (sensor.height, sensor.width, sensor.hfov, list(sensor.position)) == (128, 128, 90, [0, 1.25, 0])
    depth = sensors.depth_sensor
    assert (depth.min_depth, depth.max_depth, depth.normalize_depth) == (0, 10, True)
    assert (lab.simulator.forward_step_size, lab.simulator.turn_angle) == (0.25, 10)
    assert lab.environment.max_episode_steps == 500
    assert (lab.task.type, lab.dataset.type) == ("Nav-v0", "PointNav-v1")
    assert list(lab.task.actions) == ["stop", "move_forward", "turn_left", "turn_right"]
    assert isinstance(env.habitat, habitat.Env)
    assert env.observation_space["rgb"].shape == (128, 128, 3)
    assert env.num_episodes == 5 * 100


def test_scanned_homes_differ_in_three_settings_only() -> None:
    generated = make_config(Source("FloorPlanSim-v0", "a", "b"), "val", 64, 500, "navigable")
    scanned = make_config(Source("Sim-v0", "c", "d"), "val", 64, 500, "navigable")
    scanned_as_generated = scanned.copy()
    with habitat.read_write(scanned_as_generated):
        scanned_as_generated.habitat.simulator.type = "FloorPlanSim-v0"
        scanned_as_generated.habitat.dataset.data_path = "a"
        scanned_as_generated.habitat.dataset.scenes_dir = "b"
    assert scanned != generated
    assert scanned_as_generated == generated


@pytest.mark.skipif(has_habitat_sim(), reason="this is what is said without it")
def test_without_habitat_sim_the_message_says_what_to_do() -> None:
    with pytest.raises(SuiteNotInstalledError) as error:
        make("Habitat-HM3D-v0", split="val", data_path="here/{split}.json.gz", scenes_dir="there")
    message = str(error.value)
    for part in (
        "conda install habitat-sim",
        "Python 3.11",
        "aihabitat.org/datasets/hm3d",
        "there/hm3d",
        "here/val.json.gz",
        ID,
    ):
        assert part in message


def test_gps_and_compass_tell_where_the_agent_is_since_the_start(env) -> None:
    observation, _ = env.reset(options={"episode": 3})
    assert observation["gps"] == pytest.approx([0, 0], abs=1e-6)
    assert observation["compass"] == pytest.approx([0], abs=1e-6)
    for _ in range(3):
        observation, *_ = env.step(LEFT)
    assert observation["compass"] == pytest.approx([np.deg2rad(30)], abs=1e-5)
    before = env.habitat.sim.get_agent_state().position
    observation, *_ = env.step(FORWARD)
    moved = np.linalg.norm(env.habitat.sim.get_agent_state().position - before)
    assert not env.habitat.sim.previous_step_collided(), "nothing is in the way in this episode"
    assert moved == pytest.approx(0.25, abs=1e-5)
    assert observation["gps"] == pytest.approx([0.25 * np.cos(np.pi / 6), -0.25 * np.sin(np.pi / 6)], abs=1e-5)


def test_stop_terminates_and_the_limit_truncates() -> None:
    env = make(ID, split="val", size=8, max_steps=3)
    env.reset(seed=0)
    assert env.step(LEFT)[1:] == (0.0, False, False, {})
    assert env.step(STOP)[1:] == (0.0, True, False, {})
    with pytest.raises(ResetNeeded):
        env.step(LEFT)
    env.reset()
    assert [env.step(LEFT)[2:4] for _ in range(3)] == [(False, False), (False, False), (False, True)]
    with pytest.raises(ResetNeeded):
        env.step(LEFT)
    env.reset()
    env.step(LEFT)
    env.step(LEFT)
    assert env.step(STOP)[2:4] == (True, False), "stopping at the limit is stopping"


def test_without_stop_there_are_three_actions() -> None:
    env, other = make(ID, split="val", size=8, allow_stop=False), make(ID, split="val", size=8)
    assert env.action_space.n == 3
    assert env.action_names == ("move_forward", "turn_left", "turn_right")
    for each in (env, other):
        each.reset(seed=4)
    for action in (0, 1, 2, 0):
        np.testing.assert_array_equal(env.step(action)[0]["rgb"], other.step(action + 1)[0]["rgb"])


@pytest.mark.parametrize("seed", [0, 1])  # habitat-lab itself takes 0 for no seed
def test_seeds_fix_the_episodes(seed: int) -> None:
    def scenes() -> list[str]:
        env = make(ID, split="val", size=4)
        env.reset(seed=seed)
        chosen = [env.habitat.current_episode.episode_id]
        for _ in range(5):
            env.reset()
            chosen.append(env.habitat.current_episode.episode_id)
        return chosen

    assert scenes() == scenes()
    assert len(set(scenes())) > 3


def test_an_episode_can_be_chosen_and_the_first_are_in_different_homes(env) -> None:
    assert [scene_number(scene) for scene in env.scenes[:100]] == list(SPLITS["val"])
    for n in range(3):
        env.reset(options={"episode": n})
        assert env.habitat.sim.home.number == 800 + n


@pytest.mark.parametrize("split", [pytest.param("train", marks=pytest.mark.slow), "val", "test"])
def test_a_split_is_read_by_habitat_s_own_dataset_and_has_its_own_homes(split: str) -> None:
    env = make(ID, split=split, size=4)
    assert type(env._dataset) is PointNavDataset
    assert {scene_number(scene) for scene in env.scenes} == set(SPLITS[split])
    assert env.num_episodes == 5 * len(SPLITS[split])


def test_environments_share_episodes_and_leave_them_as_they_are() -> None:
    a, b = make(ID, split="val", size=4), make(ID, split="val", size=4)
    assert a._dataset is b._dataset
    order = [each.episode_id for each in a._dataset.episodes]
    for env in (a, b):
        for seed in range(3):
            env.reset(seed=seed)
    assert [each.episode_id for each in a._dataset.episodes] == order == [str(n) for n in range(500)]


def test_the_global_generators_are_left_alone() -> None:
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    before = random.getstate(), np.random.get_state()  # noqa: NPY002
    env = make(ID, split="val", size=4)
    env.reset(seed=3)
    env.step(FORWARD)
    env.reset()
    assert random.getstate() == before[0]
    np.testing.assert_array_equal(np.random.get_state()[1], before[1][1])  # noqa: NPY002


def test_every_start_is_navigable(env) -> None:
    for n in range(0, env.num_episodes, 7):
        start = env._dataset.episodes[n].start_position
        env.reset(options={"episode": n})
        assert env.habitat.sim.get_agent_state().position == pytest.approx(start)


def test_an_unwritable_cache_falls_back_to_a_temporary_directory(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("E3B_CACHE", str(tmp_path / "file"))
    dataset._directory.cache_clear()
    try:
        assert dataset.write_split("test").is_file()
    finally:
        monkeypatch.undo()
        dataset._directory.cache_clear()


def test_a_user_without_a_home_gets_a_temporary_directory(tmp_path: Path, monkeypatch) -> None:
    for name in ("E3B_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "~")  # as for a user without an entry
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert dataset._directory.__wrapped__().parent == tmp_path


def test_random_play_never_stops_and_names_what_it_does(tmp_path: Path, capsys) -> None:
    assert show([f"ENV={ID}", "WATCH=1", "STEPS=20", "SEED=0"]) == 0
    shown = capsys.readouterr().out
    assert "episode 1  step 20  action " in shown
    assert set(re.findall(r"action (\w+)", shown)) == {"move_forward", "turn_left", "turn_right"}
    assert show([f"ENV={ID}", f"RECORD={tmp_path / 'film.gif'}", "STEPS=20", "SEED=0"]) == 0
    assert "21 frames" in capsys.readouterr().out  # another episode would begin with one more


def test_render_shows_the_camera_and_the_map() -> None:
    env = make(ID, split="val", size=32, render_mode="rgb_array")
    observation, _ = env.reset(seed=0)
    np.testing.assert_array_equal(env.render(), observation["rgb"])
    env = make(ID, split="val", size=32, render_mode="rgb_array", coverage=True)
    env.reset(seed=0)
    assert env.render().shape[1] > 100


def test_a_batch_of_many_is_cheap() -> None:
    """32 environments share homes, episodes and compiled code."""
    envs = make_vec(ID, 32, split="val", size=8)
    envs.reset(seed=0)
    observations, *_ = envs.step(np.ones(32, np.int64))
    assert observations["depth"].shape == (32, 8, 8, 1)
    assert len({id(env.unwrapped._dataset) for env in envs.envs}) == 1
    envs.close()


@pytest.mark.slow  # each process imports habitat-lab; the contract of all suites covers fork
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_it_works_in_processes(method: str) -> None:
    code = f"""
from e3b_gym.envs import make, make_vec
if __name__ == "__main__":
    single = make({ID!r}, split="val", size=8)
    first, _ = single.reset(seed=7)
    envs = make_vec({ID!r}, 1, seed=7, kind="process", split="val", size=8, start_method={method!r})
    observations, _ = envs.reset()
    envs.close()
    print((observations["rgb"][0] == first["rgb"]).all())
"""
    assert run(code) == ("True", "")


def test_importing_and_making_print_nothing() -> None:
    code = f"""
import sys, warnings
import e3b_gym.envs, e3b_gym.envs.habitat
filters = list(warnings.filters)
assert not {{"habitat", "gym", "cv2"}} & set(sys.modules)
env = e3b_gym.envs.make({ID!r}, split="val", size=8)
env.reset(seed=0)
env.step(1)
assert warnings.filters == filters, "filters of the program are left alone"
"""
    assert run(code) == ("", "")


def run(code: str) -> tuple[str, str]:
    """(stdout, stderr) of a new interpreter, without what pytest has imported."""
    path = Path(os.environ["E3B_CACHE"], "program.py")  # spawned processes read it again
    path.write_text(code)
    environment_ = {**os.environ, "PYTHONPATH": str(Path(environment.__file__).parents[3])}
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, env=environment_)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr.strip()
