"""Rooms: layouts, rules, seeding, and that single and vector environments are identical."""

import copy
import pickle
import time
from collections import deque

import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env as gymnasium_check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3.common.env_checker import check_env as sb3_check_env

from e3b_gym.envs import rooms
from e3b_gym.envs.rooms._kernels import CLOSED_DOOR, FLOOR, GOAL, OPEN_DOOR, VOID, WALL

UP, RIGHT, DOWN, LEFT, OPEN = range(5)
MOVES = {UP: (0, -1), RIGHT: (1, 0), DOWN: (0, 1), LEFT: (-1, 0)}
SEEDS = st.integers(0, 2**64 - 1)


def regions(passable):
    """The connected sets of cells (x, y) of a [y, x] mask."""
    left = {(int(x), int(y)) for y, x in np.argwhere(passable)}
    found = []
    while left:
        region, queue = set(), deque([left.pop()])
        while queue:
            x, y = queue.popleft()
            region.add((x, y))
            for dx, dy in MOVES.values():
                if (x + dx, y + dy) in left:
                    left.remove((x + dx, y + dy))
                    queue.append((x + dx, y + dy))
        found.append(region)
    return found


def plan(layout):
    """The actions of a shortest path to the goal, a door costing one action more."""
    queue, seen = deque([(layout.agent, [])]), {layout.agent}
    while queue:
        (x, y), actions = queue.popleft()
        if (x, y) == layout.goal:
            return actions
        for move, (dx, dy) in MOVES.items():
            tile = layout.tiles[y + dy, x + dx]
            if tile not in (VOID, WALL) and (x + dx, y + dy) not in seen:
                seen.add((x + dx, y + dy))
                queue.append(((x + dx, y + dy), actions + ([OPEN, move] if tile == CLOSED_DOOR else [move])))
    raise AssertionError("the goal cannot be reached")


def assert_same(a, b):
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, tuple) or (isinstance(a, np.ndarray) and a.dtype == object):
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    else:
        assert np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_array_equal(a, b)


# --- layouts ---------------------------------------------------------------------------------------------


@given(seed=SEEDS, length=st.integers(2, 12))
@settings(deadline=None, max_examples=150)
def test_a_layout_is_a_chain_of_whole_rooms_joined_by_closed_doors(seed, length):
    env = rooms.make("Rooms-v0", rooms=length)
    env.reset(seed=seed)
    layout = env.layout()
    tiles = layout.tiles
    assert np.isin(tiles, (VOID, FLOOR, WALL, CLOSED_DOOR, GOAL)).all()
    assert (tiles == GOAL).sum() == 1
    assert (tiles == CLOSED_DOOR).sum() == length - 1

    chambers = regions(np.isin(tiles, (FLOOR, GOAL)))
    assert len(chambers) == length  # had two rooms overlapped, there would be fewer, or larger ones
    for chamber in chambers:
        xs, ys = {x for x, _ in chamber}, {y for _, y in chamber}
        assert len(chamber) == 9
        assert max(xs) - min(xs) == max(ys) - min(ys) == 2
        ring = tiles[min(ys) - 1 : max(ys) + 2, min(xs) - 1 : max(xs) + 2].copy()
        ring[1:-1, 1:-1] = WALL
        assert np.isin(ring, (WALL, CLOSED_DOOR)).all()  # no gap to the outside

    # walking from the agent's room through the doors visits every room once, and the goal is in the last
    links = {i: set() for i in range(length)}
    for y, x in np.argwhere(tiles == CLOSED_DOOR):
        sides = [{(x + dx, y + dy) for dx, dy in MOVES.values()} & chamber for chamber in chambers]
        a, b = (i for i, touching in enumerate(sides) if touching)
        links[a].add(b)
        links[b].add(a)
    here = next(i for i, chamber in enumerate(chambers) if layout.agent in chamber)
    order = [here]
    while onward := links[order[-1]] - set(order):
        assert len(onward) == 1
        order.append(onward.pop())
    assert len(order) == length
    assert layout.goal in chambers[order[-1]]


def test_a_new_layout_comes_with_every_episode():
    env = rooms.make("Rooms-K4-v0")
    env.reset(seed=0)
    maps = set()
    for _ in range(50):
        maps.add(env.layout().tiles.tobytes() + bytes(env.layout().agent))
        env.reset()
    assert len(maps) == 50


