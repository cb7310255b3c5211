"""e3b_gym.diagnose: runs that are made to fail in a known way, and models that can tell more or less."""

from __future__ import annotations

import json
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from sb3_contrib import MaskablePPO, RecurrentPPO
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize

import e3b_gym
from e3b_gym.diagnosis import Diagnosis, Probe
from e3b_gym.envs import make_vec
from e3b_gym.sb3 import E3BRewardWrapper, EncoderUpdateCallback, GymnasiumVecEnv
from e3b_gym.sb3.actors import make_actor
from tests.walks import Walk

STEPS = 8_192
# A healthy run: within seconds its value function and its encoder have learned, and its policy explores.
SETTINGS: dict[str, Any] = {
    "learning_rate": 1e-3,
    "n_steps": 64,
    "batch_size": 256,
    "n_epochs": 4,
    "ent_coef": 0.01,
    "vf_coef": 10.0,
    "policy_kwargs": {"net_arch": [64, 64], "activation_fn": torch.nn.ReLU},
}
# Updates that are large enough to make the policy deterministic within seconds where nothing holds it back, on six of
# six seeds: rounding differs between processors, so a run has to fail with a margin.
LARGE_STEPS = {"learning_rate": 2e-3, "n_epochs": 20, "clip_range": 1.0, "gae_lambda": 0.8}


def rooms(num_envs: int = 16, **options: Any) -> E3BRewardWrapper:
    envs = make_vec("Rooms-K3-v0", num_envs, seed=7, flat=True, clock=True)
    return E3BRewardWrapper(GymnasiumVecEnv(envs), seed=0, **options)


def trained(bonus: dict[str, Any], ppo: dict[str, Any], *, encoder: bool = True) -> Diagnosis:
    venv = rooms(**bonus)
    model = PPO("MlpPolicy", venv, seed=0, device="cpu", **{**SETTINGS, **ppo})
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the encoder of")
        model.learn(STEPS, callback=EncoderUpdateCallback() if encoder else None)
    diagnosis = e3b_gym.diagnose(model, venv, 32)
    venv.close()
    return diagnosis


def test_a_healthy_run_has_no_problem():
    assert [str(problem) for problem in trained({}, {}).problems] == []


@pytest.mark.parametrize(
    ("bonus", "ppo", "encoder", "first", "option"),
    [
        pytest.param({}, {}, False, "inverse_skill", "EncoderUpdateCallback", id="encoder not trained"),
        pytest.param({"beta": 1.0}, {}, True, "stale_to_goal", "lower beta=1", id="beta x 100"),
        pytest.param({"beta": 1e-4}, {}, True, "bonus_to_goal", "raise beta=0.0001", id="beta / 100"),
        pytest.param({"ridge": 100.0}, {}, True, "stale_share", "lower ridge=100", id="ridge too large"),
        pytest.param({}, {"vf_coef": 0.0}, True, "explained_variance", "raise vf_coef, which is 0", id="vf_coef 0"),
        pytest.param(
            {}, {**LARGE_STEPS, "ent_coef": 0.0}, True, "entropy", "raise ent_coef, which is 0", id="ent_coef 0"
        ),
    ],
)
def test_the_cause_of_a_failure_is_named_first(bonus, ppo, encoder, first, option):
    diagnosis = trained(bonus, ppo, encoder=encoder)
    cause = diagnosis.problems[0]
    assert cause.name == first
    assert option in cause.change
    assert cause.cause in str(diagnosis).replace("\n", " ")


@pytest.fixture
def fresh() -> tuple[PPO, E3BRewardWrapper]:
    venv = rooms(4)
    return PPO("MlpPolicy", venv, n_steps=64, batch_size=64, n_epochs=1, seed=0, device="cpu"), venv


def test_nothing_is_learned_from_the_diagnosis_and_training_continues(fresh):
    model, venv = fresh
    model.learn(256, callback=EncoderUpdateCallback())
    weights = {name: value.clone() for name, value in venv.bonus.state_dict().items()}
    explorer, sigma, draws = venv.explorer, venv.explorer.mixer.sigma, torch.get_rng_state()
    diagnosis = e3b_gym.diagnose(model, venv, 4)
    assert len(diagnosis.episodes) == 4
    assert venv.explorer is explorer
    assert venv.training
    assert venv.explorer.mixer.sigma == sigma
    assert torch.equal(torch.get_rng_state(), draws)
    assert all(torch.equal(weights[name], value) for name, value in venv.bonus.state_dict().items())
    model.learn(256, callback=EncoderUpdateCallback(), reset_num_timesteps=False)
    assert model.num_timesteps == 512


def test_the_models_own_environments_are_the_default(fresh):
    model, _ = fresh
    assert e3b_gym.diagnose(model, episodes=2).length == 50


def test_moments_of_vec_normalize_stay(fresh):
    venv = VecNormalize(rooms(2), norm_obs=True, norm_reward=True)
    model = PPO("MlpPolicy", venv, n_steps=32, batch_size=32, n_epochs=1, device="cpu").learn(64)
    before = venv.obs_rms.mean.copy(), venv.ret_rms.var
    e3b_gym.diagnose(model, venv, 2)
    assert np.array_equal(venv.obs_rms.mean, before[0])
    assert venv.ret_rms.var == before[1]
    assert venv.training


