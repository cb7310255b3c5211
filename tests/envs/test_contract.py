"""What every suite promises, in one place: seeds, endings, last observations, ownership, spaces.

The strongest promise is tested as an equality: environment i of a batch, inline or in processes, shows step by step
what a single environment seeded with seed + i shows.
"""

from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as check_with_gymnasium
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.env_checker import check_env as check_with_sb3

from e3b_gym.envs import make, make_vec
from e3b_gym.envs.registry import all_tasks

SLOW_IDS = {"MiniGrid-MultiRoom-N12-S10-v0"}
ELSEWHERE = {"Habitat-HM3D-v0"}
"""Their simulator and data come from elsewhere; tests/envs/habitat tests what is said then."""
EPISODE, STEPS, SEED = 9, 30, 11


@dataclass(frozen=True)
class Case:
    """A representative of a suite."""

    id: str
    options: dict[str, Any] = field(default_factory=dict)
    levels_vary: bool = True
    knows_success: bool = True
    idle_action: int = 0
    """Repeated, it does not end an episode within EPISODE steps."""

    def __str__(self) -> str:
        return "-".join([self.id, *(f"{name}={value}" for name, value in self.options.items())])


CASES = [
    Case("Rooms-K4-v0"),
    Case("Rooms-K3-v0", {"clock": 5, "noise": 3}),
    Case("MiniHack-Freeze-Random-Restricted-v0"),
    Case("MiniHack-MultiRoom-N4-Locked-v0", idle_action=9),
    Case("VizdoomMyWayHomeDense-v0"),
    Case("VizdoomMyWayHomeSparse-v0", {"buttons": 3}, levels_vary=False),
    Case("MiniGrid-MultiRoom-N7-S4-v0", {"position": True}),
    Case("MiniGrid-DoorKey-5x5-v0", {"image_only": True, "noise": 9}),
    Case("Habitat-FloorPlan-v0", {"size": 36, "split": "val"}, knows_success=False, idle_action=2),
    Case("CartPole-v1", {"clock": "scalar"}, knows_success=False),
]
each_case = pytest.mark.parametrize("case", CASES, ids=str)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return bool(np.array_equal(a, b))


def copy(observation: Any) -> Any:
    if isinstance(observation, dict):
        return {key: copy(part) for key, part in observation.items()}
    return np.array(observation)


def row(observations: Any, i: int) -> Any:
    return {key: part[i] for key, part in observations.items()} if isinstance(observations, dict) else observations[i]


def play_single(env: gymnasium.Env, seed: int, actions: np.ndarray) -> list[tuple]:
    """What a batch shows of it: (observation, reward, terminated, truncated, final observation, success) by step."""
    observation, _ = env.reset(seed=seed)
    shown = [(copy(observation),)]
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(action)
        final = success = None
        if terminated or truncated:
            final, success = observation, info.get("is_success")
            observation, _ = env.reset()
        shown.append((copy(observation), reward, terminated, truncated, copy(final), success))
    env.close()
    return shown