def test_every_turn_is_as_likely_as_the_others():
    """Of the first steps of many chains, a quarter goes in each direction (edges treat them alike)."""
    venv = rooms.make_vec("Rooms-v0", 4000, rooms=2)
    venv.reset(seed=0)
    counts = np.zeros(4)
    for i in range(venv.num_envs):
        (door_y, door_x) = np.argwhere(venv.layout(i).tiles == CLOSED_DOOR)[0]
        vertical_wall = door_x % 4 == 0
        x, y = venv.layout(i).agent
        counts[(RIGHT if x < door_x else LEFT) if vertical_wall else (DOWN if y < door_y else UP)] += 1
    assert np.abs(counts / counts.sum() - 0.25).max() < 0.03  # over 4 standard deviations


# --- rules -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", sorted(rooms.TASKS))
def test_a_scripted_agent_solves_every_layout_in_time(id):
    venv = rooms.make_vec(id, 200)
    venv.reset(seed=1)
    plans = [plan(venv.layout(i)) for i in range(200)]
    won = np.zeros(200, bool)
    for step in range(max(map(len, plans))):
        actions = [todo[step] if step < len(todo) else OPEN for todo in plans]
        _, reward, terminated, truncated, infos = venv.step(actions)
        due = np.array([step == len(todo) - 1 for todo in plans])
        np.testing.assert_array_equal(terminated[~won], due[~won])
        np.testing.assert_array_equal(reward[~won], due[~won].astype(float))
        assert not truncated[~won].any()
        if due.any():
            np.testing.assert_array_equal(infos["final_info"]["is_success"][due], True)
        won |= due
    assert won.all()


def to_the_first_door(env):
    """Walks to a cell next to the first door; returns the move that leads into it."""
    actions = plan(env.layout())
    stop = actions.index(OPEN)
    for action in actions[:stop]:
        env.step(action)
    return actions[stop + 1]


@given(seed=SEEDS)
@settings(deadline=None, max_examples=30)
def test_a_door_blocks_until_it_is_opened(seed):
    env = rooms.make("Rooms-K4-v0")
    env.reset(seed=seed)
    into_the_door = to_the_first_door(env)
    before = env.layout().agent
    env.step(into_the_door)
    assert env.layout().agent == before
    env.step(OPEN)
    assert env.layout().agent == before
    dx, dy = MOVES[into_the_door]
    assert env.layout().tiles[before[1] + dy, before[0] + dx] == OPEN_DOOR
    env.step(into_the_door)
    assert env.layout().agent == (before[0] + dx, before[1] + dy)
    env.step(OPEN)  # opening next to an open door leaves it open
    assert (env.layout().tiles == OPEN_DOOR).sum() == 1


@given(seed=SEEDS, actions=st.lists(st.integers(0, 4), max_size=60))
@settings(deadline=None, max_examples=60)
def test_walls_hold_and_views_show_the_map_around_the_agent(seed, actions):
    env = rooms.make("Rooms-K5-v0")
    obs, _ = env.reset(seed=seed)
    for action in [*actions, UP]:
        layout = env.layout()
        x, y = layout.agent
        assert layout.tiles[y, x] in (FLOOR, OPEN_DOOR)
        assert tuple(obs["position"]) == (x, y)
        np.testing.assert_array_equal(obs["view"], np.pad(layout.tiles, 3)[y : y + 7, x : x + 7])
        assert obs in env.observation_space
        obs, reward, terminated, _, _ = env.step(action)
        if terminated:
            assert (reward, env.layout().agent) == (1.0, layout.goal)
            break
        assert reward == 0.0


def test_the_time_limit_truncates_and_says_so():
    env = rooms.make("Rooms-K4-v0", max_steps=7)
    env.reset(seed=0)
    for step in range(1, 8):
        _, reward, terminated, truncated, info = env.step(OPEN)
        assert (reward, terminated, truncated) == (0.0, False, step == 7)
        assert info == ({"is_success": False} if step == 7 else {})


