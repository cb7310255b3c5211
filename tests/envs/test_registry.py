"""Environments by id: all of the paper's are there, simulators wait until asked for, and mistakes are explained."""

import os
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from e3b_gym.envs import UnknownEnvironmentError, check_options, default_options, make, make_vec, registry
from e3b_gym.envs.registry import SUITES, Suite, Task, all_tasks

PAPER = [
    "MiniHack-MultiRoom-N4-Locked-v0",
    "MiniHack-MultiRoom-N6-Lava-v0",
    "MiniHack-MultiRoom-N6-Lava-OpenDoor-v0",
    "MiniHack-MultiRoom-N6-LavaMonsters-v0",
    "MiniHack-MultiRoom-N10-OpenDoor-v0",
    "MiniHack-MultiRoom-N10-Lava-OpenDoor-v0",
    "MiniHack-LavaCrossingS19N13-v0",
    "MiniHack-LavaCrossingS19N17-v0",
    "MiniHack-Labyrinth-Big-v0",
    "MiniHack-Levitate-Potion-Restricted-v0",
    "MiniHack-Levitate-Boots-Restricted-v0",
    "MiniHack-Freeze-Horn-Restricted-v0",
    "MiniHack-Freeze-Wand-Restricted-v0",
    "MiniHack-Freeze-Random-Restricted-v0",
    "MiniHack-LavaCross-Restricted-v0",
    "MiniHack-WoD-Hard-Restricted-v0",
    "MiniHack-Levitate-Potion-Full-v0",
    "MiniHack-Levitate-Boots-Full-v0",
    "MiniHack-Freeze-Horn-Full-v0",
    "MiniHack-Freeze-Wand-Full-v0",
    "MiniHack-Freeze-Random-Full-v0",
    "MiniHack-LavaCross-Full-v0",
    "MiniHack-WoD-Hard-Full-v0",
    "VizdoomMyWayHomeDense-v0",
    "VizdoomMyWayHomeSparse-v0",
    "VizdoomMyWayHomeVerySparse-v0",
    "MiniGrid-ObstructedMaze-2Dlh-v0",
    "MiniGrid-KeyCorridorS3R3-v0",
    "MiniGrid-MultiRoom-N7-S4-v0",
    "MiniGrid-MultiRoom-N7-S8-v0",
    "MiniGrid-MultiRoom-N10-S4-v0",
    "MiniGrid-MultiRoom-N10-S10-v0",
    "MiniGrid-MultiRoom-N12-S10-v0",
]


def run(code: str, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return done.stdout.strip()


def test_all_ids_of_the_paper_are_listed() -> None:
    assert set(PAPER) <= set(all_tasks())


def test_listing_imports_no_simulator() -> None:
    code = """
import sys
import e3b_gym.envs
from e3b_gym.envs.registry import all_tasks
print(len(all_tasks()) > 50, sorted({"minihack", "nle", "vizdoom", "minigrid", "habitat"} & set(sys.modules)))
"""
    assert run(code) == "True []"


def test_a_missing_simulator_names_the_pip_command() -> None:
    """The packages are hidden from the import system, as if they were not installed."""
    code = """
import sys
from importlib.machinery import PathFinder

class Hide:
    def find_spec(self, name, path=None, target=None):
        hidden = name.split(".")[0] in ("minihack", "minigrid", "vizdoom")
        return None if hidden else PathFinder.find_spec(name, path, target)

sys.meta_path = [finder for finder in sys.meta_path if finder is not PathFinder] + [Hide()]
from e3b_gym.envs import SuiteNotInstalledError, make
for id in sys.argv[1:]:
    try:
        make(id)
    except SuiteNotInstalledError as error:
        print(error)
"""
    packages = {
        "VizdoomMyWayHomeSparse-v0": "vizdoom",
        "VizdoomBasic-v1": "vizdoom",
        "MiniGrid-MultiRoom-N6-v0": "minigrid",
        "MiniHack-Freeze-Horn-Restricted-v0": "minihack",
    }
    for package, message in zip(packages.values(), run(code, *packages).splitlines(), strict=True):
        assert f"pip install 'e3b-gym[{package}]'" in message
        assert repr(package) in message


@pytest.mark.parametrize(
    ("id", "meant"),
    [
        ("MiniGrid-MultiRoom-N7S4-v0", "MiniGrid-MultiRoom-N7-S4-v0"),
        ("minihack-freeze-horn-restricted-v0", "MiniHack-Freeze-Horn-Restricted-v0"),
        ("VizdoomMyWayHomeVerySparce-v0", "VizdoomMyWayHomeVerySparse-v0"),
        ("Cartpole-v1", "CartPole-v1"),
        ("Rooms-K44-v0", "Rooms-K4-v0"),
    ],
)
@pytest.mark.parametrize("call", [make, lambda id: make_vec(id, 2)], ids=["make", "make_vec"])
def test_an_unknown_id_names_the_closest(call, id: str, meant: str) -> None:
    with pytest.raises(UnknownEnvironmentError, match=f"{id}.*did you mean .*{meant}"):
        call(id)


def test_an_id_like_no_other_points_to_the_list() -> None:
    with pytest.raises(UnknownEnvironmentError, match=r"python -m e3b_gym\.envs"):
        make("zzzz")


def test_any_gymnasium_id_works() -> None:
    assert make("CartPole-v1").spec.id == "CartPole-v1"
    assert make("gymnasium.envs.classic_control:CartPole-v1").spec.id == "CartPole-v1"
    gymnasium.register("other/Pole-v3", "gymnasium.envs.classic_control:CartPoleEnv")
    assert make("other/Pole-v3", render_mode="rgb_array").render_mode == "rgb_array"


def test_ids_that_only_the_simulator_knows_come_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="VizdoomBasic-v1 is an unmodified environment of VizDoom"):
        env = make("VizdoomBasic-v1")
    assert env.spec.id == "VizdoomBasic-v1"
    env.close()


