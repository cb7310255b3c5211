"""The simulator as habitat-lab's navigation stack sees it: every method that it calls, with types and conventions."""

import ast
import inspect
import math

import numpy as np
import pytest

from e3b_gym.envs import make
from e3b_gym.envs.habitat.coverage import METRES_PER_PIXEL
from e3b_gym.envs.habitat.homes import home
from e3b_gym.envs.habitat.lab import AgentState, habitat, maps, quaternion, read_write
from e3b_gym.envs.habitat.raycast import render
from e3b_gym.envs.habitat.simulator import FloorPlanSim

# What habitat-lab's Nav task, its sensors and its measures use of a simulator ...
SIMULATOR = {
    "close", "distance_to_closest_obstacle", "geodesic_distance", "get_agent", "get_agent_state",
    "get_observations_at", "get_straight_shortest_path_points", "habitat_config", "is_navigable", "pathfinder",
    "previous_step_collided", "reconfigure", "render", "reset", "seed", "sensor_suite", "set_agent_state", "step",
    "step_physics",
}  # fmt: skip
PATH_FINDER = {"get_bounds", "get_topdown_view", "try_step", "try_step_no_sliding"}
# ... and what only parts of it use that need habitat-sim itself: looking up and down, velocity control, object goals,
# and timing that is asked for with hasattr.
ELSEWHERE = {"agents", "config", "_prev_sim_obs", "semantic_annotations", "add_perf_timing"}


@pytest.fixture(scope="module")
def env():
    made = make("Habitat-FloorPlan-v0", split="val", size=16)
    made.reset(seed=0)
    yield made
    made.close()


@pytest.fixture
def sim(env) -> FloorPlanSim:
    env.reset(options={"episode": 3})
    return env.habitat.sim


def test_the_list_of_methods_is_complete() -> None:
    """Read from habitat-lab's sources: whatever is asked of `sim`, `_sim` and `pathfinder`."""
    simulator, path_finder = set(), set()
    for module in (habitat.core.env, habitat.core.embodied_task, habitat.tasks.nav.nav, maps):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.Attribute):
                owner = getattr(node.value, "attr", getattr(node.value, "id", None))
                simulator |= {node.attr} if owner in ("sim", "_sim") else set()
                path_finder |= {node.attr} if owner == "pathfinder" else set()
    assert simulator == SIMULATOR | ELSEWHERE
    assert path_finder == PATH_FINDER


def test_every_method_is_there(sim: FloorPlanSim) -> None:
    assert all(hasattr(sim, name) for name in SIMULATOR)
    assert all(hasattr(sim.pathfinder, name) for name in PATH_FINDER)
    declared = {name for name, member in vars(habitat.Simulator).items() if not name.startswith("_")}
    own = set(vars(FloorPlanSim))
    # habitat-sim's own class says that this one is no longer implemented
    assert declared - own - {"habitat_config", "action_space_shortest_path"} == set()


def test_states_are_metres_and_quaternions(sim: FloorPlanSim) -> None:
    state = sim.get_agent_state()
    assert isinstance(state, AgentState)
    assert state.position.shape == (3,)
    assert state.position.dtype == np.float32
    assert state.position[1] == 0.0, "the floor is at height 0"
    assert isinstance(state.rotation, quaternion.quaternion)
    assert abs(state.rotation) == pytest.approx(1)
    assert (state.rotation.x, state.rotation.z) == (0, 0), "about y"
    assert sim.get_agent(0).state.position == pytest.approx(state.position)
    state.position[:] = -1
    assert (sim.get_agent_state().position >= 0).all(), "states are copies"
    np.testing.assert_array_equal(sim.up_vector, [0, 1, 0])
    np.testing.assert_array_equal(sim.forward_vector, [0, 0, -1])


def test_forward_is_minus_z_turned_by_the_rotation(sim: FloorPlanSim) -> None:
    for _ in range(36):
        before = sim.get_agent_state()
        sim.step(1)
        moved = sim.get_agent_state().position - before.position
        if not sim.previous_step_collided():
            expected = quaternion.rotate_vectors(before.rotation, 0.25 * sim.forward_vector)
            assert moved == pytest.approx(expected, abs=1e-5)
        else:
            assert np.linalg.norm(moved) < 0.25
        sim.step(2)