def test_reaching_the_goal_in_the_last_step_is_success_not_truncation():
    env = rooms.make("Rooms-K4-v0")
    env.reset(seed=5)
    todo = plan(env.layout())
    env = rooms.make("Rooms-K4-v0", max_steps=len(todo))
    env.reset(seed=5)
    outcome = [env.step(action) for action in todo][-1]
    assert outcome[1:] == (1.0, True, False, {"is_success": True})


def test_a_random_policy_hardly_ever_finds_the_goal():
    venv = rooms.make_vec("Rooms-K4-v0", 500)
    venv.reset(seed=0)
    generator = np.random.default_rng(0)
    episodes, successes = 0, 0
    for _ in range(40 * 100):
        _, _, terminated, truncated, _ = venv.step(generator.integers(0, 5, 500))
        episodes += (terminated | truncated).sum()
        successes += terminated.sum()
    assert episodes >= 20_000
    assert 0 < successes / episodes < 0.006


# --- clock, noise, flat ----------------------------------------------------------------------------------


def test_the_clock_counts_steps_and_restarts_with_the_episode():
    env = rooms.make("Rooms-K4-v0", clock=True, max_steps=1500)
    weights = 2 ** np.arange(10)
    obs, _ = env.reset(seed=0)
    for step in range(1500):
        assert obs["clock"] @ weights == step % 1024
        obs = env.step(OPEN)[0]
    assert env.reset()[0]["clock"].sum() == 0


def test_noise_is_seeded_yet_looks_like_coin_tosses():
    def record(seed):
        env = rooms.make("Rooms-K4-v0", noise=70, max_steps=2000)
        rows = [env.reset(seed=seed)[0]["noise"]]
        rows += [env.step(OPEN)[0]["noise"] for _ in range(2000)]
        return np.array(rows, float)

    bits = record(3)
    np.testing.assert_array_equal(bits, record(3))
    assert not np.array_equal(bits, record(4))
    sigma = 0.5 / np.sqrt(len(bits))
    assert np.abs(bits.mean(0) - 0.5).max() < 5 * sigma  # each bit is fair,
    signs = 2 * bits - 1
    assert np.abs((signs[1:] * signs[:-1]).mean(0)).max() < 5 * 2 * sigma  # says nothing of the next step,
    among = np.abs(np.corrcoef(bits.T) - np.eye(70))
    assert among.max() < 5 * 2 * sigma  # nor of the other bits
    assert len(np.unique(bits, axis=0)) == len(bits)


def test_options_leave_the_layouts_of_a_seed_alone():
    def layouts(**options):
        env = rooms.make("Rooms-K4-v0", max_steps=10, **options)
        found = []
        for episode in range(5):
            env.reset(seed=11 if episode == 0 else None)
            found.append(env.layout().tiles)
            for _ in range(10):
                env.step(OPEN)
        return np.array(found)

    plain = layouts()
    for options in ({"clock": True}, {"noise": 300}, {"flat": True}):
        np.testing.assert_array_equal(plain, layouts(**options))


@pytest.mark.parametrize("options", [{}, {"clock": True}, {"noise": 5}, {"clock": True, "noise": 100}])
def test_the_flat_vector_says_what_the_dict_says(options):
    flat, parts = (rooms.make_vec("Rooms-K4-v0", 6, flat=f, **options) for f in (True, False))
    vectors, dicts = flat.reset(seed=0)[0], parts.reset(seed=0)[0]
    generator = np.random.default_rng(0)
    for _ in range(150):
        expected = [np.eye(6)[dicts["view"]].reshape(6, -1)]
        expected += [np.eye(17)[dicts["position"][:, axis]] for axis in (0, 1)]
        expected += [dicts[key] for key in ("clock", "noise") if key in dicts]
        np.testing.assert_array_equal(vectors, np.concatenate(expected, axis=1))
        assert vectors in flat.observation_space
        assert dicts in parts.observation_space
        actions = generator.integers(0, 5, 6)
        vectors, dicts = flat.step(actions)[0], parts.step(actions)[0]


