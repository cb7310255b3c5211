"""The Gymnasium wrappers: contracts, autoreset, infos, training by hand, saving."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env as gymnasium_check_env
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import Autoreset, RecordEpisodeStatistics, TimeLimit
from gymnasium.wrappers.vector import DictInfoToList
from gymnasium.wrappers.vector import RecordEpisodeStatistics as RecordVectorStatistics
from stable_baselines3 import A2C
from stable_baselines3.common.env_checker import check_env as sb3_check_env
from stable_baselines3.common.monitor import Monitor
from walks import PLACES, Walk, walks

from e3b_gym.bonuses import make_bonus
from e3b_gym.errors import UnsupportedSpaceError
from e3b_gym.gymnasium import E3BReward, E3BVectorReward
from e3b_gym.sb3 import E3BRewardWrapper, GymnasiumVecEnv

MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP]


def batch(
    mode: AutoresetMode = AutoresetMode.SAME_STEP, count: int = 2, kind: Any = SyncVectorEnv, **options: Any
) -> Any:
    return kind(walks(count, **options), autoreset_mode=mode)


def play(envs: Any, steps: int, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    envs.reset(seed=0)
    return [envs.step(rng.integers(3, size=envs.num_envs)) for _ in range(steps)]


@pytest.fixture
def registered() -> Iterator[str]:
    gym.register("Walk-v0", Walk, disable_env_checker=True)
    yield "Walk-v0"
    del gym.registry["Walk-v0"]


def check_by_gymnasium(env: Any) -> None:
    with warnings.catch_warnings():
        # Gymnasium would rather check the unwrapped environment, whose rewards are not ours.
        warnings.filterwarnings("ignore", message=".*is different from the unwrapped version.*")
        gymnasium_check_env(env, skip_render_check=env.spec is None)


@pytest.mark.parametrize("observations", ["box", "dict"])
@pytest.mark.parametrize("bonus", ["e3b", "noveld", "count"])
def test_the_single_wrapper_passes_both_checkers(registered: str, observations: str, bonus: str) -> None:
    """Also their test that a spec makes the same environment again."""
    env = E3BReward(gym.make(registered, length=20, observations=observations), bonus, beta=0.3, seed=0)
    for _ in range(3):  # its actions are random
        check_by_gymnasium(env)
        sb3_check_env(env)
    again = env.spec.make()
    assert again.get_wrapper_attr("explorer").mixer.beta == 0.3
    check_by_gymnasium(E3BReward(Walk(20, observations=observations), bonus, normaliser="none", seed=0))
    assert not gym.spec(registered).nondeterministic


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("observations", ["dict", "tuple", "discrete", "image"])
@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
def test_every_space_and_mode_gives_a_bonus_and_trains(mode: AutoresetMode, observations: str, kind: Any) -> None:
    envs = E3BVectorReward(batch(mode, observations=observations, kind=kind), seed=0)
    steps = play(envs, 12)
    intrinsic = np.array([infos["intrinsic_reward"] for *_, infos in steps])
    done = np.array([terminated | truncated for _, _, terminated, truncated, _ in steps])
    assert (intrinsic[done] >= 0).all()
    assert intrinsic[done].max() > 0  # the last observations were scored
    stats = envs.train_encoder()
    assert {"inverse_loss", "inverse_accuracy", "bonus_mean", "sigma"} <= set(stats)
    assert len(envs.explorer.record) == 0
    envs.close()


def test_modes_agree_also_on_the_running_scale() -> None:
    """The steps of NEXT_STEP that only reset leave no trace: same bonuses, same sigma, same pairs to train on."""
    results = []
    for mode in MODES:
        envs = E3BVectorReward(SyncVectorEnv([lambda: Walk(4)] * 2, autoreset_mode=mode), seed=0, record_steps=200)
        envs.reset()
        rewards: list[float] = []
        while len(rewards) < 40:
            _, reward, _, _, infos = envs.step(np.array([2, 0]))
            if infos["intrinsic_reward"].any():  # else it only reset
                rewards += reward.tolist()
        unroll = envs.explorer.record.unroll()
        results.append((rewards, envs.explorer.mixer.sigma, int(unroll.valid.sum())))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-5)
    assert results[0][1] == pytest.approx(results[1][1], rel=1e-6)
    assert results[0][2] == results[1][2] == 40


@pytest.mark.parametrize("mode", MODES)
def test_vector_infos_carry_the_parts_with_masks_and_the_sums(mode: AutoresetMode) -> None:
    envs = E3BVectorReward(batch(mode), seed=0, beta=0.5)
    sums = np.zeros((2, 2))
    ended = 0
    for _, rewards, terminated, _, infos in play(envs, 20):
        assert rewards.dtype == np.float64
        np.testing.assert_allclose(rewards, infos["extrinsic_reward"] + infos["intrinsic_reward"], rtol=1e-6)
        sums += infos["intrinsic_reward"], infos["extrinsic_reward"]
        assert ("episode_intrinsic_reward" in infos) == terminated.any()
        if terminated.any():
            np.testing.assert_array_equal(infos["_episode_intrinsic_reward"], terminated)
            got = infos["episode_intrinsic_reward"][terminated], infos["episode_extrinsic_reward"][terminated]
            np.testing.assert_allclose(got, sums[:, terminated], rtol=1e-5)
            sums[:, terminated] = 0.0
            ended += int(terminated.sum())
    assert ended >= 6


def test_infos_turn_into_lists() -> None:
    steps = play(DictInfoToList(E3BVectorReward(batch(), "count")), 5)
    assert all("intrinsic_reward" in info for *_, infos in steps for info in infos)
    assert [("episode_intrinsic_reward" in info) for info in steps[3][4]] == [True, False]


def test_single_infos_carry_the_parts_and_the_sums() -> None:
    env = E3BReward(Walk(3), seed=0, beta=0.5)
    env.reset()
    rewards, parts = [], []
    for action in (2, 2, 2):
        _, reward, done, _, info = env.step(action)
        rewards.append(reward)
        parts.append((info["intrinsic_reward"], info["extrinsic_reward"]))
    assert done
    assert type(reward) is float
    np.testing.assert_allclose(rewards, np.sum(parts, axis=1), rtol=1e-6)
    assert info["episode_extrinsic_reward"] == 0.5
    assert info["episode_intrinsic_reward"] == pytest.approx(sum(inner for inner, _ in parts), rel=1e-6)


def test_statistics_inside_are_the_environments_own_and_outside_the_sum() -> None:
    inside = E3BVectorReward(RecordVectorStatistics(batch()), beta=5.0, seed=0)
    outside = RecordVectorStatistics(E3BVectorReward(batch(), beta=5.0, seed=0))
    for envs, bound in ((inside, (0.0, 2.5)), (outside, (2.6, 1e9))):
        infos = play(envs, 4)[-1][4]
        assert bound[0] <= infos["episode"]["r"][0] <= bound[1]
    single = E3BReward(RecordEpisodeStatistics(Walk(2)), beta=5.0, seed=0)
    single.reset()
    single.step(2)
    assert single.step(2)[4]["episode"]["r"] == 0.0


def test_time_limits_inside_are_ends_too() -> None:
    env = E3BReward(TimeLimit(Walk(100), 3), seed=0)
    env.reset()
    ends = [env.step(1)[3:] for _ in range(3)]
    assert [truncated for truncated, _ in ends] == [False, False, True]
    assert "episode_intrinsic_reward" in ends[-1][1]


def test_monitor_inside_keeps_sb3s_ep_rew_mean_the_environments_own() -> None:
    """SB3 puts a Monitor outside unless there is one inside already."""
    env = E3BReward(Monitor(Walk(6)), beta=50.0, seed=0)
    model = A2C("MlpPolicy", env, n_steps=12, seed=0, device="cpu").learn(24)
    assert max(episode["r"] for episode in model.ep_info_buffer) <= 3.0
    assert model.rollout_buffer.rewards.max() > 3.0


def test_a_wrapped_batch_drives_sb3_through_the_adapter() -> None:
    envs = E3BVectorReward(batch(), beta=0.5, seed=0)
    model = A2C("MlpPolicy", GymnasiumVecEnv(envs), n_steps=8, seed=0, device="cpu").learn(32)
    assert (model.rollout_buffer.rewards > 0).all()
    assert np.isfinite(envs.train_encoder()["inverse_loss"])


def test_blanked_terminal_observations_have_no_bonus_in_either_mode() -> None:
    for mode in MODES:
        for _, _, terminated, _, infos in play(E3BVectorReward(batch(mode, wiped=True), seed=0), 12):
            assert (infos["intrinsic_reward"][terminated] == 0).all()
    env = E3BReward(Walk(2, wiped=True), seed=0)
    env.reset()
    assert [env.step(2)[4]["intrinsic_reward"] > 0 for _ in range(2)] == [True, False]


class Homemade(gym.vector.VectorEnv[Any, Any, Any]):
    """A batch as users write them: resets in the same step, returns no final_obs, uses float32."""

    def __init__(self, metadata: dict[str, Any]) -> None:
        self.metadata = metadata
        self.num_envs = 2
        self.single_observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.single_action_space = spaces.Discrete(3)
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, 2)
        self.action_space = gym.vector.utils.batch_space(self.single_action_space, 2)
        self.buffer = np.zeros((2, 2), np.float32)
        self.time = 0

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.time = 0
        return self.buffer, {}

    def step(self, actions: Any) -> Any:
        self.time += 1
        self.buffer += 0.01  # the same array every time
        ended = np.full(2, self.time % 3 == 0)
        return self.buffer, np.zeros(2, np.float32), ended, np.zeros(2, dtype=bool), {}


def test_a_batch_without_final_obs_is_reported_once_and_its_last_steps_have_no_bonus() -> None:
    envs = E3BVectorReward(Homemade({"autoreset_mode": AutoresetMode.SAME_STEP}), seed=0)
    with pytest.warns(UserWarning, match=r"Homemade end without infos\['final_obs'\]") as caught:
        steps = play(envs, 9)
    assert len(caught) == 1
    intrinsic = [float(infos["intrinsic_reward"][0]) for *_, infos in steps]
    assert [t for t in range(9) if intrinsic[t] == 0.0] == [2, 5, 8]


def test_a_batch_that_does_not_say_how_it_resets_is_reported_once() -> None:
    with pytest.warns(UserWarning, match="Homemade does not declare its autoreset mode; NEXT_STEP") as caught:
        E3BVectorReward(Homemade({}), "count")
    assert len(caught) == 1


def test_the_mode_is_read_from_the_batch_not_from_shared_metadata() -> None:
    """SyncVectorEnv of Gymnasium before 1.4 writes its mode into a dict that all batches of a class share."""
    same = batch(AutoresetMode.SAME_STEP)
    same.metadata = {**same.metadata, "autoreset_mode": AutoresetMode.NEXT_STEP}
    intrinsic = [infos["intrinsic_reward"] for *_, infos in play(E3BVectorReward(same, "count"), 10)]
    assert (np.array(intrinsic) > 0).all()


def test_training_by_hand_teaches_the_encoder() -> None:
    makers = [lambda: Walk(30, observations="discrete")] * 8
    envs = E3BVectorReward(SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP), record_steps=32, seed=0)
    rng, accuracies = np.random.default_rng(0), []
    envs.reset()
    for part in range(25):
        for _ in range(32):
            envs.step(rng.integers(3, size=8))
        accuracies.append(envs.train_encoder(epochs=4 if part else 1)["inverse_accuracy"])
    assert accuracies[0] < 0.6
    assert np.mean(accuracies[-3:]) > 0.9


@pytest.mark.parametrize("single", [False, True])
def test_save_and_load_continue_exactly(single: bool, tmp_path: Path) -> None:
    def make() -> Any:
        return Walk(4) if single else batch()

    def run(env: Any) -> list[float]:
        env.reset(seed=0)
        actions = [2, 0, 1] if single else [np.array([2, 0]), np.array([1, 2]), np.array([0, 0])]
        return [np.sum(env.step(action)[1]) for action in actions]

    kind: Any = E3BReward if single else E3BVectorReward
    env = kind(make(), seed=0, beta=0.7)
    run(env)
    env.train_encoder()
    env.save(tmp_path / "bonus.pt")
    loaded = kind.load(tmp_path / "bonus.pt", make())
    assert run(loaded) == run(env)
    assert loaded.train_encoder() == env.train_encoder()
    assert run(loaded) == run(env)


@pytest.mark.parametrize("wrong", ["abc", 0, 1.5, True])
def test_record_steps_that_are_no_whole_number_are_refused(wrong: Any, tmp_path: Path) -> None:
    message = f"^record_steps must be a whole number of at least 1; got {wrong!r}$"
    with pytest.raises(ValueError, match=message):
        E3BVectorReward(batch(), "count", record_steps=wrong)
    with pytest.raises(ValueError, match=message):
        E3BReward(Walk(), "count", record_steps=wrong)
    E3BReward(Walk(), "count", record_steps=np.int64(8)).save(tmp_path / "bonus.pt")
    with pytest.raises(ValueError, match=message):
        E3BReward.load(tmp_path / "bonus.pt", Walk(), record_steps=wrong)


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match=r"wraps a gymnasium\.vector\.VectorEnv; got Walk"):
        E3BVectorReward(Walk())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"wraps a gymnasium\.Env; got SyncVectorEnv"):
        E3BReward(batch())
    with pytest.raises(ValueError, match="DISABLED is not supported"):
        E3BVectorReward(batch(AutoresetMode.DISABLED))
    with pytest.raises(ValueError, match="has an exploration bonus already"):
        E3BReward(TimeLimit(E3BReward(Walk(), "count"), 3))
    with pytest.raises(ValueError, match="has an exploration bonus already"):
        E3BVectorReward(RecordVectorStatistics(E3BVectorReward(batch(), "count")))
    for kind in (SyncVectorEnv, AsyncVectorEnv):
        worn = kind([lambda: E3BReward(Walk(), "count")] * 2)
        with pytest.raises(ValueError, match="has an exploration bonus already"):
            E3BVectorReward(worn)
        worn.close()
    with pytest.raises(ValueError, match="has an exploration bonus already"):
        E3BRewardWrapper(GymnasiumVecEnv(E3BVectorReward(batch(AutoresetMode.SAME_STEP), "count")))
    with pytest.raises(ValueError, match=r"reset\(\) resets all of them"):
        E3BVectorReward(batch(), "count").reset(options={"reset_mask": np.array([True, False])})
    with pytest.raises(ValueError, match="built for the action space"):
        E3BReward(Walk(), make_bonus("e3b", Walk().observation_space, spaces.Discrete(9), 1))

    class Spoken(Walk):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = spaces.Dict({"place": spaces.Discrete(PLACES), "word": spaces.Text(9)})

    with pytest.raises(UnsupportedSpaceError, match=r"word.*Text"):
        E3BReward(Spoken())


def test_the_step_in_which_autoreset_only_resets_gets_no_bonus() -> None:
    """Played with and without the Autoreset wrapper, the real steps get the same rewards."""
    by_hand, automatic = (E3BReward(env, seed=0, normaliser="none") for env in (Walk(4), Autoreset(Walk(4))))
    expected, got = [], []
    for _ in range(3):
        by_hand.reset()
        expected += [by_hand.step(action)[1] for action in (2, 2, 0, 2)]
    automatic.reset()
    for _ in range(3):
        got += [automatic.step(action)[1] for action in (2, 2, 0, 2)]
        _, reward, terminated, truncated, info = automatic.step(0)  # only resets
        assert (reward, terminated, truncated) == (0.0, False, False)
        assert info["intrinsic_reward"] == 0.0
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_a_reset_by_hand_takes_the_place_of_autoresets() -> None:
    env = E3BReward(TimeLimit(Autoreset(Walk(4)), 4), "count")
    env.reset()
    for _ in range(4):
        env.step(2)
    env.reset()
    assert env.step(2)[4]["intrinsic_reward"] > 0