def test_turning_left_is_counter_clockwise_seen_from_above(sim: FloorPlanSim) -> None:
    before = sim.get_agent_state().rotation
    sim.step(2)
    turned = before.inverse() * sim.get_agent_state().rotation
    assert quaternion.as_rotation_vector(turned) == pytest.approx([0, math.radians(10), 0])
    sim.step(3)
    sim.step(3)
    turned = before.inverse() * sim.get_agent_state().rotation
    assert quaternion.as_rotation_vector(turned) == pytest.approx([0, -math.radians(10), 0])
    assert not sim.previous_step_collided()


def test_no_action_and_stop_do_not_move_the_agent(sim: FloorPlanSim) -> None:
    before = sim.get_agent_state()
    first, second = sim.step(None), sim.step(0)
    sim.step_physics(1 / 60)
    assert sim.get_agent_state().position == pytest.approx(before.position)
    np.testing.assert_array_equal(first["rgb"], second["rgb"])
    with pytest.raises(ValueError, match="unknown action 9"):
        sim.step(9)


def test_observations_are_what_the_sensor_suite_declares(sim: FloorPlanSim) -> None:
    for observations in (sim.reset(), sim.step(1)):
        assert set(observations) == {"rgb", "depth"}
        for name, space in sim.sensor_suite.observation_spaces.spaces.items():
            assert space.contains(observations[name]), name
            assert observations[name].dtype == space.dtype
    np.testing.assert_array_equal(sim.render("rgb"), observations["rgb"])
    with pytest.raises(ValueError, match="no sensor is called 'sonar'"):
        sim.render("sonar")
    assert sim.action_space.n == 4


def test_depth_is_normalised_by_ten_metres(sim: FloorPlanSim) -> None:
    state = sim.get_agent_state()
    heading = 2 * math.atan2(state.rotation.y, state.rotation.w)
    x, _, z = (float(each) for each in state.position)
    _, metres = render(sim.home.scene, x, 1.25, z, heading, 16, 16, 90.0)
    seen = sim.step(None)["depth"][..., 0]
    np.testing.assert_allclose(seen, np.clip(metres / 10, 0, 1), atol=1e-6)


def test_observing_from_elsewhere_does_not_move_the_agent(sim: FloorPlanSim) -> None:
    before = sim.get_agent_state()
    point = sim.sample_navigable_point()
    assert len(point) == 3
    assert all(isinstance(each, float) for each in point)
    there = sim.get_observations_at(point, [0.0, 0.0, 0.0, 1.0])
    assert set(there) == {"rgb", "depth"}
    assert sim.get_agent_state().position == pytest.approx(before.position)
    assert sim.get_observations_at([-1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]) is None
    sim.get_observations_at(point, [0.0, 0.0, 0.0, 1.0], keep_agent_at_new_pose=True)
    assert sim.get_agent_state().position == pytest.approx(point)


def test_distances_are_in_metres_on_foot(sim: FloorPlanSim) -> None:
    here = sim.get_agent_state().position
    a, b = sim.sample_navigable_point(), sim.sample_navigable_point()
    to_a, to_b = sim.geodesic_distance(here, a), sim.geodesic_distance(here, b)
    assert isinstance(to_a, float)
    assert to_a >= math.dist(here, a) - 1e-4
    assert sim.geodesic_distance(here, here) == pytest.approx(0, abs=1e-6)
    assert sim.geodesic_distance(here, [a, b]) == min(to_a, to_b)
    assert sim.geodesic_distance(here, [-1.0, 0.0, -1.0]) == math.inf
    points = sim.get_straight_shortest_path_points(here, a)
    assert points[0] == pytest.approx(here)
    assert points[-1] == pytest.approx(a, abs=1e-6)
    assert 0 < sim.distance_to_closest_obstacle(here) <= 2
    assert sim.island_radius(here) == pytest.approx(math.sqrt(sim.pathfinder.navigable_area / math.pi))


