"""GymnasiumVecEnv behaves as SB3's DummyVecEnv around the same environments, for every kind of batch."""

from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor

from e3b_gym.envs import rooms
from e3b_gym.sb3.vec_env import GymnasiumVecEnv

SAME_STEP, NEXT_STEP, DISABLED = AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED


class Walk(gymnasium.Env):
    """A random walk with infos of every kind: numbers, text, arrays, nested, at some steps, at reset only."""

    observation_space = spaces.Dict({"place": spaces.Box(-99, 99, (2,), np.float32), "steps": spaces.Discrete(100)})
    action_space = spaces.Discrete(3)
    render_mode = None

    def __init__(self, drift=0):
        self.drift = drift

    def _observe(self):
        return {"place": self.place.astype(np.float32), "steps": self.steps}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        self.place = self.np_random.normal(size=2) + (options or {}).get("offset", 0)
        return self._observe(), {"began_at": self.place.copy(), "level": int(self.np_random.integers(9))}

    def step(self, action):
        self.steps += 1
        self.place = self.place + (action - 1) + self.np_random.normal(size=2) + self.drift
        info = {"where": self.place.copy(), "deep": {"steps": self.steps}, "text": f"step {self.steps}"}
        if self.steps % 3 == 0:
            info["third"] = 0.5
        terminated, truncated = bool(np.abs(self.place).max() > 6), self.steps >= 12
        return self._observe(), float(self.place[0]), terminated, truncated, info

    def cell(self, scale=1):
        return int(self.place[0] // scale)


def assert_same(a, b):
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, list | tuple):
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    else:
        np.testing.assert_array_equal(a, b)


def assert_same_trajectories(ours, reference, steps, seed=3):
    """Observations, rewards, dones, infos and reset infos over whole episodes, and again after a second reset."""
    actions = np.random.default_rng(0).integers(0, reference.action_space.n, (steps, reference.num_envs))
    assert ours.observation_space == reference.observation_space
    assert ours.action_space == reference.action_space
    assert ours.seed(seed) == reference.seed(seed)
    ends = 0
    for _ in range(2):
        assert_same(ours.reset(), reference.reset())
        assert_same(ours.reset_infos, reference.reset_infos)
        for row in actions:
            mine, theirs = ours.step(row), reference.step(row)
            assert_same(mine, theirs)
            assert mine[1].dtype == theirs[1].dtype == np.float32
            assert mine[2].dtype == theirs[2].dtype == bool
            assert_same(ours.reset_infos, reference.reset_infos)
            ends += mine[2].sum()
    assert ends > reference.num_envs


@pytest.mark.parametrize("options", [{"clock": True, "noise": 4}, {"flat": True}])
def test_rooms_in_a_batch_are_rooms_in_a_dummy_vec_env(options):
    options = {"rooms": 2, "max_steps": 30, **options}
    ours = GymnasiumVecEnv(rooms.make_vec("Rooms-v0", 6, **options))
    assert_same_trajectories(ours, DummyVecEnv([lambda: rooms.make("Rooms-v0", **options)] * 6), steps=150)


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("mode", [SAME_STEP, NEXT_STEP, DISABLED])
def test_every_autoreset_mode_gives_the_steps_of_a_dummy_vec_env(mode, copy):
    batch = SyncVectorEnv([partial(Walk, i / 3) for i in range(4)], copy=copy, autoreset_mode=mode)
    assert_same_trajectories(GymnasiumVecEnv(batch), DummyVecEnv([partial(Walk, i / 3) for i in range(4)]), 60)