# --- one and many ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"clock": True, "noise": 9}, {"clock": True, "flat": True}])
def test_the_vector_environment_equals_gymnasiums_vector_of_single_ones(options):
    """Equal over many episodes: observations, rewards, ends, and infos with final observations and masks."""
    options = {"max_steps": 30, "rooms": 2, **options}
    ours = rooms.make_vec("Rooms-v0", 5, **options)
    singles = SyncVectorEnv([lambda: rooms.make("Rooms-v0", **options)] * 5, autoreset_mode=AutoresetMode.SAME_STEP)
    assert ours.observation_space == singles.observation_space
    assert ours.action_space == singles.action_space
    assert_same(ours.reset(seed=40), singles.reset(seed=40))
    generator = np.random.default_rng(0)
    wins = 0
    for _ in range(400):
        actions = generator.integers(0, 5, 5)
        outcome = ours.step(actions)
        assert_same(outcome, singles.step(actions))
        wins += outcome[2].sum()
        for i in range(5):
            assert_same(vars(ours.layout(i)), vars(singles.envs[i].unwrapped.layout()))
    assert_same(ours.reset(), singles.reset())
    assert 0 < wins < 400 * 5 / 30  # ends of both kinds were compared


def test_seeds_may_be_given_one_by_one_and_resets_without_one_continue_the_stream():
    venv = rooms.make_vec("Rooms-K4-v0", 3)
    first = venv.reset(seed=[7, 9, 7])[0]
    np.testing.assert_array_equal(first["view"][0], first["view"][2])
    second = venv.reset()[0]
    assert not np.array_equal(first["view"], second["view"])
    np.testing.assert_array_equal(second["view"][0], second["view"][2])
    again = venv.reset(seed=[7, None, 7])[0]
    np.testing.assert_array_equal(again["view"][[0, 2]], first["view"][[0, 2]])
    with pytest.raises(ValueError, match="got 2 seeds for 3 environments"):
        venv.reset(seed=[1, 2])


def test_unseeded_environments_differ_from_run_to_run():
    starts = [rooms.make_vec("Rooms-K4-v0", 8).reset()[0]["position"] for _ in range(2)]
    assert not np.array_equal(*starts)


@pytest.mark.parametrize("flat", [False, True])
def test_observations_belong_to_the_caller(flat):
    venv = rooms.make_vec("Rooms-K4-v0", 4, clock=True, flat=flat, max_steps=20)
    obs, _ = venv.reset(seed=0)
    kept, copies = [], []
    generator = np.random.default_rng(0)
    for _ in range(60):
        kept.append(obs)
        copies.append(copy.deepcopy(obs))
        obs, _, _, _, infos = venv.step(generator.integers(0, 5, 4))
        if infos:
            kept.append({str(i): last for i, last in enumerate(infos["final_obs"]) if last is not None})
            copies.append(copy.deepcopy(kept[-1]))
    for mine, snapshot in zip(kept, copies, strict=True):
        assert_same(mine, snapshot)
    obs["view" if not flat else ...][:] = 1  # and writing to them does not change the environment
    assert not (venv.step(np.full(4, OPEN))[0]["view" if not flat else ...] == 1).all()


def test_a_pickled_or_copied_environment_continues_the_same_way():
    env = rooms.make("Rooms-K4-v0", clock=True, noise=8)
    env.reset(seed=0)
    env.step(RIGHT)
    for twin in (pickle.loads(pickle.dumps(env)), copy.deepcopy(env)):
        original = copy.deepcopy(env)
        for _ in range(3):
            assert_same(original.step(DOWN)[0], twin.step(DOWN)[0])
            assert_same(original.reset()[0], twin.reset()[0])


# --- interfaces ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"clock": True, "noise": 16}, {"flat": True}])
def test_the_checkers_of_gymnasium_and_sb3_find_nothing(options):
    gymnasium_check_env(rooms.make("Rooms-K4-v0", **options), skip_render_check=True)
    # SB3 remarks that a 7 x 7 box is neither image nor vector, which is true and intended
    sb3_check_env(rooms.make("Rooms-K4-v0", **options), warn=bool(options.get("flat")))


