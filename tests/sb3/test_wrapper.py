"""E3BRewardWrapper keeps VecNormalize's conventions, and answers bad input with the thing and the remedy."""

from __future__ import annotations

import math
import pickle
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import A2C
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecFrameStack, VecNormalize
from torch import nn
from walks import PLACES, Walk, walks

from e3b_gym.bonuses import METHODS, InverseSqrtCount, make_bonus
from e3b_gym.bonuses.keys import full_observation
from e3b_gym.encoders.partial import PartialEncoder
from e3b_gym.errors import UnsupportedSpaceError
from e3b_gym.gymnasium import E3BReward
from e3b_gym.sb3 import E3BRewardWrapper, EncoderUpdateCallback, find_wrapper
from e3b_gym.sb3 import make_vec_env as make_suite_env
from e3b_gym.sb3 import wrapper as sb3_wrapper

NEEDS_POLICY = {"agac", "agac-nocount", "e3b-policy"}
NEEDS_PARTS = {name for name in METHODS if name.endswith(("-position", "-image", "-message", "-subsampled"))}


def venv_of(count: int = 2, **options: Any) -> VecEnv:
    return DummyVecEnv(walks(count, **options))


def play(venv: VecEnv, steps: int, seed: int = 0) -> tuple[np.ndarray, list[list[dict[str, Any]]]]:
    """Rewards [T, N] and infos of random actions."""
    rng, rewards, infos = np.random.default_rng(seed), [], []
    venv.reset()
    for _ in range(steps):
        _, reward, _, info = venv.step(rng.integers(3, size=venv.num_envs))
        rewards.append(reward)
        infos.append(info)
    return np.array(rewards), infos


def values_of(infos: list[list[dict[str, Any]]], key: str) -> np.ndarray:
    return np.array([[info[key] for info in row] for row in infos])


@pytest.mark.parametrize("method", sorted(set(METHODS) - NEEDS_POLICY - NEEDS_PARTS))
def test_every_method_by_name_gives_a_bonus_and_trains(method: str) -> None:
    wrapper = E3BRewardWrapper(venv_of(), method, seed=0)
    rewards, infos = play(wrapper, 8)
    assert rewards.dtype == np.float32
    np.testing.assert_allclose(
        rewards, values_of(infos, "extrinsic_reward") + values_of(infos, "intrinsic_reward"), rtol=1e-6
    )
    assert (values_of(infos, "intrinsic_reward") > 0).any() == (method != "none")
    stats = wrapper.train_encoder()
    assert all(math.isfinite(value) for value in stats.values())
    assert any(name.endswith("_loss") for name in stats) == (wrapper.explorer.optimizer is not None)


@pytest.mark.parametrize("observations", ["dict", "tuple", "image", "discrete"])
@pytest.mark.parametrize("actions", ["discrete", "box", "multidiscrete", "multibinary"])
def test_every_kind_of_space_gives_a_bonus_and_trains(observations: str, actions: str) -> None:
    wrapper = E3BRewardWrapper(venv_of(observations=observations, actions=actions), seed=0)
    wrapper.reset()
    wrapper.action_space.seed(0)
    intrinsic = []
    for _ in range(6):
        _, _, _, infos = wrapper.step(np.stack([wrapper.action_space.sample() for _ in range(2)]))
        intrinsic += [info["intrinsic_reward"] for info in infos]
    assert max(intrinsic) > 0
    assert math.isfinite(wrapper.train_encoder()["inverse_loss"])


def test_a_bonus_object_and_the_algebra_of_bonuses() -> None:
    venv = venv_of()
    e3b = make_bonus("e3b", venv.observation_space, venv.action_space, 2, seed=0)
    count = InverseSqrtCount(full_observation)
    intrinsic = [
        values_of(play(E3BRewardWrapper(venv_of(), bonus, beta=1.0, normaliser="none"), 6)[1], "intrinsic_reward")
        for bonus in (e3b, count, e3b + 2.0 * count)
    ]
    np.testing.assert_allclose(intrinsic[2], intrinsic[0] + 2 * intrinsic[1], rtol=1e-4)