@pytest.mark.parametrize("mode", [SAME_STEP, NEXT_STEP, DISABLED])
def test_batches_in_other_processes_give_the_steps_of_a_dummy_vec_env(mode):
    batch = AsyncVectorEnv([partial(Walk, i) for i in range(2)], context="fork", autoreset_mode=mode)
    ours = GymnasiumVecEnv(batch)
    try:
        assert_same_trajectories(ours, DummyVecEnv([partial(Walk, i) for i in range(2)]), 40)
        assert ours.get_attr("drift", indices=1) == [1]
        ours.set_attr("drift", 5)
        assert ours.get_attr("drift") == [5, 5]
        assert len(ours.env_method("cell", scale=2)) == 2
        with pytest.raises(ValueError, match="call a method of all environments at once"):
            ours.env_method("cell", indices=[0])
    finally:
        ours.close()


def test_observations_handed_out_are_never_written_again():
    """SB3 keeps the last observation until after the next step, so a batch's own buffer must not leak."""
    ours = GymnasiumVecEnv(SyncVectorEnv([Walk] * 2, copy=False, autoreset_mode=SAME_STEP))
    ours.seed(0)
    before = ours.reset()
    snapshot = before["place"].copy()
    ours.step(np.array([1, 2]))
    np.testing.assert_array_equal(before["place"], snapshot)


def test_the_mode_of_one_batch_is_not_mistaken_for_that_of_another():
    """Gymnasium stores the mode in a dict that all environments of a class share: the last batch wins there."""
    same = SyncVectorEnv([Walk] * 2, autoreset_mode=SAME_STEP)
    SyncVectorEnv([Walk] * 2, autoreset_mode=NEXT_STEP)
    assert_same_trajectories(GymnasiumVecEnv(same), DummyVecEnv([Walk] * 2), 30)


def test_seeds_and_options_reach_the_environments_once():
    ours = GymnasiumVecEnv(SyncVectorEnv([Walk] * 3, autoreset_mode=SAME_STEP))
    ours.seed(5)
    ours.set_options({"offset": 50})
    far = ours.reset()["place"]
    assert (far > 40).all()
    assert (ours.reset()["place"] < 40).all()
    ours.seed(5)
    near = ours.reset()["place"]
    np.testing.assert_allclose(near, far - 50, atol=1e-4)
    for i in range(3):
        np.testing.assert_array_equal(Walk().reset(seed=5 + i)[0]["place"], near[i])
    ours._seeds = [8, 8, 8]  # SB3 lets code set them one by one
    again = ours.reset()["place"]
    np.testing.assert_array_equal(again[0], again[2])
    ours.set_options([{"offset": 1}, {}, {}])
    with pytest.raises(ValueError, match="one set of reset options"):
        ours.reset()


def test_attributes_and_methods_of_environments_in_this_process():
    envs = [partial(Walk, 0), lambda: Monitor(Walk(1))]
    ours = GymnasiumVecEnv(SyncVectorEnv(envs, autoreset_mode=SAME_STEP))
    ours.reset()
    assert ours.get_attr("drift") == [0, 1]
    ours.set_attr("drift", 7, indices=1)
    assert ours.get_attr("drift", indices=[1, 0]) == [7, 0]
    assert ours.env_method("cell", 1000, indices=0) == [ours.venv.envs[0].cell(1000)]
    assert ours.env_is_wrapped(Monitor) == [False, True]
    assert ours.has_attr("drift")
    assert not ours.has_attr("nothing_like_this")


def test_a_batch_without_environments_inside_answers_for_them():
    ours = GymnasiumVecEnv(gymnasium.wrappers.vector.ClipReward(rooms.make_vec("Rooms-K4-v0", 3), 0, 1))
    ours.seed(0)
    ours.reset()
    assert [config.rooms for config in ours.get_attr("config")] == [4, 4, 4]
    layouts = ours.env_method("layout", indices=[2, 0])
    for layout, i in zip(layouts, (2, 0), strict=True):
        single = rooms.make("Rooms-K4-v0")
        single.reset(seed=i)
        np.testing.assert_array_equal(layout.tiles, single.layout().tiles)
    ours.set_attr("remark", "hello")
    assert ours.get_attr("remark", indices=1) == ["hello"]
    with pytest.raises(ValueError, match="set an attribute of all environments at once; leave out `indices`"):
        ours.set_attr("remark", "hello", indices=1)
    assert ours.env_is_wrapped(Monitor) == [False] * 3
    assert not ours.has_attr("nothing_like_this")