def test_pictures_show_the_map_and_the_agent():
    text = rooms.make("Rooms-K4-v0", render_mode="ansi")
    text.reset(seed=0)
    picture = text.render()
    lines = picture.split("\n")
    x, y = text.layout().agent
    assert lines[y][x] == "@"
    assert (picture.count("G"), picture.count("+"), picture.count("@")) == (1, 3, 1)

    pixels = rooms.make_vec("Rooms-K4-v0", 3, render_mode="rgb_array")
    pixels.reset(seed=0)
    frames = pixels.render()
    assert len(frames) == 3
    assert frames[0].shape == (17 * 8, 17 * 8, 3)
    assert frames[0].dtype == np.uint8
    assert len(np.unique(frames[0].reshape(-1, 3), axis=0)) == 6  # nothing, floor, wall, door, goal, agent
    assert rooms.make_vec("Rooms-K4-v0", 1).render() is None


def test_ids_carry_what_the_registry_needs():
    assert rooms.TASKS["Rooms-v0"] == rooms.TASKS["Rooms-K4-v0"]
    assert rooms.TASKS["Rooms-K4-v0"].max_steps == 100
    assert rooms.TASKS["Rooms-K5-v0"].max_steps == 150
    for id, task in rooms.TASKS.items():
        assert rooms.make(id).config.time_limit == task.max_steps
        assert rooms.make(id).config.rooms == task.rooms
        assert task.actions == ("up", "right", "down", "left", "open")
        assert task.kind
        assert task.source


@pytest.mark.parametrize(
    ("id", "options", "message"),
    [
        ("Rooms-K99-v0", {}, "unknown task 'Rooms-K99-v0'; choose from Rooms-K10-v0"),
        ("Rooms-K4-v0", {"rooms": 5}, "the id fixes the number of rooms, use Rooms-v0"),
        ("Rooms-v0", {"colour": 1}, "no option colour; choose from clock, flat"),
        ("Rooms-v0", {"rooms": 1}, "rooms must be a whole number from 2 to 32, got 1"),
        ("Rooms-v0", {"rooms": 2.5}, "rooms must be a whole number from 2 to 32, got 2.5"),
        ("Rooms-v0", {"rooms": True}, "rooms must be a whole number"),
        ("Rooms-v0", {"max_steps": 0}, "max_steps must be a whole number at least 1, got 0"),
        ("Rooms-v0", {"noise": -1}, "noise must be a whole number at least 0, got -1"),
        ("Rooms-v0", {"clock": 10}, "clock must be True or False, got 10"),
        ("Rooms-v0", {"flat": "yes"}, "flat must be True or False, got 'yes'"),
        ("Rooms-v0", {"render_mode": "human"}, "unknown render_mode 'human'; choose from ansi, rgb_array"),
    ],
)
def test_a_bad_option_is_named_with_its_remedy(id, options, message):
    with pytest.raises(ValueError, match=message):
        rooms.make(id, **options)
    with pytest.raises(ValueError, match=message):
        rooms.make_vec(id, 2, **options)


def test_misuse_is_named():
    with pytest.raises(ValueError, match="num_envs must be a whole number of at least 1, got 0"):
        rooms.make_vec("Rooms-v0", 0)
    env, venv = rooms.make("Rooms-v0", max_steps=1), rooms.make_vec("Rooms-v0", 2)
    for each in (env, venv):
        with pytest.raises(ResetNeeded, match=r"call reset\(\)"):
            each.step(0)
    with pytest.raises(ResetNeeded, match=r"no map yet; call reset\(\)"):
        venv.layout(0)
    with pytest.raises(ValueError, match="non-negative"):
        venv.reset(seed=-1)
    venv.reset(seed=0)
    for actions in ([0, 5], [-1, 0], [0, 0, 0], [0.5, 1.0]):
        with pytest.raises(ValueError, match="actions must be 2 numbers from 0 to 4"):
            venv.step(np.array(actions))
    env.reset(seed=0)
    with pytest.raises(ValueError, match="from 0 to 4"):
        env.step(5)
    env.step(0)
    with pytest.raises(ResetNeeded, match="no episode is running"):
        env.step(0)


@pytest.mark.slow
def test_half_a_million_steps_a_second():
    venv = rooms.make_vec("Rooms-K4-v0", 256, clock=True)
    venv.reset(seed=0)
    actions = np.random.default_rng(0).integers(0, 5, (300, 256))
    rates = []
    for _ in range(5):
        start = time.perf_counter()
        for row in actions:
            venv.step(row)
        rates.append(actions.size / (time.perf_counter() - start))
    assert max(rates) > 500_000