def test_beta_extrinsic_and_clip_mix_the_reward() -> None:
    options: dict[str, Any] = {"seed": 0, "normaliser": "none"}
    rewards, infos = play(E3BRewardWrapper(venv_of(), beta=0.5, extrinsic=0.0, **options), 12)
    inner, outer = values_of(infos, "intrinsic_reward"), values_of(infos, "extrinsic_reward")
    assert outer.max() == 0.5
    np.testing.assert_allclose(rewards, inner, rtol=1e-6)
    clipped, _ = play(E3BRewardWrapper(venv_of(), beta=1.0, clip=0.3, **options), 12)
    np.testing.assert_allclose(clipped, np.clip(outer + 2 * inner, -0.3, 0.3), rtol=1e-5)
    assert clipped.max() == np.float32(0.3)


def test_options_and_presets_reach_the_bonus() -> None:
    paper = E3BRewardWrapper(venv_of(), preset="paper", dim=5)
    default = E3BRewardWrapper(venv_of(), ridge=0.7)
    authors = E3BRewardWrapper(venv_of(), preset="authors")
    assert (paper.bonus.unit_length, paper.bonus.representation.dim) == (False, 5)
    assert (default.bonus.unit_length, default.bonus.ridge) == (True, 0.7)
    assert authors.bonus.bonus_of == "current"
    assert [w.explorer.mixer.clip for w in (paper, authors)] == [None, 1.0]