def random_actions(env: Any, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(0).integers(env.action_space.n, size=shape)


@each_case
@pytest.mark.parametrize("kind", ["inline", "process"])
def test_a_batch_shows_what_single_environments_show(case: Case, kind: str) -> None:
    singles = [make(case.id, max_steps=EPISODE, **case.options) for _ in range(2)]
    actions = random_actions(singles[0], (STEPS, 2))
    expected = [play_single(env, SEED + i, actions[:, i]) for i, env in enumerate(singles)]
    batch = make_vec(case.id, 2, seed=SEED, kind=kind, max_steps=EPISODE, **case.options)
    try:
        assert batch.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP
        first, _ = batch.reset()
        for i in range(2):
            assert same(row(first, i), expected[i][0][0])
        endings = 0
        for t in range(STEPS):
            observations, rewards, terminated, truncated, infos = batch.step(actions[t])
            for i in range(2):
                observation, reward, single_terminated, single_truncated, final, success = expected[i][t + 1]
                assert same(row(observations, i), observation)
                assert rewards[i] == pytest.approx(reward)
                assert (terminated[i], truncated[i]) == (single_terminated, single_truncated)
                if single_terminated or single_truncated:
                    endings += 1
                    assert infos["_final_obs"][i]
                    assert same(infos["final_obs"][i], final)
                    if case.knows_success:
                        assert infos["final_info"]["_is_success"][i]
                        assert bool(infos["final_info"]["is_success"][i]) == success
            if not (terminated | truncated).any():
                assert infos == {}, "infos come with endings only"
        assert endings >= 2 * (STEPS // EPISODE)
    finally:
        batch.close()


@each_case
def test_the_time_limit_truncates_and_shows_the_last_observation(case: Case) -> None:
    env = make(case.id, max_steps=EPISODE, **case.options)
    longer = make(case.id, max_steps=2 * EPISODE, **case.options)
    env.reset(seed=SEED)
    longer.reset(seed=SEED)
    action = case.idle_action
    for t in range(1, EPISODE + 1):
        if case.id == "CartPole-v1":
            action = t % 2
        observation, _, terminated, truncated, info = env.step(action)
        unlimited, *_ = longer.step(action)
        assert not terminated
        assert truncated == (t == EPISODE)
    assert same(observation, unlimited), "the limit must not change what is seen"
    if case.knows_success:
        assert info["is_success"] is False
    env.close()
    longer.close()


@each_case
def test_a_seed_fixes_the_sequence_of_episodes_in_any_instance(case: Case) -> None:
    def played(seed: int) -> list[tuple]:
        env = make(case.id, max_steps=EPISODE, **case.options)
        return play_single(env, seed, random_actions(env, (STEPS,)))

    again = [same(a[0], b[0]) for a, b in zip(played(3), played(3), strict=True)]
    assert all(again)
    if case.levels_vary:
        other = [same(a[0], b[0]) for a, b in zip(played(3), played(4), strict=True)]
        assert not all(other)


@each_case
def test_reseeding_starts_the_sequence_again(case: Case) -> None:
    env = make(case.id, max_steps=EPISODE, **case.options)
    first, _ = env.reset(seed=5)
    first = copy(first)
    second, _ = env.reset()
    second = copy(second)
    if case.levels_vary:
        assert not same(first, second), "a reset without a seed continues with another episode"
    assert same(env.reset(seed=5)[0], first)
    assert same(env.reset()[0], second)
    env.close()


@each_case
@pytest.mark.parametrize("batch", [False, True], ids=["single", "inline"])
def test_observations_belong_to_the_caller(case: Case, batch: bool) -> None:
    if batch:
        env: Any = make_vec(case.id, 2, max_steps=EPISODE, **case.options)
        actions = random_actions(make(case.id, **case.options), (STEPS, 2))
    else:
        env = make(case.id, max_steps=EPISODE, **case.options)
        actions = random_actions(env, (STEPS,))
    kept = [env.reset(seed=SEED)[0]]
    copies = [copy(kept[0])]
    for action in actions:
        observation, _, terminated, truncated, infos = env.step(action)
        kept.append(observation)
        copies.append(copy(observation))
        if not batch and (terminated or truncated):
            kept.append(env.reset()[0])
            copies.append(copy(kept[-1]))
        for final in infos.get("final_obs", ()) if batch else ():
            if final is not None:
                kept.append(final)
                copies.append(copy(final))
    env.close()
    assert all(same(a, b) for a, b in zip(kept, copies, strict=True))


@each_case
@pytest.mark.filterwarnings("ignore:.*different from the unwrapped version.*")  # the wrapper is what is tested
@pytest.mark.filterwarnings("ignore:.*Box observation space m(in|ax)imum value is -?infinity.*")  # as a count is
def test_gymnasium_accepts_it(case: Case) -> None:
    env = make(case.id, **case.options)
    check_with_gymnasium(env, skip_render_check=True)
    env.close()


@each_case
# Boards of symbols (MiniGrid's, Rooms', glyphs) are neither photographs nor vectors, all that SB3's own networks take.
@pytest.mark.filterwarnings("ignore:.*The minimal resolution for an image is 36x36.*")
@pytest.mark.filterwarnings("ignore:.*is an image but the upper and lower bounds.*")
@pytest.mark.filterwarnings("ignore:.*[Yy]our observation .* has an unconventional shape.*")
# Depth is an image of floats, which SB3's networks take for a vector; ours (e3b_gym.encoders) do not.
@pytest.mark.filterwarnings("ignore:.*observation depth is an image but its `dtype` is .float32.*")
def test_stable_baselines_accepts_it(case: Case) -> None:
    env = make(case.id, **case.options)
    check_with_sb3(env, skip_render_check=True)
    env.close()


def sweep(ids: list[str]) -> None:
    """A few steps in every id: spaces, and a truthful record."""
    for id in ids:
        task = all_tasks()[id][1]
        env = make(id)
        observation, _ = env.reset(seed=0)
        assert env.observation_space.contains(observation), id
        assert isinstance(env.action_space, gymnasium.spaces.Discrete)
        assert env.action_space.n == len(task.actions), id
        for action in random_actions(env, (3,)):
            observation, _, terminated, truncated, _ = env.step(action)
            assert env.observation_space.contains(observation), id
            if terminated or truncated:
                break
        env.close()


@pytest.mark.parametrize("suite", ["Rooms", "MiniHack", "VizDoom", "MiniGrid", "Habitat"])
def test_every_id_runs(suite: str) -> None:
    ids = [id for id, (owner, _) in all_tasks().items() if owner.name == suite and id not in SLOW_IDS | ELSEWHERE]
    assert ids
    sweep(ids)


@pytest.mark.slow
def test_every_slow_id_runs() -> None:
    sweep(sorted(SLOW_IDS))


@pytest.mark.slow
@pytest.mark.parametrize("suite", ["Rooms", "MiniHack", "VizDoom", "MiniGrid", "Habitat"])
def test_every_id_keeps_its_time_limit(suite: str) -> None:
    """The record's max_steps is the step at which random play, unless it ends before, is truncated."""
    for id, (owner, task) in all_tasks().items():
        if owner.name != suite or id in ELSEWHERE or task.max_steps > 1000:
            continue
        env = make(id)
        env.reset(seed=0)
        env.action_space.seed(0)
        for t in range(1, task.max_steps + 1):
            _, _, terminated, truncated, _ = env.step(env.action_space.sample())
            assert truncated == (t == task.max_steps and not terminated), (id, t)
            if terminated:
                break
        env.close()
