"""The MiniHack environment keeps Gymnasium's contract: seeds, episode ends, final observations, ownership, errors."""

import hashlib
import importlib
import pickle
import subprocess
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

import cloudpickle
import gymnasium
import numpy as np
import pytest
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st
from minihack_player import fingerprint, read_level
from stable_baselines3.common.env_checker import check_env as sb3_check_env

from e3b_gym.envs import minihack
from e3b_gym.envs.minihack import almanac
from e3b_gym.envs.minihack.tasks import MOVES

FREEZE, ROOMS, LAVA = (
    "MiniHack-Freeze-Random-Restricted-v0",
    "MiniHack-MultiRoom-N6-v0",
    "MiniHack-MultiRoom-N6-Lava-v0",
)
BLSTATS_TIME = 20


@pytest.fixture
def make():
    """`minihack.make`, closing everything after the test."""
    made = []

    def make_env(*args, **options):
        made.append(minihack.make(*args, **options))
        return made[-1]

    yield make_env
    for env in made:
        env.close()


def play(env, moves):
    for move in moves:
        *outcome, terminated, truncated, info = env.step(env.task.actions.index(move))
        if terminated or truncated:
            break
    return outcome[0], outcome[1], terminated, truncated, info


@pytest.mark.parametrize("id", minihack.PAPER_IDS)
def test_every_task_of_the_paper_passes_both_checkers(id, make):
    with warnings.catch_warnings():
        # The checkers remark that nothing was registered and that NetHack's numbers are not normalised.
        warnings.simplefilter("ignore", UserWarning)
        check_env(make(id), skip_render_check=True)
        sb3_check_env(make(id), warn=False)


@pytest.mark.parametrize("id", minihack.TASKS)
def test_every_task_starts_and_observes_inside_its_space(id, make):
    env = make(id)
    observation, info = env.reset(seed=3)
    assert info == {}
    assert list(observation) == ["glyphs", "blstats", "message", "glyphs_crop"]
    assert observation["glyphs"].shape == (21, 79)
    assert observation["glyphs"].dtype == np.int16
    assert observation["message"].dtype == np.uint8
    assert observation["message"].shape == (256,)
    assert observation["glyphs_crop"].shape == (9, 9)
    assert env.observation_space.contains(observation)
    observation, reward, terminated, truncated, info = env.step(env.action_space.n - 1)
    assert env.observation_space.contains(observation)
    assert type(reward) is float
    assert type(terminated) is type(truncated) is bool
    assert set(info) == ({"is_success", "final_observation_valid"} if terminated or truncated else set())


@pytest.mark.parametrize("id", [FREEZE, LAVA, "MiniHack-WoD-Hard-Restricted-v0"])
def test_a_seed_decides_the_whole_sequence_of_episodes(id, make):
    env, other = make(id), make(id)
    first = fingerprint(env, 11)
    assert fingerprint(other, 11) == first
    other.reset()
    assert fingerprint(other, 11) == first, "a used environment must forget what it played before"
    assert fingerprint(env, 12) != first


def test_a_seed_decides_the_sequence_in_another_process(make):
    here = hashlib.sha1(fingerprint(make(LAVA), 5)).hexdigest()
    code = f"""
import sys, hashlib
sys.path.insert(0, {str(Path(__file__).parent)!r})
from minihack_player import fingerprint
from e3b_gym.envs import minihack
print(hashlib.sha1(fingerprint(minihack.make({LAVA!r}), 5)).hexdigest())
"""
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert there.stdout.strip() == here


def test_without_a_seed_environments_differ(make):
    starts = [make(ROOMS).reset()[0]["glyphs"].tobytes() for _ in range(4)]
    assert len(set(starts)) == 4


def test_the_almanac_agrees_with_nethack_about_the_day(make):
    env = make(FREEZE, crop_size=None)
    env.reset(seed=0)
    game, foretold = env._game, Counter()
    for core_seed in (*range(60), 2**62 - 1):
        game._quit()
        game._nethack.set_initial_seeds(core_seed, 0, False, None)
        game._nethack.reset()
        assert game._open_on_an_ordinary_day() == almanac.is_ordinary(core_seed)
        foretold[almanac.is_ordinary(core_seed)] += 1
    assert foretold[False] > 5


def test_a_game_on_a_special_day_is_drawn_again_without_the_almanac_too(make, monkeypatch):
    with_almanac = fingerprint(make(FREEZE), 3, steps=20)
    monkeypatch.setattr(almanac, "_date_filler", lambda: None)
    env = make(FREEZE)
    assert fingerprint(env, 3, steps=20) == with_almanac
    messages = [env.reset()[0]["message"].tobytes() for _ in range(40)]
    assert not any(b"moon" in message or b"13th" in message for message in messages)


