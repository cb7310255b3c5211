"""Coverage: what habitat-lab's fog of war reveals of the navigable floor, and the authors' ratio."""

import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from omegaconf import OmegaConf

from e3b_gym.envs import make
from e3b_gym.envs.habitat.coverage import METRES_PER_PIXEL
from e3b_gym.envs.habitat.lab import TopDownMap, TopDownMapConfig, maps, reveal_fog_of_war

ID = "Habitat-FloorPlan-v0"
FORWARD, LEFT, RIGHT = 1, 2, 3


@pytest.fixture(scope="module")
def env():
    made = make(ID, split="val", size=4, coverage=True)
    yield made
    made.close()


def test_coverage_grows_and_stays_a_share(env) -> None:
    _, info = env.reset(options={"episode": 1})
    shares = [info["coverage"]]
    rng = np.random.default_rng(0)
    for action in rng.integers(1, 4, 120):
        shares.append(env.step(action)[-1]["coverage"])
    assert 0 < shares[0] < shares[-1] < 1
    assert (np.diff(shares) >= 0).all()
    seen = env.exploration
    assert shares[-1] == seen.seen.sum() / seen.navigable.sum()
    assert not (seen.seen & ~seen.navigable).any()
    assert len(seen.path) == 121


@pytest.mark.parametrize("episode", [0, 3, 11])
def test_it_is_what_looks_from_all_poses_reveal_together(env, episode: int) -> None:
    """Against a separate map with a look at every step, also from poses that the agent had before."""
    _, info = env.reset(options={"episode": episode})
    sim = env.habitat.sim
    floor = sim.pathfinder.walkable.astype(np.uint8)  # 5 cm squares
    fog = np.zeros_like(floor)
    for action in (*np.random.default_rng(episode).integers(1, 4, 100), None):
        state = sim.get_agent_state()
        square = np.array([int(state.position[2] / METRES_PER_PIXEL), int(state.position[0] / METRES_PER_PIXEL)])
        fog = reveal_fog_of_war(floor, fog, square, TopDownMap.get_polar_angle(state), 90, 5 / METRES_PER_PIXEL)
        assert info["coverage"] == (fog & floor).sum() / floor.sum()
        if action is not None:
            *_, info = env.step(action)


def test_a_second_look_from_the_same_place_reveals_nothing(env) -> None:
    env.reset(options={"episode": 2})
    first = [env.step(LEFT)[-1]["coverage"] for _ in range(36)]
    again = [env.step(LEFT)[-1]["coverage"] for _ in range(36)]
    assert first[-1] > first[0]
    assert again == [first[-1]] * 36


def test_what_is_seen_is_in_sight(env) -> None:
    """Revealed pixels after one look: within 5 m and 45 degrees of the heading, none behind the agent."""
    env.reset(options={"episode": 5})
    seen = np.argwhere(env.exploration.seen) * METRES_PER_PIXEL  # [N, 2] z, x
    state = env.habitat.sim.get_agent_state()
    heading = 2 * np.arctan2(state.rotation.y, state.rotation.w)
    gap = seen - state.position[[2, 0]]
    far = np.linalg.norm(gap, axis=1)
    assert far.max() <= 5.1
    ahead = gap @ np.array([-np.cos(heading), -np.sin(heading)])
    assert (ahead[far > 0.5] >= far[far > 0.5] * np.cos(np.deg2rad(52))).all()


def test_the_map_is_habitat_s_and_the_path_is_on_it(env) -> None:
    env.reset(options={"episode": 7})
    for action in np.random.default_rng(1).integers(1, 4, 60):
        env.step(action)
    seen, sim = env.exploration, env.habitat.sim
    assert all(seen.navigable[row, column] for row, column in seen.path)
    state = sim.get_agent_state()
    assert seen.path[-1] == maps.to_grid(state.position[2], state.position[0], seen.navigable.shape, sim=sim)
    assert seen.navigable.sum() * METRES_PER_PIXEL**2 == pytest.approx(sim.pathfinder.navigable_area)


def test_it_reveals_what_habitat_s_own_map_reveals() -> None:
    """Without anything drawn onto it, habitat-lab's TopDownMap measure holds the same fog at the same resolution."""
    env = make(ID, split="val", size=4, coverage=True)
    env.reset(options={"episode": 9})
    config = OmegaConf.structured(TopDownMapConfig())
    for drawn in ("source", "border", "shortest_path", "view_points", "goal_positions", "goal_aabbs"):
        config[f"draw_{drawn}"] = False
    _low, high = env.habitat.sim.pathfinder.get_bounds()
    config.map_resolution = round(min(high[0], high[2]) / METRES_PER_PIXEL)
    stock = TopDownMap(env.habitat.sim, config)
    stock.reset_metric(env.habitat.current_episode)
    for action in np.random.default_rng(2).integers(1, 4, 40):
        env.step(action)
        stock.update_metric(env.habitat.current_episode, None)
    theirs = stock.get_metric()["fog_of_war_mask"] == 1
    assert (theirs != env.exploration.seen).mean() < 0.002  # their path, drawn 20 cm broad, opens walls next to it


def test_the_authors_ratio_is_larger_and_counts_what_is_drawn() -> None:
    ours = make(ID, split="val", size=4, coverage=True)
    theirs = make(ID, split="val", size=4, coverage=True, coverage_ratio="authors")
    shares = []
    for env in (ours, theirs):
        env.reset(options={"episode": 4})
        for action in np.random.default_rng(3).integers(1, 4, 100):
            *_, info = env.step(action)
        shares.append(info["coverage"])
    assert shares[0] < shares[1]
    drawn = theirs.exploration._drawn.get_metric()
    seen, free = (drawn["fog_of_war_mask"] == 1).sum(), (drawn["map"] == maps.MAP_VALID_POINT).sum()
    assert shares[1] == seen / free
    assert free < theirs.exploration.navigable.sum(), "border, start, goal and paths are missing from it"


def test_coverage_does_not_change_the_observations(env) -> None:
    plain = make(ID, split="val", size=4)
    for each in (plain, env):
        each.reset(seed=11)
    for action in (FORWARD, LEFT, FORWARD, RIGHT):
        a, b = (each.step(action)[0] for each in (plain, env))
        assert all(np.array_equal(a[key], b[key]) for key in a)


def test_the_picture_shows_the_map(env) -> None:
    env.reset(options={"episode": 1})
    for _ in range(20):
        env.step(FORWARD)
    picture = env.map_image(scale=3)
    rows, columns = env.exploration.navigable.shape
    assert picture.shape == (3 * rows, 3 * columns, 3)
    assert picture.dtype == np.uint8
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) >= 5
    with pytest.raises(ValueError, match="scale must be at least 1"):
        env.map_image(scale=0)


def test_the_map_needs_coverage_and_an_episode() -> None:
    with pytest.raises(ValueError, match="make the environment with coverage=True"):
        make(ID, split="val", size=4).map_image()
    with pytest.raises(ResetNeeded):
        make(ID, split="val", size=4, coverage=True).map_image()
