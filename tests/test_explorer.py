"""The engine: Algorithm 1 over every interface, and a record without gaps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv
from torch import nn
from walks import Walk, action_of, algorithm_1, played_by_hand, walks

from e3b_gym import reward
from e3b_gym.bonuses import make_bonus
from e3b_gym.gymnasium import E3BReward, E3BVectorReward
from e3b_gym.online import OnlineExplorer, Recorder
from e3b_gym.sb3 import E3BRewardWrapper, GymnasiumVecEnv

ENVS, STEPS = 3, 23
# Algorithm 1 on the observations themselves, unscaled.
PLAIN: dict[str, Any] = {"preset": "paper", "normaliser": "none", "beta": 1.0, "encoder": nn.Identity()}
Rewards = list[list[tuple[float, float]]]  # by environment, step by step: total and intrinsic


def drive_sb3(venv: VecEnv) -> Rewards:
    wrapper = E3BRewardWrapper(venv, **PLAIN)
    wrapper.reset()
    got: Rewards = [[] for _ in range(ENVS)]
    for step in range(STEPS):
        _, rewards, _, infos = wrapper.step(np.array([action_of(env, step) for env in range(ENVS)]))
        for env in range(ENVS):
            got[env].append((float(rewards[env]), infos[env]["intrinsic_reward"]))
    wrapper.close()
    return got


def drive_gymnasium(envs: gym.vector.VectorEnv[Any, Any, Any]) -> Rewards:
    wrapper = E3BVectorReward(envs, **PLAIN)
    wrapper.reset()
    got: Rewards = [[] for _ in range(ENVS)]
    resets_next = np.zeros(ENVS, dtype=bool)
    waits = envs.unwrapped.autoreset_mode == AutoresetMode.NEXT_STEP
    while min(map(len, got)) < STEPS:
        actions = np.array([action_of(env, len(got[env])) for env in range(ENVS)])
        _, rewards, terminated, truncated, infos = wrapper.step(actions)
        for env in range(ENVS):
            if resets_next[env]:
                assert (rewards[env], infos["intrinsic_reward"][env]) == (0.0, 0.0)
            else:
                got[env].append((float(rewards[env]), float(infos["intrinsic_reward"][env])))
        resets_next = (terminated | truncated) & waits
    wrapper.close()
    return [pairs[:STEPS] for pairs in got]


def drive_singly() -> Rewards:
    got: Rewards = []
    for env, make in enumerate(walks(ENVS)):
        walk_env = E3BReward(make(), **PLAIN)
        walk_env.reset()
        got.append([])
        for step in range(STEPS):
            _, total, done, _, info = walk_env.step(action_of(env, step))
            got[-1].append((total, info["intrinsic_reward"]))
            if done:
                walk_env.reset()
    return got


def same_step(kind: Callable[..., Any]) -> Any:
    return kind(walks(ENVS), autoreset_mode=AutoresetMode.SAME_STEP)


INTERFACES: dict[str, Callable[[], Rewards]] = {
    "DummyVecEnv": lambda: drive_sb3(DummyVecEnv(walks(ENVS))),
    "SubprocVecEnv": lambda: drive_sb3(SubprocVecEnv(walks(ENVS), start_method="fork")),
    "GymnasiumVecEnv": lambda: drive_sb3(GymnasiumVecEnv(same_step(SyncVectorEnv))),
    "SAME_STEP": lambda: drive_gymnasium(same_step(SyncVectorEnv)),
    "SAME_STEP in processes": lambda: drive_gymnasium(same_step(AsyncVectorEnv)),
    "NEXT_STEP": lambda: drive_gymnasium(SyncVectorEnv(walks(ENVS))),
    "single": drive_singly,
}


@pytest.mark.parametrize("interface", INTERFACES)
def test_every_interface_computes_algorithm_1(interface: str) -> None:
    """First observations unscored, true terminal ones scored, the ellipse cleared exactly at episode ends."""
    for env, pairs in enumerate(INTERFACES[interface]()):
        bonuses, rewards = played_by_hand(env, STEPS)
        np.testing.assert_allclose([inner for _, inner in pairs], bonuses, rtol=2e-4)
        np.testing.assert_allclose([total for total, _ in pairs], np.add(bonuses, rewards), rtol=2e-4)


def test_the_next_first_observation_in_place_of_the_last_would_give_another_bonus() -> None:
    """So the closed form above can tell the two apart."""
    walk_env = Walk(4)
    first = walk_env.reset()[0]
    episode = [first, *(walk_env.step(action_of(0, step))[0] for step in range(4))]
    assert algorithm_1([episode])[-1] != pytest.approx(algorithm_1([[*episode[:-1], first]])[-1], rel=0.05)


def engine_of(method: str = "e3b", num_envs: int = 2, record_steps: int = 8, **options: Any) -> OnlineExplorer:
    walk_env = Walk()
    bonus = make_bonus(method, walk_env.observation_space, walk_env.action_space, num_envs, seed=0, **options)
    return OnlineExplorer(bonus, reward.RewardMixer(1.0), num_envs, record_steps=record_steps)


def random_step(engine: OnlineExplorer, rng: np.random.Generator, done: Any = None, terminals: Any = None) -> Any:
    count = engine.num_envs
    obs = rng.normal(size=(count, 3)).astype(np.float32)
    done = np.zeros(count, dtype=bool) if done is None else done
    return engine.step(rng.integers(3, size=count), obs, np.zeros(count), done, terminals or {})


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 6), st.lists(st.sampled_from(["step", "done", "wiped", "reset", "clear"]), max_size=20))
def test_the_record_is_the_latest_steps_with_true_pairs(capacity: int, events: list[str]) -> None:
    """Whatever happens, every valid pair of the record was really stepped, in order, and none is older than allowed."""
    record, clock = Recorder(capacity, 1), 0.0

    def now() -> Any:
        nonlocal clock
        clock += 1.0
        return np.array([[clock]])

    here = now()
    record.start(here)
    pairs: list[tuple[float, float] | None] = []
    for event in events:
        if event == "clear":
            record.clear()
            pairs = []
        elif event == "reset":
            here = now()
            record.start(here)
            pairs = [*pairs[:-1], pairs[-1] and (pairs[-1] if pairs[-1][1] == -1 else None)] if pairs else []
        else:
            arrived, ended = now(), event != "step"
            terminals = {0: np.array([-1.0])} if event == "done" else {}
            record.add(np.array([0]), arrived, np.array([ended]), terminals)
            pairs.append(None if event == "wiped" else (here[0, 0], -1.0 if ended else arrived[0, 0]))
            here = arrived
    pairs = pairs[-capacity:]
    assert len(record) == len(pairs)
    if pairs:
        unroll = record.unroll()
        left, arrived = unroll.obs[:-1, 0, 0], unroll.next_obs[:, 0, 0]
        rows = zip(left.tolist(), arrived.tolist(), unroll.valid[:, 0].tolist(), strict=True)
        assert [(a, b) if valid else None for a, b, valid in rows] == pairs


def test_evaluation_in_between_leaves_no_gap_in_the_record() -> None:
    engine, rng = engine_of(), np.random.default_rng(0)
    engine.reset(np.zeros((2, 3), np.float32))
    random_step(engine, rng)
    engine.training = False
    random_step(engine, rng)
    engine.training = True
    assert len(engine.record) == 0
    random_step(engine, rng)
    assert len(engine.record) == 1


def test_a_turned_ring_scores_like_a_long_one() -> None:
    """The unroll of a step is a view into the ring except where it turns."""
    results = []
    for capacity in (1, 3, 100):
        engine, rng = engine_of(record_steps=capacity), np.random.default_rng(0)
        engine.reset(rng.normal(size=(2, 3)).astype(np.float32))
        results.append(np.array([random_step(engine, rng).bonus for _ in range(10)]))
    np.testing.assert_array_equal(results[0], results[2])
    np.testing.assert_array_equal(results[1], results[2])


def test_embedding_once_equals_embedding_again() -> None:
    """The features of the last observation are reused; forgetting them must not change the bonus."""
    results = []
    for forget in (False, True):
        engine, rng = engine_of("noveld"), np.random.default_rng(0)
        engine.reset(rng.normal(size=(2, 3)).astype(np.float32))
        bonus = []
        for step in range(6):
            if forget:
                engine._features = None
            done = np.array([step == 3, False])
            bonus.append(random_step(engine, rng, done, {0: np.ones(3, np.float32)} if step == 3 else None).bonus)
        results.append(np.array(bonus))
    np.testing.assert_allclose(results[0], results[1], rtol=1e-4)


def test_unseen_arrivals_do_not_enter_the_running_scale() -> None:
    engine, rng = engine_of(), np.random.default_rng(0)
    engine.reset(np.zeros((2, 3), np.float32))
    first = random_step(engine, rng)
    sigma = engine.mixer.sigma
    wiped = random_step(engine, rng, done=np.array([True, True]))
    assert wiped.bonus.tolist() == [0.0, 0.0]
    assert engine.mixer.sigma == sigma == pytest.approx(max(first.bonus.std(), 0.1 * first.bonus.mean()), rel=1e-5)


def test_statistics_are_those_of_the_steps_since_the_last_training() -> None:
    engine, rng = engine_of(record_steps=50), np.random.default_rng(0)
    engine.reset(np.zeros((2, 3), np.float32))
    random_step(engine, rng)
    engine.train()
    results = [random_step(engine, rng) for _ in range(20)]
    bonus = np.array([step.bonus for step in results])
    stats = engine.train()
    assert stats["bonus_mean"] == pytest.approx(bonus.mean(), rel=1e-5)
    assert stats["bonus_std"] == pytest.approx(bonus.std(), rel=1e-5)
    assert stats["reward_share"] == 1.0
    assert stats["sigma"] == engine.mixer.sigma
    assert {"inverse_loss", "inverse_accuracy", "phi_norm", "phi_rank"} <= set(stats)


def test_training_uses_each_step_once_and_an_empty_record_trains_nothing() -> None:
    engine, rng = engine_of(), np.random.default_rng(0)
    engine.reset(np.zeros((2, 3), np.float32))
    for _ in range(4):
        random_step(engine, rng)
    before = {name: value.clone() for name, value in engine.bonus.state_dict().items()}
    engine.train()
    after = {name: value.clone() for name, value in engine.bonus.state_dict().items()}
    assert any(not torch.equal(before[name], after[name]) for name in before)
    engine.train()
    assert all(torch.equal(value, after[name]) for name, value in engine.bonus.state_dict().items())


def test_nan_observations_name_the_leaf_and_the_environment() -> None:
    walk_env = Walk(observations="dict")
    bonus = make_bonus("e3b", walk_env.observation_space, walk_env.action_space, 2, seed=0)
    engine = OnlineExplorer(bonus, reward.RewardMixer(1.0), 2, record_steps=8)
    fine = {"features": np.zeros((2, 3), np.float32), "place": np.zeros(2, np.int64)}
    engine.reset(fine)
    bad = {**fine, "features": np.array([[0, 0, 0], [0, np.nan, 0]], np.float32)}
    nothing = np.zeros(2), np.zeros(2, dtype=bool)
    with pytest.raises(ValueError, match=r"\['features'\] has NaN .* environment \[1\]"):
        engine.step(np.zeros(2, np.int64), bad, *nothing, {})
    last = {1: {"features": np.full(3, np.inf, np.float32), "place": 0}}
    with pytest.raises(ValueError, match=r"the last observation .*environment \[1\]"):
        engine.step(np.zeros(2, np.int64), fine, nothing[0], np.array([False, True]), last)
    with pytest.raises(ValueError, match=r"reward of environment \[0\] is NaN"):
        engine.step(np.zeros(2, np.int64), fine, np.array([np.nan, 0.0]), nothing[1], {})


def test_stepping_before_the_first_reset_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"call reset\(\) first"):
        random_step(engine_of(), np.random.default_rng(0))


def test_observations_that_the_environment_overwrites_are_kept() -> None:
    """Simulators reuse their arrays; the record must not change with them."""
    engine = engine_of()
    shared = np.zeros((2, 3), np.float32)
    engine.reset(shared)
    for value in (1.0, 2.0):
        shared[:] = value
        engine.step(np.zeros(2, np.int64), shared, np.zeros(2), np.zeros(2, dtype=bool), {})
    shared[:] = 9.0
    assert engine.record.unroll().obs[:, 0, 0].tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32, np.float64, np.float16, np.int8, np.bool_])
def test_every_numeric_dtype_is_scored(dtype: Any) -> None:
    space = gym.spaces.Box(0, 1, (4,), dtype) if dtype != np.bool_ else gym.spaces.MultiBinary(4)
    bonus = make_bonus("e3b", space, gym.spaces.Discrete(2), 2, seed=0)
    engine = OnlineExplorer(bonus, reward.RewardMixer(1.0), 2, record_steps=4)
    engine.reset(np.zeros((2, 4), dtype))
    obs = np.ones((2, 4), dtype)
    obs.flags.writeable = False
    results = engine.step(np.zeros(2, np.int64), obs, np.zeros(2), np.zeros(2, dtype=bool), {})
    assert (results.bonus > 0).all()
    assert np.isfinite(engine.train()["inverse_loss"])


def constant_state(encoder: nn.Module, envs: int = 4, steps: int = 20) -> list[float]:
    """Bonus of each step in environments whose observation never changes."""
    space = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
    bonus = make_bonus("e3b", space, gym.spaces.Discrete(2), envs, encoder=encoder, seed=0)
    explorer = OnlineExplorer(bonus, reward.RewardMixer(normaliser="none"), envs, record_steps=steps)
    still = np.full((envs, 3), 0.5, np.float32)
    explorer.reset(still)
    none = np.zeros(envs, bool)
    return [
        float(explorer.step(np.zeros(envs, np.int64), still, np.zeros(envs), none, {}).bonus[0]) for _ in range(steps)
    ]


def test_dropout_in_an_encoder_does_not_make_a_known_state_new() -> None:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(3, 8), nn.ReLU())
    plain, dropout = constant_state(layers), constant_state(nn.Sequential(layers, nn.Dropout(0.5)))
    np.testing.assert_allclose(dropout, plain)


def test_batch_normalisation_learns_in_training_and_not_while_scoring() -> None:
    norm = nn.BatchNorm1d(8)
    space = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
    encoder = nn.Sequential(nn.Linear(3, 8), norm)
    bonus = make_bonus("e3b", space, gym.spaces.Discrete(2), 1, encoder=encoder, seed=0)
    learned = next(part for part in bonus.modules() if isinstance(part, nn.BatchNorm1d))
    explorer = OnlineExplorer(bonus, reward.RewardMixer(), 1, record_steps=8)
    generator = np.random.default_rng(0)
    explorer.reset(generator.normal(size=(1, 3)).astype(np.float32))
    before = learned.running_mean.clone()
    for _ in range(8):  # a single environment: batch statistics would be an error
        obs = generator.normal(size=(1, 3)).astype(np.float32)
        explorer.step(np.zeros(1, np.int64), obs, np.zeros(1), np.zeros(1, bool), {})
    assert torch.equal(learned.running_mean, before)
    explorer.train()
    assert not torch.equal(learned.running_mean, before)
    assert not learned.training