def test_the_time_limit_truncates_and_shows_the_true_last_screen(make):
    env = make("MiniHack-Labyrinth-Big-v0", max_episode_steps=7)
    env.reset(seed=0)
    for step in range(7):
        observation, _, terminated, truncated, info = env.step(step % 2 * 2)
        assert truncated == (step == 6)
    assert not terminated
    assert info == {"is_success": False, "final_observation_valid": True}
    assert observation["blstats"][BLSTATS_TIME] > 0
    assert observation["glyphs_crop"][4, 4] == observation["glyphs"][tuple(observation["blstats"][1::-1])]


@pytest.mark.parametrize(
    "id",
    [
        "MiniHack-MultiRoom-N10-OpenDoor-v0",
        "MiniHack-MultiRoom-N6-Lava-OpenDoor-v0",
        "MiniHack-LavaCrossingS19N13-v0",
        "MiniHack-LavaCrossingS19N17-v0",
        "MiniHack-Labyrinth-Big-v0",
    ],
)
def test_walking_to_the_stairs_succeeds_with_the_true_last_screen(id, make):
    level = read_level(id, seed=4)
    (goal,) = level.stairs_down
    env = make(id)
    observation, _ = env.reset(seed=4)
    assert tuple(observation["blstats"][:2]) == level.start
    observation, reward, terminated, truncated, info = play(env, level.way(level.start, goal))
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert info == {"is_success": True, "final_observation_valid": True}
    assert tuple(observation["blstats"][:2]) == goal


def test_success_with_the_very_last_step_counts(make):
    id = "MiniHack-LavaCrossingS19N13-v0"
    level = read_level(id, seed=4)
    moves = level.way(level.start, *level.stairs_down)
    env = make(id, max_episode_steps=len(moves))
    env.reset(seed=4)
    _, reward, terminated, truncated, info = play(env, moves)
    assert (reward, terminated, truncated, info["is_success"]) == (1.0, True, False, True)


def test_death_terminates_and_flags_the_wiped_screen(make):
    env = make(LAVA)
    env.reset(seed=0)
    for _ in range(60):
        observation, reward, terminated, truncated, info = env.step(MOVES.index("N"))
        if terminated:
            break
    assert terminated
    assert not truncated
    assert reward == 0.0
    assert info == {"is_success": False, "final_observation_valid": False}
    assert not observation["blstats"].any()


def use_the_item(env, command, answers, seed):
    """Walks onto the only object in the room, picks it up, uses it (letter f) and answers what follows."""
    observation, _ = env.reset(seed=seed)
    glyphs = observation["glyphs"].astype(int)
    object_glyphs = (glyphs >= 1906) & (glyphs < 2359)
    if object_glyphs.any():  # else the hero already stands on it
        y, x = np.argwhere(object_glyphs)[0]
        dx, dy = int(x - observation["blstats"][0]), int(y - observation["blstats"][1])
        diagonal = ("N" if dy < 0 else "S") + ("W" if dx < 0 else "E")
        moves = [diagonal] * min(abs(dx), abs(dy))
        moves += ["W" if dx < 0 else "E"] * (abs(dx) - abs(dy)) + ["N" if dy < 0 else "S"] * (abs(dy) - abs(dx))
        play(env, moves)
    return play(env, ["PICKUP", command, "FIRE", *answers])


@pytest.mark.parametrize(
    ("id", "command", "answers"),
    [
        ("MiniHack-Levitate-Potion-Restricted-v0", "QUAFF", []),
        ("MiniHack-Levitate-Boots-Restricted-v0", "WEAR", []),
        ("MiniHack-Freeze-Wand-Restricted-v0", "ZAP", ["N"]),
        ("MiniHack-Freeze-Horn-Restricted-v0", "APPLY", ["NW", "N"]),  # NW is the key y: improvise? yes. Then N: no
        ("MiniHack-Levitate-Potion-Full-v0", "QUAFF", []),
        ("MiniHack-Freeze-Wand-Full-v0", "ZAP", ["N"]),
    ],
)
def test_skill_tasks_are_solved_by_using_the_item(id, command, answers, make):
    env = make(id)
    outcomes = [use_the_item(env, command, answers, seed) for seed in range(6)]
    solved = [outcome for outcome in outcomes if outcome[4].get("is_success")]
    assert len(solved) >= 3
    for observation, reward, terminated, _, info in solved:
        assert terminated
        assert reward in (1.0, 0.99)
        assert info["final_observation_valid"]
        assert observation["message"].any()


