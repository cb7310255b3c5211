"""MiniGrid: the ids that were missing, what is seen, and how an episode ends."""

import gymnasium
import numpy as np
import pytest
from minigrid.core.world_object import Lava
from stable_baselines3.common.preprocessing import is_image_space

from e3b_gym.envs import make
from e3b_gym.envs.minigrid import MISSING, TASKS

LEFT, RIGHT, FORWARD = 0, 1, 2
TO_THE_GOAL = (FORWARD, FORWARD, RIGHT, FORWARD, FORWARD)  # in Empty-5x5


@pytest.mark.parametrize("name", sorted(set(MISSING) - {"MultiRoom-N12-S10"}))
def test_the_missing_ids_have_the_rooms_they_say(name: str) -> None:
    rooms, size = MISSING[name]
    env = make(f"MiniGrid-{name}-v0")
    for seed in range(3):
        env.reset(seed=seed)
        assert len(env.unwrapped.rooms) == rooms
        assert all(max(room.size) <= size for room in env.unwrapped.rooms)


@pytest.mark.slow
def test_twelve_rooms_are_twelve_rooms() -> None:
    env = make("MiniGrid-MultiRoom-N12-S10-v0")
    env.reset(seed=0)
    assert len(env.unwrapped.rooms) == 12


@pytest.mark.parametrize(("version", "rooms"), [(0, 6), (1, 4)])
def test_n4_has_four_rooms_in_v1_only(version: int, rooms: int) -> None:
    env = make(f"MiniGrid-MultiRoom-N4-S5-v{version}")
    env.reset(seed=0)
    assert len(env.unwrapped.rooms) == rooms


@pytest.mark.parametrize("id", TASKS)
def test_the_record_tells_the_limit_and_the_actions(id: str) -> None:
    env = make(id)
    assert env.unwrapped.max_steps == TASKS[id].max_steps
    assert tuple(action.name for action in env.unwrapped.actions) == TASKS[id].actions


def test_what_is_seen_can_be_chosen() -> None:
    id = "MiniGrid-DoorKey-5x5-v0"
    assert set(make(id).observation_space) == {"image", "direction"}
    assert set(make(id, position=True, mission=True).observation_space) == {"image", "direction", "position", "mission"}
    assert make(id, image_only=True).reset(seed=0)[0].shape == (7, 7, 3)
    with pytest.raises(ValueError, match="image_only=True returns the image alone"):
        make(id, image_only=True, position=True)


@pytest.mark.parametrize("option", ["image_only", "position", "mission"])
@pytest.mark.parametrize("wrong", ["no", 1, None])
def test_an_option_that_is_not_true_or_false_is_refused(option: str, wrong: object) -> None:
    with pytest.raises(ValueError, match=f"^{option} must be true or false; got {wrong!r}$"):
        make("MiniGrid-DoorKey-8x8-v0", **{option: wrong})


def test_numpy_truth_values_are_true_or_false() -> None:
    env = make("MiniGrid-DoorKey-8x8-v0", image_only=np.bool_(False), mission=np.bool_(True))
    assert set(env.observation_space) == {"image", "direction", "mission"}


def test_the_board_is_not_taken_for_a_photograph() -> None:
    """Its bounds are those of the symbols, so Stable-Baselines3 flattens it instead of sending it through a CNN."""
    space = make("MiniGrid-DoorKey-5x5-v0").observation_space["image"]
    assert (space.low.min(), space.high.max()) == (0, 10)
    assert not is_image_space(space)


def test_the_position_follows_the_agent() -> None:
    env = make("MiniGrid-Empty-5x5-v0", position=True)
    observation, _ = env.reset(seed=0)
    path = [observation["position"]] + [env.step(action)[0]["position"] for action in TO_THE_GOAL]
    assert np.array_equal(path, [(1, 1), (2, 1), (3, 1), (3, 1), (3, 2), (3, 3)])


@pytest.mark.parametrize("max_steps", [None, len(TO_THE_GOAL)], ids=["in time", "with the last step"])
def test_reaching_the_goal_is_success_even_with_the_last_step(max_steps: int | None) -> None:
    env = make("MiniGrid-Empty-5x5-v0", max_steps=max_steps)
    env.reset(seed=0)
    for action in TO_THE_GOAL:
        _, reward, terminated, truncated, info = env.step(action)
    assert reward > 0
    assert (terminated, truncated, info["is_success"]) == (True, False, True)


def test_lava_is_an_end_without_success() -> None:
    env = make("MiniGrid-Empty-5x5-v0")
    env.reset(seed=0)
    env.unwrapped.grid.set(2, 1, Lava())
    _, _, terminated, truncated, info = env.step(FORWARD)
    assert (terminated, truncated, info["is_success"]) == (True, False, False)


def test_ids_beyond_the_list_get_the_same_view() -> None:
    env = make("MiniGrid-FourRooms-v0")
    assert "mission" not in env.observation_space.spaces
    assert "mission" not in env.reset(seed=0)[0]


def test_the_map_as_text_shows_walls_goal_and_agent() -> None:
    env = make("MiniGrid-Empty-5x5-v0", render_mode="ansi")
    env.reset(seed=0)
    plain = "".join(part.split("m", 1)[-1] for part in env.render().split("\x1b["))
    rows = [line[::2] for line in plain.split("\n")]
    assert rows == ["#####", "#>  #", "#   #", "#  G#", "#####"]
    assert env.render_mode == "ansi"
    env.step(RIGHT)
    assert "v" in env.render()


def test_pictures_come_from_minigrid() -> None:
    env = make("MiniGrid-Empty-5x5-v0", render_mode="rgb_array", tile_size=8)
    env.reset(seed=0)
    assert env.render().shape == (40, 40, 3)


def test_the_ids_are_known_to_gymnasium_afterwards() -> None:
    make("MiniGrid-MultiRoom-N7-S4-v0")
    assert gymnasium.make("MiniGrid-MultiRoom-N10-S4-v0", disable_env_checker=True).unwrapped.maxNumRooms == 10