def test_a_seed_gives_the_same_rewards_again_and_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(5)
    state = torch.get_rng_state()
    one, two, three = (play(E3BRewardWrapper(venv_of(), seed=seed), 9)[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, three)
    assert torch.equal(torch.get_rng_state(), state)


def test_infos_carry_the_parts_and_an_episode_ends_with_its_sums() -> None:
    _, infos = play(E3BRewardWrapper(venv_of(2), seed=0), 9)
    inner, outer = values_of(infos, "intrinsic_reward"), values_of(infos, "extrinsic_reward")
    for env, length in ((0, 4), (1, 5)):
        ends = [t for t in range(9) if "episode_intrinsic_reward" in infos[t][env]]
        assert ends == list(range(length - 1, 9, length))
        for end in ends:
            episode = slice(end - length + 1, end + 1)
            assert infos[end][env]["episode_intrinsic_reward"] == pytest.approx(inner[episode, env].sum(), rel=1e-5)
            assert infos[end][env]["episode_extrinsic_reward"] == pytest.approx(outer[episode, env].sum())


def test_an_early_reset_starts_new_sums() -> None:
    wrapper = E3BRewardWrapper(venv_of(1), seed=0)
    play(wrapper, 2)
    _, infos = play(wrapper, 4)
    assert infos[3][0]["episode_intrinsic_reward"] == pytest.approx(
        values_of(infos, "intrinsic_reward").sum(), rel=1e-5
    )


def test_the_environments_own_info_dict_is_not_written_to() -> None:
    class OneDict(Walk):
        kept: dict[str, Any] = {}  # noqa: RUF012 (shared on purpose)

        def step(self, action: Any) -> Any:
            return *super().step(action)[:4], self.kept

    wrapper = E3BRewardWrapper(DummyVecEnv([lambda: OneDict(4)]), "count")
    _, infos = play(wrapper, 6)
    assert "intrinsic_reward" not in OneDict.kept
    assert "episode_intrinsic_reward" not in infos[4][0]


def test_get_original_reward_is_the_environments_own() -> None:
    wrapper = E3BRewardWrapper(venv_of(), beta=1.0, seed=0)
    wrapper.reset()
    for action in (2, 2, 2):
        wrapper.step(np.array([action, action]))
    np.testing.assert_array_equal(wrapper.get_original_reward(), np.float32([0.5, 0.5]))
    wrapper.reset()
    np.testing.assert_array_equal(wrapper.get_original_reward(), np.float32([0, 0]))


def test_ep_rew_mean_stays_the_environments_own() -> None:
    venv = make_vec_env(lambda: Walk(6), n_envs=2)
    model = A2C("MlpPolicy", E3BRewardWrapper(venv, beta=100.0, seed=0), n_steps=12, seed=0)
    model.learn(48, callback=EncoderUpdateCallback())
    assert max(episode["r"] for episode in model.ep_info_buffer) <= 3.0
    assert model.rollout_buffer.rewards.sum() > 12 * 2 * 3


def test_calls_pass_through_to_the_environments() -> None:
    venv = SubprocVecEnv(walks(2), start_method="fork")
    wrapper = E3BRewardWrapper(venv, "count")
    wrapper.seed(3)
    wrapper.set_options({"a": 1})
    wrapper.reset()
    assert list(wrapper.reset_infos) == [{"fresh": True}] * 2 == list(venv.reset_infos)
    assert wrapper.env_method("move_to", 4) == [4, 4]
    assert wrapper.get_attr("length") == [4, 5]
    wrapper.set_attr("length", 9, indices=[0])
    assert wrapper.get_attr("length") == [9, 5]
    assert wrapper.env_is_wrapped(Monitor) == [False, False]
    assert wrapper.get_images()[0].shape == (4, 4, 3)
    assert wrapper.render("rgb_array").shape == (8, 4, 3)
    assert wrapper.has_attr("length")
    wrapper.close()
    assert venv.closed


def test_norm_and_training_flags() -> None:
    wrapper = E3BRewardWrapper(venv_of(), "count", beta=1.0)
    play(wrapper, 20)
    sigma = wrapper.explorer.mixer.sigma
    assert sigma not in (0.0, 1.0)
    wrapper.norm = False
    wrapper.training = False
    assert len(wrapper.explorer.record) == 0
    _, infos = play(wrapper, 3)
    np.testing.assert_allclose(sorted(set(values_of(infos, "intrinsic_reward").ravel()))[-1], 1.0)
    wrapper.norm = True
    assert wrapper.explorer.mixer.sigma == sigma
    assert len(wrapper.explorer.record) == 0
    constructed = E3BRewardWrapper(venv_of(), "count", training=False, norm=False)
    assert (constructed.training, constructed.norm) == (False, False)


@pytest.mark.parametrize("flag", ["training", "norm"])
@pytest.mark.parametrize("wrong", ["no", 0, None])
def test_a_flag_that_is_not_true_or_false_is_refused(flag: str, wrong: Any) -> None:
    message = f"^{flag} must be true or false; got {wrong!r}$"
    with pytest.raises(ValueError, match=message):
        E3BRewardWrapper(venv_of(), "count", **{flag: wrong})
    wrapper = E3BRewardWrapper(venv_of(), "count")
    with pytest.raises(ValueError, match=message):
        setattr(wrapper, flag, wrong)
    assert getattr(wrapper, flag) is True
    setattr(wrapper, flag, np.bool_(False))
    assert getattr(wrapper, flag) is False


def test_save_and_load_continue_exactly(tmp_path: Path) -> None:
    """After loading, rewards and the next training agree bit by bit."""
    wrapper = E3BRewardWrapper(venv_of(), "e3b-nonepisodic", seed=0, beta=np.float64(0.3), clip=2.5)
    play(wrapper, 20)
    wrapper.train_encoder()
    wrapper.save(tmp_path / "bonus.pt")
    loaded = E3BRewardWrapper.load(tmp_path / "bonus.pt", venv_of())
    assert loaded.explorer.mixer.beta == 0.3
    results = []
    for each in (wrapper, loaded):
        rewards, _ = play(each, 10, seed=1)
        stats = each.train_encoder()
        results.append((rewards, stats, play(each, 10, seed=2)[0]))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    assert results[0][1] == results[1][1]
    np.testing.assert_array_equal(results[0][2], results[1][2])
    assert [file.name for file in tmp_path.iterdir()] == ["bonus.pt"]


@pytest.mark.parametrize("sees", ["view", ["view", "position"]])
def test_what_the_encoder_sees_is_saved(tmp_path: Path, sees: Any) -> None:
    wrapper = E3BRewardWrapper(make_suite_env("Rooms-K3-v0", n_envs=2, seed=0), seed=0, sees=sees)
    wrapper.save(tmp_path / "bonus.pt")
    loaded = E3BRewardWrapper.load(tmp_path / "bonus.pt", make_suite_env("Rooms-K3-v0", n_envs=2, seed=0))
    encoder = loaded.bonus.representation.encoder
    assert isinstance(encoder, PartialEncoder)
    assert encoder.keys == ({sees} if isinstance(sees, str) else set(sees))
    np.testing.assert_array_equal(play(loaded, 9)[0], play(wrapper, 9)[0])


def test_a_loaded_wrapper_keeps_its_settings_when_presets_change(tmp_path: Path, monkeypatch: Any) -> None:
    from e3b_gym import config

    E3BRewardWrapper(venv_of(), seed=0).save(tmp_path / "bonus.pt")
    changed = {**config.PRESETS["default"], "e3b": {"ridge": 9.0, "beta": 7.0}}
    monkeypatch.setitem(config.PRESETS, "default", changed)
    loaded = E3BRewardWrapper.load(tmp_path / "bonus.pt", venv_of())
    assert (loaded.bonus.ridge, loaded.explorer.mixer.beta) == (0.1, 0.01)


def test_own_encoders_and_own_bonuses_are_given_again_on_loading(tmp_path: Path) -> None:
    def network() -> nn.Module:
        return nn.Linear(3, 4)

    wrapper = E3BRewardWrapper(venv_of(), encoder=network(), ridge=0.3)
    wrapper.save(tmp_path / "encoder.pt")
    with pytest.raises(ValueError, match=r"needs encoder=\.\.\."):
        E3BRewardWrapper.load(tmp_path / "encoder.pt", venv_of())
    loaded = E3BRewardWrapper.load(tmp_path / "encoder.pt", venv_of(), encoder=network())
    np.testing.assert_array_equal(play(loaded, 9)[0], play(wrapper, 9)[0])
    with pytest.raises(ValueError, match="does not fit"):
        E3BRewardWrapper.load(tmp_path / "encoder.pt", venv_of(), encoder=nn.Linear(3, 5))

    venv = venv_of()
    bonuses = [make_bonus("rnd", venv.observation_space, venv.action_space, 2, dim=8) for _ in range(2)]
    own = E3BRewardWrapper(venv, bonuses[0])
    own.save(tmp_path / "own.pt")
    with pytest.raises(ValueError, match=r"bonus=\.\.\."):
        E3BRewardWrapper.load(tmp_path / "own.pt", venv_of())
    again = E3BRewardWrapper.load(tmp_path / "own.pt", venv_of(), bonus=bonuses[1])
    np.testing.assert_array_equal(play(again, 9)[0], play(own, 9)[0])
    E3BRewardWrapper(venv_of(), "count").save(tmp_path / "count.pt")
    with pytest.raises(ValueError, match=r"remove bonus"):
        E3BRewardWrapper.load(tmp_path / "count.pt", venv_of(), bonus=bonuses[1])


def test_another_number_of_environments_keeps_what_was_learned(tmp_path: Path) -> None:
    wrapper = E3BRewardWrapper(venv_of(2), seed=0)
    play(wrapper, 20)
    wrapper.train_encoder()
    wrapper.save(tmp_path / "episodic.pt")
    loaded = E3BRewardWrapper.load(tmp_path / "episodic.pt", venv_of(3))  # nothing to warn about: episodes start again
    assert loaded.explorer.mixer.sigma == wrapper.explorer.mixer.sigma
    assert play(loaded, 3)[0].shape == (3, 3)
    lifelong = E3BRewardWrapper(venv_of(2), "e3b-nonepisodic", seed=0)
    play(lifelong, 20)
    lifelong.save(tmp_path / "lifelong.pt")
    with pytest.warns(UserWarning, match="memory of 2 environments, but there are 3"):
        E3BRewardWrapper.load(tmp_path / "lifelong.pt", venv_of(3))


class Exploit:
    """Unpickling it makes a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return Path.touch, (self.file,)


def test_files_that_are_damaged_foreign_or_malicious_are_refused(tmp_path: Path) -> None:
    E3BRewardWrapper(venv_of(), seed=0).save(tmp_path / "good.pt")
    (tmp_path / "damaged.pt").write_bytes((tmp_path / "good.pt").read_bytes()[:500])
    (tmp_path / "text.pt").write_text("hello")
    torch.save({"weights": torch.zeros(3)}, tmp_path / "foreign.pt")
    target = tmp_path / "executed"
    torch.save({"format": 1, "engine": Exploit(target)}, tmp_path / "malicious.pt")
    for name in ("damaged", "text", "foreign", "malicious"):
        with pytest.raises(ValueError, match=f"{name}.pt was not written by the save"):
            E3BRewardWrapper.load(tmp_path / f"{name}.pt", venv_of())
    assert not target.exists()
    torch.load(tmp_path / "malicious.pt", weights_only=False)
    assert target.exists()  # so it would have been
    with pytest.raises(FileNotFoundError):
        E3BRewardWrapper.load(tmp_path / "missing.pt", venv_of())
    with pytest.raises(ValueError, match="saved for the spaces"):
        E3BRewardWrapper.load(tmp_path / "good.pt", venv_of(actions="box"))


def test_pickling_leaves_the_venv_out_and_set_venv_gives_it_back() -> None:
    wrapper = E3BRewardWrapper(venv_of(), seed=0)
    play(wrapper, 15)
    wrapper.train_encoder()
    copy = pickle.loads(pickle.dumps(wrapper))
    assert copy.venv is None
    with pytest.raises(ValueError, match="number of environments 2, but the VecEnv has 3"):
        copy.set_venv(venv_of(3))
    copy.set_venv(venv_of())
    np.testing.assert_array_equal(play(copy, 9)[0], play(wrapper, 9)[0])
    assert copy.train_encoder() == wrapper.train_encoder()
    assert copy.get_attr("length") == [4, 5]
    with pytest.raises(ValueError, match="has its VecEnv already"):
        copy.set_venv(venv_of())
    fresh = pickle.loads(pickle.dumps(wrapper))
    fresh.set_venv(venv_of())
    with pytest.raises(ValueError, match=r"call reset\(\) first"):
        fresh.step(np.array([0, 0]))


def test_evaluation_gives_the_environments_own_reward_and_never_trains() -> None:
    wrapper = E3BRewardWrapper(venv_of(), beta=10.0, extrinsic=0.0, clip=0.1, seed=0)
    evaluated = wrapper.evaluation(venv_of())
    rewards, infos = play(evaluated, 12)
    assert rewards.max() == 0.5
    assert set(values_of(infos, "intrinsic_reward").ravel()) == {0.0}
    assert not evaluated.training
    assert wrapper.explorer.mixer.sigma == 1.0


@pytest.mark.parametrize("order", ["alone", "VecNormalize outside", "VecNormalize inside"])
def test_eval_callback_reports_the_environments_own_reward(order: str, tmp_path: Path) -> None:
    def stack(venv: VecEnv, wrapper: E3BRewardWrapper | None) -> tuple[VecEnv, E3BRewardWrapper]:
        still = {"training": wrapper is None, "norm_reward": False}
        if order == "VecNormalize inside":
            venv = VecNormalize(venv, **still)
        own = E3BRewardWrapper(venv, beta=50.0, seed=0) if wrapper is None else wrapper.evaluation(venv)
        return (VecNormalize(own, **still) if order == "VecNormalize outside" else own), own

    training, wrapper = stack(make_vec_env(lambda: Walk(6), n_envs=2), None)
    evaluated, _ = stack(make_vec_env(lambda: Walk(6), n_envs=1), wrapper)
    evaluate = EvalCallback(evaluated, eval_freq=20, n_eval_episodes=2, log_path=str(tmp_path), verbose=0)
    model = A2C("MlpPolicy", training, n_steps=10, seed=0)
    model.learn(80, callback=[EncoderUpdateCallback(), evaluate])
    results = np.load(tmp_path / "evaluations.npz")["results"]
    assert results.shape == (2, 2)
    assert results.max() <= 3.0
    if order != "alone":
        statistics = model.get_vec_normalize_env().obs_rms.mean
        assert np.abs(statistics).max() > 0
        np.testing.assert_array_equal(evaluated.obs_rms.mean, statistics)


def test_one_warning_when_the_callback_was_forgotten(monkeypatch: Any) -> None:
    monkeypatch.setattr(sb3_wrapper, "PATIENCE", 20)
    wrapper = E3BRewardWrapper(venv_of(), seed=0)
    with pytest.warns(UserWarning, match=r"callback=EncoderUpdateCallback\(\)") as caught:
        A2C("MlpPolicy", wrapper, n_steps=10).learn(200)
    assert len(caught) == 1
    for quiet in (
        E3BRewardWrapper(venv_of(), "count"),
        E3BRewardWrapper(venv_of(), "e3b-random"),
        E3BRewardWrapper(venv_of(), training=False),
        wrapper.evaluation(venv_of()),
    ):
        play(quiet, 50)  # nothing to train; a warning would be an error here
    A2C("MlpPolicy", E3BRewardWrapper(venv_of()), n_steps=50).learn(200, callback=EncoderUpdateCallback())


def test_a_rollout_of_ppos_default_length_trained_by_hand_is_not_reported(monkeypatch: Any) -> None:
    assert sb3_wrapper.PATIENCE >= 2048
    monkeypatch.setattr(sb3_wrapper, "PATIENCE", 20)
    wrapper = E3BRewardWrapper(venv_of(1), seed=0)
    play(wrapper, 20)
    wrapper.train_encoder()
    play(wrapper, 25)


def test_wrapping_twice_is_an_error() -> None:
    wrapped = E3BRewardWrapper(venv_of(), "count")
    inside = DummyVecEnv([lambda: E3BReward(Walk(), "count")])
    for twice in (wrapped, VecFrameStack(wrapped, 2), inside):
        with pytest.raises(ValueError, match=r"already; to use two, add them"):
            E3BRewardWrapper(twice)
    assert find_wrapper(VecFrameStack(wrapped, 2)) is wrapped
    assert find_wrapper(venv_of()) is None


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"got Walk\. Make one with make_vec_env"):
        E3BRewardWrapper(Walk())  # type: ignore[arg-type]
    for options, message in (
        ({"bonus": "e4b"}, "unknown method 'e4b'; did you mean e3b"),
        ({"bonus": 3}, "a method's name, a BonusConfig or a Bonus; got int"),
        ({"preset": "mine"}, "unknown preset 'mine'; choose from"),
        ({"ridgee": 1.0}, "no option ridgee; did you mean ridge"),
        ({"beta": -1.0}, "beta must be"),
        ({"normaliser": "max"}, "normaliser must be 'std' or 'authors' or 'none'; got 'max'"),
        ({"clip": 0.0}, "clip must be a positive number or None"),
        ({"bonus": "noveld-position"}, "no position to count"),
        ({"bonus": InverseSqrtCount(full_observation), "ridge": 1.0}, r"options \(ridge\) apply only to a method"),
    ):
        with pytest.raises(ValueError, match=message):
            E3BRewardWrapper(venv_of(), **options)  # type: ignore[arg-type]


def test_a_bonus_built_for_other_spaces_is_an_error() -> None:
    venv = venv_of()
    other = gym.spaces.Box(0, 1, (7,))
    with pytest.raises(ValueError, match=r"built for the observation space Box\(0.0, 1.0, \(7,\)"):
        E3BRewardWrapper(venv, make_bonus("e3b", other, venv.action_space, 2))
    with pytest.raises(ValueError, match=r"built for the action space Discrete\(5\)"):
        E3BRewardWrapper(venv, make_bonus("e3b", venv.observation_space, gym.spaces.Discrete(5), 2))


def test_unsupported_spaces_are_named() -> None:
    class Spoken(Walk):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = gym.spaces.Dict({"place": gym.spaces.Discrete(PLACES), "word": gym.spaces.Text(9)})

    class Mixed(Walk):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = gym.spaces.Tuple((gym.spaces.Discrete(3), gym.spaces.Discrete(2)))

    with pytest.raises(UnsupportedSpaceError, match=r"word.*Text.*FilterObservation"):
        E3BRewardWrapper(GenerousVecEnv([Spoken]))
    with pytest.raises(UnsupportedSpaceError, match=r"action_space is Tuple.*MultiDiscrete"):
        E3BRewardWrapper(DummyVecEnv([Mixed]))


class GenerousVecEnv(DummyVecEnv):
    """DummyVecEnv stops at spaces without a dtype; other VecEnvs do not."""

    def __init__(self, makers: Any) -> None:
        super().__init__([Walk])
        self.observation_space = makers[0]().observation_space


def test_nan_from_the_environment_is_an_error_that_names_it() -> None:
    class Broken(Walk):
        def step(self, action: Any) -> Any:
            obs, reward, done, truncated, info = super().step(action)
            return (obs * np.nan if action == 0 else obs), (np.nan if action == 2 else reward), done, truncated, info

    wrapper = E3BRewardWrapper(DummyVecEnv([Walk, Broken]), seed=0)
    for action, message in (
        (0, r"observation has NaN.* environment \[1\]"),
        (2, r"reward of environment \[1\] is NaN"),
    ):
        wrapper.reset()
        with pytest.raises(ValueError, match=message):
            wrapper.step(np.array([action, action]))


def test_a_venv_that_hides_its_last_observations_is_reported_once() -> None:
    class Hiding(DummyVecEnv):
        def step_wait(self) -> Any:
            obs, rewards, dones, infos = super().step_wait()
            for info in infos:
                info.pop("terminal_observation", None)
            return obs, rewards, dones, infos

    wrapper = E3BRewardWrapper(Hiding(walks(1)), seed=0)
    with pytest.warns(UserWarning, match="Hiding end without infos") as caught:
        _, infos = play(wrapper, 9)
    assert len(caught) == 1
    intrinsic = values_of(infos, "intrinsic_reward")[:, 0]
    assert [t for t in range(9) if intrinsic[t] == 0.0] == [3, 7]


def test_a_blanked_terminal_observation_has_no_bonus_and_no_warning() -> None:
    _, infos = play(E3BRewardWrapper(venv_of(1, wiped=True), seed=0), 9)
    intrinsic = values_of(infos, "intrinsic_reward")[:, 0]
    assert [t for t in range(9) if intrinsic[t] == 0.0] == [3, 7]


def test_no_warnings_in_ordinary_use() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        venv = make_vec_env("CartPole-v1", n_envs=2)
        A2C("MlpPolicy", E3BRewardWrapper(venv), n_steps=8).learn(64, callback=EncoderUpdateCallback())
    assert caught == []


def test_a_numpy_seed_is_saved_and_loaded(tmp_path: Path) -> None:
    wrapper = E3BRewardWrapper(DummyVecEnv(walks(2)), seed=np.int64(3), norm=np.bool_(True))
    wrapper.save(tmp_path / "wrapper.pt")
    loaded = E3BRewardWrapper.load(tmp_path / "wrapper.pt", DummyVecEnv(walks(2)))
    for name, weight in wrapper.bonus.state_dict().items():
        assert torch.equal(weight, loaded.bonus.state_dict()[name])


def test_numpys_print_options_do_not_change_what_a_space_is(tmp_path: Path) -> None:
    bounds = np.array([1 / 3, np.inf, 0.41887903], np.float32)

    class Bounded(Walk):
        def __init__(self, high: Any = bounds) -> None:
            super().__init__()
            self.observation_space = gym.spaces.Box(-bounds, high)

    E3BRewardWrapper(DummyVecEnv([Bounded])).save(tmp_path / "wrapper.pt")
    with np.printoptions(precision=1, suppress=True):
        E3BRewardWrapper.load(tmp_path / "wrapper.pt", DummyVecEnv([Bounded]))
        narrower = bounds - np.array([0.001, 0, 0], np.float32)
        with pytest.raises(ValueError, match="was saved for the spaces"):
            E3BRewardWrapper.load(tmp_path / "wrapper.pt", DummyVecEnv([lambda: Bounded(narrower)]))


def test_attributes_of_vec_normalize_are_found_from_outside() -> None:
    normalizer = VecNormalize(E3BRewardWrapper(DummyVecEnv(walks(2)), "count"))
    outer = VecFrameStack(normalizer, 2)
    outer.reset()
    outer.step(np.array([0, 0]))
    assert outer.training is True
    assert outer.save == normalizer.save
    np.testing.assert_array_equal(outer.get_original_reward(), normalizer.get_original_reward())
    assert VecFrameStack(E3BRewardWrapper(DummyVecEnv(walks(2)), "count"), 2).training is True


def test_a_venv_that_cannot_say_how_its_environments_are_wrapped_is_fine() -> None:
    class Opaque(DummyVecEnv):
        def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
            raise NotImplementedError

    wrapper = E3BRewardWrapper(Opaque(walks(2)), seed=0)
    A2C("MlpPolicy", wrapper, n_steps=4, device="cpu").learn(8, callback=EncoderUpdateCallback())


@pytest.mark.parametrize("method", sorted(set(METHODS) - NEEDS_PARTS))
def test_every_method_works_under_another_default_dtype(method: str) -> None:
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        wrapper = E3BRewardWrapper(DummyVecEnv(walks(2, observations="dict")), method, seed=0, dim=8)
        if "agac" in method:
            wrapper.policy_logits = lambda: torch.zeros(2, 3, dtype=torch.float32)
        if method == "e3b-policy":
            wrapper.bonus.bind_policy(Reader())
        wrapper.reset()
        for step in range(12):
            _, rewards, _, _ = wrapper.step(np.array([step % 3, 2]))
            assert rewards.dtype == np.float32
            assert np.isfinite(rewards).all()
        wrapper.train_encoder()
    finally:
        torch.set_default_dtype(before)


class Reader:
    """A policy, as far as the policy encoder reads it."""

    dim = 3

    def encode(self, obs: Any) -> torch.Tensor:
        return torch.as_tensor(obs["features"], dtype=torch.float32)