def test_a_step_in_which_the_clock_stands_still_costs_a_hundredth(make):
    env = make("MiniHack-Freeze-Wand-Restricted-v0")
    env.reset(seed=0)
    _, reward, *_ = env.step(env.task.actions.index("ZAP"))  # nothing to zap: no time passes
    assert reward == -0.01
    moves = [env.step(action)[1] for action in (0, 2, 0, 2)]
    assert 0.0 in moves


@pytest.mark.parametrize(
    "id",
    ["MiniHack-Freeze-Random-Restricted-v0", "MiniHack-LavaCross-Full-v0", "MiniHack-WoD-Hard-Restricted-v0"],
)
def test_games_are_minihacks_step_by_step(id, make):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pkg_resources
        importlib.import_module("minihack")
        stock = gymnasium.make(
            id,
            observation_keys=["glyphs", "blstats", "message"],
            fix_moon_phase=True,
            disable_env_checker=True,  # from Gymnasium 1.4 on it warns that NLE's observations share memory
        )
    env = make(id, crop_size=None)
    rng = np.random.default_rng(1)
    for episode in range(4):
        ours, _ = env.reset(seed=episode)
        stock.unwrapped.nethack.set_initial_seeds(*env._game.seeds, False, None)
        theirs, _ = stock.reset()
        ended = False
        while not ended:
            for key in ours:
                np.testing.assert_array_equal(ours[key], theirs[key])
            action = int(rng.integers(env.action_space.n))
            ours, reward, terminated, truncated, info = env.step(action)
            theirs, stock_reward, ended, _, stock_info = stock.step(action)
            assert (terminated or truncated, reward) == (ended, stock_reward)
        status = int(stock_info["end_status"])
        assert (truncated, terminated and not info["is_success"], info["is_success"]) == (
            status == -1,
            status == 1,
            status == 2,
        )
    stock.close()


def test_observations_belong_to_the_caller(make):
    env = make(FREEZE)
    kept = [env.reset(seed=0)[0]]
    kept += [env.step(action)[0] for action in (0, 2, 4, 6)]
    copies = [{key: array.copy() for key, array in observation.items()} for observation in kept]
    for _ in range(3):
        env.step(1)
    env.reset()
    for observation, copy in zip(kept, copies, strict=True):
        for key in copy:
            np.testing.assert_array_equal(observation[key], copy[key])


def test_several_environments_in_one_process_do_not_disturb_each_other(make):
    alone = [fingerprint(make(id), 3, steps=30) for id in (LAVA, FREEZE)]
    first, second = make(LAVA), make(FREEZE)
    first.reset(seed=8)
    second.reset(seed=9)
    first.step(0)
    assert [fingerprint(first, 3, steps=30), fingerprint(second, 3, steps=30)] == alone


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32), actions=st.lists(st.integers(0, 10), min_size=1, max_size=30))
def test_any_actions_give_observations_inside_the_space_until_the_episode_ends(seed, actions):
    env = minihack.make(
        "MiniHack-Freeze-Wand-Restricted-v0", crop_size=(4, 7), observation_keys=["message", "tty_colors"]
    )
    try:
        env.reset(seed=seed)
        for action in actions:
            observation, reward, terminated, truncated, _ = env.step(action)
            assert env.observation_space.contains(observation)
            assert reward in (-0.01, 0.0, 0.99, 1.0)
            if terminated or truncated:
                break
    finally:
        env.close()


def test_extra_observations_come_on_request(make):
    env = make(
        FREEZE, observation_keys=["chars", "colors", "tty_chars", "tty_colors", "tty_cursor", "inv_strs"], crop_size=0
    )
    observation, _ = env.reset(seed=0)
    assert list(observation) == ["chars", "colors", "tty_chars", "tty_colors", "tty_cursor", "inv_strs"]
    assert env.observation_space.contains(observation)
    assert b"Hello Agent" in observation["tty_chars"].tobytes()


def test_text_and_picture_show_the_terminal(make):
    text, picture = make(FREEZE, render_mode="ansi"), make(FREEZE, render_mode="rgb_array")
    text.reset(seed=0)
    picture.reset(seed=0)
    assert "Agent the Troglodyte" in text.render()
    assert "\033[" in text.render()
    image = picture.render()
    assert image.shape == (24 * 16, 80 * 9, 3)
    assert image.dtype == np.uint8
    lit_rows = image.reshape(24, 16, -1).any(axis=(1, 2))
    assert lit_rows[0]  # the message line
    assert lit_rows[22]  # the status line
    before = image.copy()
    picture.step(0)
    picture.step(2)
    assert (picture.render() != before).any()
    np.testing.assert_array_equal(image, before)


