"""The ids, actions, limits and levels of MiniHack's tasks, against the paper's table and the installed MiniHack."""

import importlib
import warnings

import pytest

from e3b_gym.envs.minihack import PAPER_IDS, TASKS
from e3b_gym.envs.minihack.game import key_codes
from e3b_gym.envs.minihack.tasks import MOVES, MultiRoom, StockLevel

PAPER_TABLE = {
    "MiniHack-MultiRoom-N4-Locked-v0": ("OPEN KICK", 120),
    "MiniHack-MultiRoom-N6-Lava-v0": ("", 240),
    "MiniHack-MultiRoom-N6-Lava-OpenDoor-v0": ("", 240),
    "MiniHack-MultiRoom-N6-LavaMonsters-v0": ("", 240),
    "MiniHack-MultiRoom-N10-OpenDoor-v0": ("", 360),
    "MiniHack-MultiRoom-N10-Lava-OpenDoor-v0": ("", 360),
    "MiniHack-LavaCrossingS19N13-v0": ("", 100),
    "MiniHack-LavaCrossingS19N17-v0": ("", 100),
    "MiniHack-Labyrinth-Big-v0": ("", 1000),
    "MiniHack-Levitate-Potion-Restricted-v0": ("PICKUP QUAFF FIRE", 250),
    "MiniHack-Levitate-Boots-Restricted-v0": ("PICKUP WEAR FIRE", 250),
    "MiniHack-Freeze-Horn-Restricted-v0": ("PICKUP APPLY FIRE", 250),
    "MiniHack-Freeze-Wand-Restricted-v0": ("PICKUP ZAP FIRE", 250),
    "MiniHack-Freeze-Random-Restricted-v0": ("PICKUP ZAP APPLY FIRE", 250),
    "MiniHack-LavaCross-Restricted-v0": ("PICKUP ZAP WEAR APPLY QUAFF PUTON FIRE READ", 250),
    "MiniHack-WoD-Hard-Restricted-v0": ("PICKUP ZAP FIRE", 400),
}


def stock_minihack():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pkg_resources
        importlib.import_module("minihack")
        return importlib.import_module("gymnasium")


def test_the_paper_has_nine_navigation_and_seven_skill_tasks():
    kinds = [TASKS[id].kind for id in PAPER_IDS]
    assert kinds == ["navigation"] * 9 + ["skill"] * 7
    assert {id for id, task in TASKS.items() if task.paper} == set(PAPER_IDS) == set(PAPER_TABLE)


@pytest.mark.parametrize("id", PAPER_TABLE)
def test_actions_and_limits_are_the_papers(id):
    extra, max_steps = PAPER_TABLE[id]
    assert TASKS[id].actions == (*MOVES, *extra.split())
    assert TASKS[id].max_steps == max_steps


@pytest.mark.parametrize("id", ["MiniHack-MultiRoom-N4-v0", "MiniHack-MultiRoom-N6-v0", "MiniHack-MultiRoom-N10-v0"])
def test_the_number_of_rooms_stands_in_the_id(id):
    level = TASKS[id].level
    assert isinstance(level, MultiRoom)
    assert f"N{level.rooms}-" in id


SKILLS = [id for id, task in TASKS.items() if task.kind == "skill" and "-Restricted" in id]
UNRESTRICTED = [id.replace("-Restricted", "") for id in SKILLS]  # names after the paper's, which MiniHack lacks


# MiniHack crashes on LavaCrossing.
@pytest.mark.parametrize("id", [id for id in TASKS if "LavaCrossing" not in id and id not in UNRESTRICTED])
def test_every_id_is_minihacks_with_its_actions_and_limit(id, monkeypatch):
    gymnasium = stock_minihack()
    navigation = importlib.import_module("minihack.base")
    recorded = {}

    def record(self, *args, **kwargs):
        recorded.update(kwargs)

    monkeypatch.setattr(navigation.MiniHack, "__init__", record)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MiniGrid calls its N4-S5-v0 outdated
        env_class = gymnasium.envs.registration.load_env_creator(gymnasium.spec(id).entry_point)
        env_class(**gymnasium.spec(id).kwargs)
    assert TASKS[id].max_steps == recorded["max_episode_steps"]
    full = navigation.MH_FULL_ACTIONS
    assert key_codes(TASKS[id].actions) == [int(action) for action in recorded.get("actions", full)]


@pytest.mark.parametrize("suffix", ["-Full", ""])
def test_every_skill_task_has_an_unrestricted_twin_on_the_same_level(suffix):
    for id in SKILLS:
        twin = TASKS[id.replace("-Restricted", suffix)]
        assert twin.max_steps == TASKS[id].max_steps
        assert isinstance(twin.level, StockLevel)
        assert twin.level == TASKS[id].level
        assert set(TASKS[id].actions) < set(twin.actions)


def test_every_task_says_whether_it_is_the_papers_and_where_its_level_comes_from():
    assert TASKS["MiniHack-MultiRoom-N6-LavaMonsters-v0"].source == (
        "the paper; 6 rooms, closed doors, lava walls, 3 monsters (MiniGrid generator)"
    )
    assert TASKS["MiniHack-LavaCrossingS9N1-v0"].source == "9x9 room, 1 lava river (MiniGrid generator)"
    assert all(task.source.startswith("the paper; ") == task.paper for task in TASKS.values())