def test_pictures_are_tiled():
    ours = GymnasiumVecEnv(rooms.make_vec("Rooms-K4-v0", 4, render_mode="rgb_array"))
    ours.reset()
    assert ours.render().shape == (2 * 136, 2 * 136, 3)
    text = GymnasiumVecEnv(rooms.make_vec("Rooms-K4-v0", 2, render_mode="ansi"))
    text.reset()
    assert all("@" in picture for picture in text.env_method("render"))
    assert GymnasiumVecEnv(rooms.make_vec("Rooms-K4-v0", 2)).get_images() == [None, None]


def test_what_sb3_cannot_follow_is_refused_with_the_remedy():
    with pytest.raises(ValueError, match=r"CartPoleVectorEnv has autoreset mode .*NEXT_STEP.*SAME_STEP"):
        GymnasiumVecEnv(gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="vector_entry_point"))
    with pytest.raises(ValueError, match="got Walk; wrap a single environment in SB3's DummyVecEnv"):
        GymnasiumVecEnv(Walk())
    with pytest.raises(ValueError, match="got DummyVecEnv"):
        GymnasiumVecEnv(DummyVecEnv([Walk]))


def test_a_batch_that_keeps_its_last_observations_to_itself_is_named():
    class Forgetful(gymnasium.vector.VectorWrapper):
        def step(self, actions):
            return *self.env.step(actions)[:4], {}

    ours = GymnasiumVecEnv(Forgetful(rooms.make_vec("Rooms-v0", 2, max_steps=1)))
    ours.reset()
    with pytest.raises(ValueError, match="environment 0 ended an episode but its infos hold no final_obs"):
        ours.step(np.array([0, 0]))


class Log(BaseCallback):
    """Keeps what SB3 logs at the end of each rollout."""

    def __init__(self):
        super().__init__()
        self.rows = []

    def _on_step(self):
        return True

    def _on_rollout_end(self):
        infos = self.model.ep_info_buffer
        self.rows.append((len(infos), [info["r"] for info in infos], list(self.model.ep_success_buffer)))


def test_ppo_trains_on_rooms_and_sees_returns_and_successes():
    venv = VecMonitor(GymnasiumVecEnv(rooms.make_vec("Rooms-v0", 16, rooms=2, max_steps=40, flat=True)))
    model = PPO("MlpPolicy", venv, n_steps=64, batch_size=256, n_epochs=2, seed=0, device="cpu")
    model.set_logger(Logger(folder=None, output_formats=[]))
    log = Log()
    model.learn(3 * 16 * 64, callback=log)
    episodes, returns, successes = log.rows[-1]
    assert len(log.rows) == 3
    assert episodes >= 60
    assert 0 < np.mean(returns) < 1
    assert returns == successes  # the only reward is the goal's
    mean, _ = evaluate_policy(model, venv, n_eval_episodes=16)
    assert 0 <= mean <= 1


def test_ppo_takes_the_same_path_as_over_a_dummy_vec_env():
    def weights(venv):
        model = PPO("MultiInputPolicy", VecMonitor(venv), n_steps=32, batch_size=64, n_epochs=1, seed=1, device="cpu")
        model.learn(2 * 4 * 32)
        return [parameter.detach().numpy() for parameter in model.policy.parameters()]

    options = {"rooms": 3, "max_steps": 20, "clock": True}
    ours = weights(GymnasiumVecEnv(rooms.make_vec("Rooms-v0", 4, **options)))
    reference = weights(DummyVecEnv([lambda: rooms.make("Rooms-v0", **options)] * 4))
    for a, b in zip(ours, reference, strict=True):
        np.testing.assert_array_equal(a, b)