def test_render_checks_pass(make):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        check_env(make(FREEZE, render_mode="rgb_array"))


def test_without_a_render_mode_nothing_is_drawn(make):
    env = make(FREEZE)
    with pytest.raises(ResetNeeded, match="reset"):
        env.render()
    env.reset(seed=0)
    assert env.render() is None


def test_steps_outside_an_episode_are_refused(make):
    env = make(FREEZE, max_episode_steps=1)
    with pytest.raises(ResetNeeded, match="call reset"):
        env.step(0)
    env.reset(seed=0)
    assert env.step(0)[3]
    with pytest.raises(ResetNeeded, match="call reset"):
        env.step(0)
    env.reset()
    env.step(0)


@pytest.mark.parametrize("action", [-1, 12, 10**9])
def test_actions_out_of_range_are_refused(action, make):
    env = make(FREEZE)
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"outside 0\.\.11"):
        env.step(action)


def test_closing_twice_is_fine_and_a_closed_environment_says_so(make):
    env = make(FREEZE)
    env.reset(seed=0)
    env.close()
    env.close()
    with pytest.raises(ClosedEnvironmentError, match="closed"):
        env.step(0)
    with pytest.raises(ClosedEnvironmentError, match="closed"):
        env.reset()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"crop_size": -3}, "crop_size=-3"),
        ({"crop_size": (3, 0)}, "crop_size"),
        ({"crop_size": 2.5}, "crop_size=2.5"),
        ({"crop_pad": -1}, "crop_pad must be a glyph, 0 to [0-9]+; got -1"),
        ({"crop_pad": "abc"}, "crop_pad must be a glyph, 0 to [0-9]+; got 'abc'"),
        ({"observation_keys": ["glyphs", "nonsense"]}, "nonsense"),
        ({"observation_keys": "glyphs"}, "observation_keys='glyphs'"),
        ({"observation_keys": []}, "observation_keys"),
        ({"observation_keys": 5}, "observation_keys=5"),
        ({"observation_keys": ["internal"]}, "internal"),
        ({"max_episode_steps": 0}, "max_episode_steps must be a whole number of at least 1 or None; got 0"),
        ({"max_episode_steps": "9"}, "max_episode_steps must be a whole number of at least 1 or None; got '9'"),
        ({"level_pool": -1}, "level_pool must be a whole number, 0 or more; got -1"),
        ({"level_pool": "abc"}, "level_pool must be a whole number, 0 or more; got 'abc'"),
        ({"level_pool": True}, "level_pool must be a whole number, 0 or more; got True"),
        ({"render_mode": "human"}, "render_mode='human'"),
    ],
)
def test_bad_options_are_named(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        minihack.make(FREEZE, **options)


def test_options_may_be_numpy_numbers(make):
    options = make(FREEZE, level_pool=np.int64(2), max_episode_steps=np.int32(9), crop_pad=np.int16(0)).options
    assert (options.level_pool, options.max_episode_steps, options.crop_pad) == (2, 9, 0)


def test_unknown_ids_and_unknown_options_are_named():
    with pytest.raises(ValueError, match=r"MiniHack-Nowhere-v0.*MiniHack-Labyrinth-Big-v0"):
        minihack.make("MiniHack-Nowhere-v0")
    with pytest.raises(TypeError, match="cropsize"):
        minihack.make(FREEZE, cropsize=9)


def test_a_pickled_environment_is_a_fresh_one_of_the_same_task(make):
    env = make(FREEZE, crop_size=5, max_episode_steps=9)
    env.reset(seed=1)
    for tool in (pickle, cloudpickle):
        copy = tool.loads(tool.dumps(env))
        assert copy.observation_space == env.observation_space
        assert fingerprint(copy, 2, 20) == fingerprint(env, 2, 20)
        copy.close()


HOLDER = """
import fcntl, os, sys
files = [os.open(path, os.O_RDWR) for path in sys.argv[1:]]
for file in files:
    fcntl.lockf(file, fcntl.LOCK_EX)
print("locked", flush=True)
input()
"""


def test_games_of_other_processes_hold_up_no_ending(make):
    """NetHack locks its score files when a game ends, and sleeps a second where it finds one locked."""
    env, other = make(FREEZE), make(FREEZE)
    env.reset(seed=0)
    other.reset(seed=0)
    theirs = [str(path.resolve()) for path in other._game._directory.iterdir() if not path.is_dir()]
    command = [sys.executable, "-c", HOLDER, *theirs]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "locked\n"
        start = time.perf_counter()
        env.reset()
        assert time.perf_counter() - start < 1
        holder.communicate("\n")