def test_max_steps_works_for_every_suite() -> None:
    for id in ("CartPole-v1", "Rooms-v0", "MiniGrid-DoorKey-5x5-v0", "MiniHack-Freeze-Horn-Restricted-v0"):
        env = make(id, max_steps=2)
        env.reset(seed=0)
        assert [env.step(action)[3] for action in (0, 1)] == [False, True], id
        env.close()


def test_a_new_suite_is_one_module_and_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "toy_suite.py").write_text(
        "import gymnasium\n"
        "from e3b_gym.envs.registry import Task\n"
        "TASKS = {'Toy-v0': Task('control', ('left', 'right'), 500, 'nowhere')}\n"
        "def make(id, **options):\n"
        "    return gymnasium.make('CartPole-v1', **options)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "SUITES", (*SUITES, Suite("Toy", "Toy-", "toy_suite", "toy_suite")))
    assert isinstance(all_tasks()["Toy-v0"][1], Task)
    envs = make_vec("Toy-v0", 2, seed=0)
    assert isinstance(envs.unwrapped, SyncVectorEnv)
    assert envs.reset()[0].shape == (2, 4)


def test_the_seed_of_make_vec_serves_the_first_reset_only() -> None:
    envs = make_vec("CartPole-v1", 3, seed=5)
    first, _ = envs.reset()
    second, _ = envs.reset()
    assert not np.array_equal(first, second)
    for i in range(3):
        assert np.array_equal(first[i], make("CartPole-v1").reset(seed=5 + i)[0])
    given = make_vec("CartPole-v1", 3, seed=5)
    assert not np.array_equal(given.reset(seed=6)[0], first), "a seed given to reset wins"
    assert not np.array_equal(given.reset()[0], first), "and the other is not kept for later"


def test_the_kinds_are_what_they_say() -> None:
    inline, process = make_vec("CartPole-v1", 2), make_vec("CartPole-v1", 2, kind="process", start_method="fork")
    assert isinstance(inline, SyncVectorEnv)
    assert isinstance(process, AsyncVectorEnv)
    assert process.shared_memory
    process.close()
    assert type(make_vec("Rooms-v0", 2)).__module__ == "e3b_gym.envs.rooms", "the suite's own batch"


def test_processes_can_be_spawned() -> None:
    """Workers that inherit nothing must find the suite and its late registrations themselves."""
    envs = make_vec("MiniGrid-MultiRoom-N7-S4-v0", 1, seed=0, kind="process", start_method="spawn", noise=4)
    observations, _ = envs.reset()
    envs.close()
    single, _ = make("MiniGrid-MultiRoom-N7-S4-v0", noise=4).reset(seed=0)
    assert all(np.array_equal(observations[key][0], single[key]) for key in single)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "thread"}, "kind must be"),
        ({"num_envs": 0}, "num_envs must be a whole number of at least 1; got 0"),
        ({"num_envs": "2"}, "num_envs must be a whole number of at least 1; got '2'"),
        ({"max_steps": 0}, "max_steps must be a whole number of at least 1 or None; got 0"),
        ({"max_steps": "9"}, "max_steps must be a whole number of at least 1 or None; got '9'"),
        ({"start_method": "fork"}, "start_method='fork' has no effect: kind='inline' starts no processes"),
    ],
)
@pytest.mark.parametrize("id", ["CartPole-v1", "MiniGrid-DoorKey-5x5-v0"])
def test_wrong_settings_are_named(id: str, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_vec(id, **{"num_envs": 1, **options})


def test_arguments_of_make_vec_are_no_options_of_an_environment() -> None:
    check_options({"noise": 3, "layout": "authors"})
    for name in ("seed", "num_envs", "id"):
        with pytest.raises(ValueError, match=rf"{name}: no option of an environment.*n_envs="):
            check_options({"noise": 3, name: 1})


@pytest.mark.parametrize(
    ("id", "some"),
    [
        ("Rooms-K3-v0", {"rooms": 3, "max_steps": 50, "clock": False, "noise": 0, "flat": False}),
        ("MiniGrid-MultiRoom-N2-S4-v0", {"max_steps": 40, "position": False}),
        ("VizdoomMyWayHomeSparse-v0", {"max_steps": 350, "buttons": 5}),
        ("MiniHack-MultiRoom-N4-Locked-v0", {"max_steps": 120, "layout": "standard", "level_pool": 0}),
        ("CartPole-v1", {}),
    ],
)
def test_the_defaults_of_an_environments_options_change_nothing_when_they_are_passed(id: str, some: dict) -> None:
    defaults = default_options(id)
    assert defaults.items() >= some.items()
    assert all(value is not None for value in defaults.values())
    plain, given = make(id), make(id, **defaults)
    first, _ = plain.reset(seed=3)
    second, _ = given.reset(seed=3)
    assert plain.observation_space == given.observation_space
    assert str(first) == str(second)
    plain.close()
    given.close()