def test_the_path_finder_returns_maps_as_habitats_does(sim: FloorPlanSim) -> None:
    low, high = sim.pathfinder.get_bounds()
    assert low.shape == high.shape == (3,)
    assert (high[[0, 2]] - low[[0, 2]]) == pytest.approx(sim.home.size)
    view = maps.get_topdown_map_from_sim(sim, draw_border=False, meters_per_pixel=METRES_PER_PIXEL)
    assert view.dtype == np.uint8
    assert set(np.unique(view)) == {0, 1}
    for _ in range(20):
        x, y, z = sim.sample_navigable_point()
        assert sim.is_navigable([x, y, z])
        row, column = maps.to_grid(z, x, view.shape, sim=sim)
        assert view[row, column] == 1
    assert not sim.is_navigable([0.0, 0.0, 0.0])
    assert not sim.is_navigable([x, 1.0, z]), "not in the air"


def test_seeds_fix_the_points_that_are_sampled(sim: FloorPlanSim) -> None:
    sim.seed(5)
    first = sim.sample_navigable_point()
    sim.seed(5)
    assert sim.sample_navigable_point() == first


def test_a_place_that_is_not_walkable_is_refused(sim: FloorPlanSim) -> None:
    with pytest.raises(ValueError, match=r"cannot stand at \(0\.00, 0\.00, 0\.00\) in 'home-0803'"):
        sim.set_agent_state([0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0])
    with pytest.raises(ValueError, match="rotation must be about the y axis"):
        sim.set_agent_state(sim.sample_navigable_point(), [0.7, 0.0, 0.0, 0.7])


@pytest.mark.parametrize("scene", ["home-1000", "home-7", "apartment_0.glb", "floorplan/home-0x12"])
def test_a_scene_that_does_not_exist_is_named(sim: FloorPlanSim, scene: str) -> None:
    config = sim.habitat_config.copy()
    with read_write(config):
        config.scene = scene
    with pytest.raises(ValueError, match=f"no scene '{scene}'; the homes are 'home-0000' to 'home-0999'"):
        sim.reconfigure(config)


def test_reconfiguring_moves_to_another_home(sim: FloorPlanSim) -> None:
    config = sim.habitat_config.copy()
    with read_write(config):
        config.scene = "elsewhere/home-0012"
        config.agents.main_agent.is_set_start_state = False
    sim.reconfigure(config)
    assert sim.home is home(12)
    assert sim.is_navigable(sim.get_agent_state().position)


def test_sliding_can_be_turned_off(sim: FloorPlanSim) -> None:
    """Walks straight ahead until it collides: then it stands still."""
    config = sim.habitat_config.copy()
    with read_write(config):
        config.habitat_sim_v0.allow_sliding = False
    sim.reconfigure(config)
    for _ in range(80):
        sim.step(1)
    before = sim.get_agent_state().position
    sim.step(1)
    assert sim.previous_step_collided()
    assert sim.get_agent_state().position == pytest.approx(before, abs=0.02)


def test_all_of_habitat_s_navigation_sensors_and_measures_run() -> None:
    """habitat-lab's own PointNav benchmark with every sensor and measure of the Nav task, on this simulator."""
    schema = habitat.config.default_structured_configs
    own = make("Habitat-FloorPlan-v0", split="val", size=16).config.habitat
    config = habitat.get_config("benchmark/nav/pointnav/pointnav_hm3d.yaml").copy()
    with read_write(config):
        config.habitat.simulator.type = own.simulator.type
        config.habitat.dataset = own.dataset
        sensors, measures = config.habitat.task.lab_sensors, config.habitat.task.measurements
        for name in ("GPS", "Compass", "Heading", "Proximity", "PointGoal", "ImageGoal"):
            sensors[name.lower()] = getattr(schema, f"{name}SensorConfig")()
        for name in ("SoftSPL", "Collisions", "TopDownMap"):
            measures[name.lower()] = getattr(schema, f"{name}MeasurementConfig")()
        measures.topdownmap.map_resolution = 200
    with habitat.Env(config) as env:
        first = env.reset()
        assert env.observation_space.contains(first)
        assert {"rgb", "depth", "gps", "compass", "heading", "proximity", "pointgoal", "imagegoal"} <= set(first)
        assert math.isfinite(env.get_metrics()["distance_to_goal"])
        for action in ("move_forward", "turn_left", "move_forward", "stop"):
            env.step(action)
        metrics = env.get_metrics()
        assert set(metrics) == {
            "distance_to_goal", "success", "spl", "distance_to_goal_reward", "soft_spl", "collisions", "top_down_map",
        }  # fmt: skip
        assert metrics["top_down_map"]["fog_of_war_mask"].any()
        assert env.episode_over