def test_the_probe_scores_steps_as_the_wrapper_does(fresh):
    _, venv = fresh
    venv.training = False
    probe = Probe(venv.bonus, venv.explorer.mixer, venv.num_envs)
    actions = np.random.default_rng(0).integers(venv.action_space.n, size=(70, venv.num_envs))
    probe.reset(venv.reset())
    for action in actions:
        obs, total, done, infos = venv.step(action)
        last = {env: infos[env]["terminal_observation"] for env in np.flatnonzero(done)}
        outer = np.array([info["extrinsic_reward"] for info in infos])
        scored = probe.step(action, obs, outer, done, last)
        np.testing.assert_allclose(scored.total, total, rtol=1e-5)
        inner = [info["intrinsic_reward"] for info in infos]
        np.testing.assert_allclose(probe.step_parts["intrinsic"], inner, rtol=1e-5)


@pytest.mark.parametrize("algorithm", [PPO, A2C, RecurrentPPO, e3b_gym.RecurrentPPO, MaskablePPO])
def test_actor_critics_have_probabilities_and_values(algorithm):
    venv = rooms(2)
    recurrent = issubclass(algorithm, RecurrentPPO)
    batch = {} if algorithm is A2C else {"batch_size": 8}
    model = algorithm("MlpLstmPolicy" if recurrent else "MlpPolicy", venv, n_steps=8, seed=0, device="cpu", **batch)
    diagnosis = e3b_gym.diagnose(model, venv, 3)
    assert {"explained_variance", "entropy", "improbable_share", "inverse_skill", "phi_rank"} <= {
        finding.name for finding in diagnosis.findings
    }
    assert diagnosis["entropy"].value == pytest.approx(1.0, abs=0.02)  # nothing was learned yet


def test_returns_continue_behind_a_time_limit_as_those_of_ppo_do(fresh):
    model, venv = fresh
    played = e3b_gym.diagnose(model, venv, 4).episodes[0]
    assert played.ending == "time limit"
    assert played.bootstrap.shape == (1,)


def test_a_recurrent_model_gives_the_same_values_as_its_rollouts():
    venv = rooms(2)
    model = RecurrentPPO("MlpLstmPolicy", venv, n_steps=60, batch_size=60, n_epochs=1, learning_rate=0.0, device="cpu")
    model.learn(120)
    buffer, actor = model.rollout_buffer, make_actor(model, venv)
    obs = buffer.observations.reshape(2, 60, -1).swapaxes(0, 1)  # SB3 has flattened it, environment by environment
    starts = buffer.episode_starts.reshape(2, 60).swapaxes(0, 1).astype(bool)
    values = []
    for t in range(60):
        actor.act(obs[t], starts[t])
        values.append(actor.values[:, 0])
    np.testing.assert_allclose(np.stack(values, 1).ravel(), buffer.values.ravel(), rtol=1e-4, atol=1e-5)


def test_what_a_model_cannot_tell_is_left_out():
    venv = rooms(2)
    model = DQN("MlpPolicy", venv, device="cpu")
    diagnosis = e3b_gym.diagnose(model, venv, 2)
    assert "entropy" not in diagnosis
    assert "explained_variance" not in diagnosis
    assert "bonus_to_goal" in diagnosis
    assert json.loads(json.dumps(diagnosis.as_dict()))["title"] == "DQN after 0 steps"


def test_continuous_actions_have_no_table_of_probabilities(tmp_path):
    venv = E3BRewardWrapper(DummyVecEnv([lambda: gym.make("Pendulum-v1", max_episode_steps=30)] * 2), seed=0)
    diagnosis = e3b_gym.diagnose(PPO("MlpPolicy", venv, n_steps=8, batch_size=8, device="cpu"), venv, 2)
    assert "entropy" not in diagnosis
    assert "explained_variance" in diagnosis
    assert diagnosis.success is None
    assert all(file.exists() for file in diagnosis.save(tmp_path / "doctor"))


def test_masked_actions_are_impossible_for_the_model():
    class Masked(gym.Wrapper):
        def action_masks(self):
            return np.array([True, True, False, False])

    def make() -> gym.Env:
        return Masked(gym.make("FrozenLake-v1", is_slippery=False, max_episode_steps=12))

    venv = E3BRewardWrapper(DummyVecEnv([make, make]), seed=0)
    model = MaskablePPO("MlpPolicy", venv, n_steps=8, batch_size=8, device="cpu")
    p = np.concatenate([played.probabilities for played in e3b_gym.diagnose(model, venv, 4).episodes])
    assert (p[:, 2:] < 1e-6).all()


@pytest.mark.parametrize("bonus", ["none", "noveld", "count", "e3b-x-rnd", "e3b-random", "e3b-policy"])
def test_every_kind_of_bonus_can_be_examined(bonus):
    venv = rooms(2, bonus=bonus)
    model = PPO("MlpPolicy", venv, n_steps=32, batch_size=32, n_epochs=1, device="cpu")
    model.learn(64, callback=EncoderUpdateCallback())
    diagnosis = e3b_gym.diagnose(model, venv, 2)
    assert ("bonus_first" in diagnosis) == (bonus != "none")
    assert ("inverse_skill" in diagnosis) == (bonus in ("e3b-x-rnd",))


def test_environments_without_a_bonus_are_refused():
    venv: VecEnv = DummyVecEnv([lambda: gym.make("CartPole-v1")])
    with pytest.raises(ValueError, match="wrap them: E3BRewardWrapper"):
        e3b_gym.diagnose(PPO("MlpPolicy", venv, device="cpu"), venv)


@pytest.mark.parametrize("wiped", [False, True])
def test_a_blanked_observation_at_a_time_limit_has_no_value(wiped):
    walk = gym.wrappers.TimeLimit(Walk(length=100, wiped=wiped), 5)
    venv = E3BRewardWrapper(DummyVecEnv([lambda: walk]), dim=8)
    played = e3b_gym.diagnose(PPO("MlpPolicy", venv, n_steps=8, batch_size=8, device="cpu"), venv, 1).episodes[0]
    assert played.ending == "time limit"
    assert (played.bootstrap is None) == wiped
