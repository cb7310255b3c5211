"""IMPALA as a Stable-Baselines3 user uses it: with SB3's callbacks, evaluation, VecEnvs and logger."""

from __future__ import annotations

import csv
import doctest
import pickle
import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3.common.callbacks import (
    BaseCallback,
    CheckpointCallback,
    EvalCallback,
    StopTrainingOnMaxEpisodes,
    StopTrainingOnRewardThreshold,
)
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import configure
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor, VecNormalize

from agents import IMPALA
from agents.checkpoint import CheckpointError
from agents.impala import model as model_module
from agents.impala.config import Config
from agents.impala.training import Training
from e3b_gym.config import BonusConfig
from e3b_gym.sb3 import E3BRewardWrapper

SMALL = {"engine": "inline", "n_steps": 8, "lstm": 8, "dim": 8}


class Corridor(gym.Env):
    """Walk right to the end of 6 cells: reward 1. Ends after 5 steps; the observation counts cells and episodes."""

    observation_space = gym.spaces.Box(-1, 1000, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._cell, self._episode, self._step = 0, getattr(self, "_episode", -1) + 1, 0
        return self._observe(), {}

    def step(self, action):
        self._cell, self._step = max(self._cell + 2 * int(action) - 1, 0), self._step + 1
        won = self._cell == 3
        return self._observe(), float(won), won, self._step == 5, {}

    def _observe(self):
        return np.array([self._cell, self._episode], np.float32)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"net": "fast"}, "net has no effect: there is one network"),
        ({"env": "MiniHack-MultiRoom-N4-v0", "dim": 7}, "dim has no effect: the networks of MiniHack"),
        ({"bonus_options": {"dim": 12}}, "pass dim= to IMPALA"),
        ({"bonus_options": {"seed": 5}}, "pass seed= to IMPALA"),
        ({"bonus_options": {"encoder": torch.nn.Linear(2, 2)}}, "encoder'] has no effect"),
        ({"bonus": BonusConfig.of("e3b"), "bonus_options": {"beta": 1.0}}, "no effect with a BonusConfig"),
        ({"optimizer": "adam", "rms_alpha": 0.5}, "rms_alpha has no effect: the optimizer is adam"),
        ({"engine": "inline", "ray_address": "x"}, "ray_address has no effect: the engine is inline"),
        ({"bonus": "count", "encoder_learning_rate": 0.1}, "encoder_learning_rate has no effect: the bonus count has"),
        ({"steps": 1000}, r"steps has no effect: learn\(total_timesteps\) sets it"),
    ],
)
def test_an_option_without_effect_is_refused_with_the_reason(given, message):
    with pytest.raises(ValueError, match=message):
        IMPALA(given.pop("env", "Rooms-K3-v0"), **given)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"n_envs": "3"}, ValueError, "n_envs must be a whole number from 1 to 65536; got '3'"),
        ({"n_steps": 1.5}, ValueError, "n_steps must be a whole number of at least 1; got 1.5"),
        ({"bonus": torch.nn.Linear(2, 2)}, ValueError, "a method's name or a BonusConfig; got Linear"),
        ({"beta": 0.1}, TypeError, "beta is an option of the bonus; pass bonus_options={'beta': 0.1}"),
        ({"n_step": 8}, TypeError, "IMPALA has no option 'n_step'; did you mean n_steps"),
    ],
)
def test_a_wrong_argument_is_an_error_that_says_what_to_pass(given, error, message):
    with pytest.raises(error, match=message):
        IMPALA("Rooms-K3-v0", **given)


def test_a_config_may_have_options_without_effect_and_the_user_may_not_add_one():
    options = {"optimizer": "adam", "rms_alpha": 0.5, "bonus": BonusConfig.of("none"), "net": "fast"}
    config = Config("Rooms-K3-v0", n_envs=4, batch_size=None, **SMALL, **options)
    assert IMPALA.from_config(config).config == config
    with pytest.raises(ValueError, match="agac_coef has no effect"):
        IMPALA.from_config(config, agac_coef=1.0)


def corridors(count=4):
    return DummyVecEnv([lambda: Monitor(Corridor())] * count)


def weights(model):
    return {
        **model.policy.state_dict(),
        **{f"bonus.{k}": v for k, v in model.learner.explorer.bonus.state_dict().items()},
    }


def same_weights(one, other):
    ours, theirs = weights(one), weights(other)
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("env", ["Rooms-K3-v0", lambda: Corridor(), corridors()], ids=["id", "function", "VecEnv"])
def test_it_learns_in_an_id_a_function_and_a_vec_env(env):
    options = {} if isinstance(env, DummyVecEnv) else {"n_envs": 4}
    model = IMPALA(env, **options, **SMALL)
    before = {name: value.clone() for name, value in weights(model).items()}
    assert model.learn(100) is model
    assert model.num_timesteps == 128  # whole rollouts of 4 x 8
    assert not all(torch.equal(value, before[name]) for name, value in weights(model).items())
    assert model.get_env().num_envs == model.n_envs == 4
    model.learn(32, reset_num_timesteps=False)
    assert model.num_timesteps == 160
    model.learn(32)
    assert model.num_timesteps == 32


def test_the_example_of_the_docstring_runs():
    results = doctest.testmod(model_module)
    assert results.attempted > 0
    assert results.failed == 0


def test_it_is_the_training_loop_underneath():
    """The same config gives the same bytes through `learn`, `updates` and Training."""
    config = Config("Rooms-K3-v0", n_envs=4, batch_size=None, bonus=BonusConfig.of("e3b"), steps=96, **SMALL)
    model, stepped = IMPALA.from_config(config), IMPALA.from_config(config)
    model.learn(96)
    assert [update.frames for update in stepped.updates(96)] == [32, 64, 96]
    with Training(config) as training:
        for _ in training:
            pass
    wanted = training.learner.policy.state_dict()
    assert same_weights(model, stepped)
    assert all(torch.equal(value, wanted[name]) for name, value in model.policy.state_dict().items())


def test_actors_in_processes_end_with_learn():
    model = IMPALA(lambda: Corridor(), n_envs=2, actors=2, **{**SMALL, "engine": "process"})
    running = []

    class Look(BaseCallback):
        def _on_step(self):
            running.append(self.model._training.engine.processes)
            return True

    model.learn(64, callback=Look())
    assert len(running[0]) == 2
    assert model._training is None
    assert set(model.seconds) >= {"rollout", "policy", "actor_env"}


def test_a_vec_envs_true_terminal_observations_and_returns_reach_the_learner():
    """Monitor knows the returns; VecNormalize has scaled the rewards. The corridor's last cell is in no first row."""
    venv = VecNormalize(corridors(2), norm_obs=False)
    model = IMPALA(venv, bonus="none", **SMALL)
    rollouts = []
    learn = model.learner.learn
    model.learner.learn = lambda rollout: (
        rollouts.append(
            (rollout.unroll().next_obs.clone(), rollout.done.copy(), rollout.truncated.copy(), rollout.episodes())
        ),
        learn(rollout),
    )[1]
    model.learn(160)
    arrived = torch.cat([part[0] for part in rollouts])
    done, truncated = (torch.from_numpy(np.concatenate([part[i] for part in rollouts])) for i in (1, 2))
    won = done & ~truncated
    assert won.any()
    assert truncated.any()
    assert (arrived[won][:, 0] == 3).all()  # not the first cell of the next episode
    assert (arrived[truncated][:, 0] < 3).all()
    returns = np.concatenate([part[3].returns for part in rollouts])
    lengths = np.concatenate([part[3].lengths for part in rollouts])
    assert set(returns.tolist()) == {0.0, 1.0}
    assert returns.sum() == won.sum()
    assert ((lengths == 5) | (returns == 1)).all()
    venv.reset()  # still open


def test_a_vec_env_is_inline_and_brings_its_number_of_environments():
    with pytest.raises(ValueError, match="stepped in this process; pass engine='inline'"):
        IMPALA(corridors(), engine="process")
    with pytest.raises(ValueError, match="n_envs is 3, but the VecEnv has 4"):
        IMPALA(corridors(), n_envs=3)
    with pytest.raises(ValueError, match="IMPALA adds the bonus itself"):
        IMPALA(E3BRewardWrapper(corridors()))
    with pytest.raises(ValueError, match="env_options apply only to environments by id"):
        IMPALA(corridors(), env_options={"max_steps": 3})


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"learning_rat": 1e-3}, TypeError, "no option 'learning_rat'; did you mean learning_rate"),
        ({"device": "gpu"}, ValueError, "device must be"),
        ({"gamma": 2.0}, ValueError, "gamma must be a number in"),
    ],
)
def test_wrong_arguments_are_named(options, error, message):
    with pytest.raises(error, match=message):
        IMPALA("Rooms-K3-v0", **options)


def test_an_environment_itself_is_refused_with_the_remedy():
    with pytest.raises(ValueError, match="pass the function, such as lambda"):
        IMPALA(Corridor())


@pytest.mark.parametrize("envs", [1, 3])
def test_evaluate_policy_of_sb3(envs):
    model = IMPALA(corridors(), **SMALL)
    with torch.no_grad():
        model.policy.heads.weight.zero_()
        model.policy.heads.bias.copy_(torch.tensor([0.0, 50.0, 0.0]))  # always right
    rewards, lengths = evaluate_policy(model, corridors(envs), n_eval_episodes=6, return_episode_rewards=True)
    assert (rewards, lengths) == ([1.0] * 6, [3] * 6)
    assert evaluate_policy(model, corridors(envs), n_eval_episodes=6, deterministic=False)[0] == 1.0


def test_predict_carries_the_state_and_clears_it_where_episodes_start():
    model = IMPALA(corridors(), **SMALL)
    obs = np.array([[0, 0], [1, 0]], np.float32)
    actions, state = model.predict(obs, deterministic=True)
    assert actions.shape == (2,)
    assert [part.shape for part in state] == [(1, 2, 8)] * 2
    _, carried = model.predict(obs, state, np.array([False, False]), deterministic=True)
    _, cleared = model.predict(obs, state, np.array([False, True]), deterministic=True)
    assert np.array_equal(carried[0][:, 0], cleared[0][:, 0])
    np.testing.assert_allclose(cleared[0][:, 1], state[0][:, 1], rtol=1e-5)  # as if it were the first step
    assert not np.array_equal(carried[0][:, 1], cleared[0][:, 1])


def test_predict_takes_one_observation_of_a_dict_space():
    model = IMPALA("Rooms-K3-v0", n_envs=2, **SMALL)
    venv = model.make_env(3)
    obs = venv.reset()
    many, _ = model.predict(obs, deterministic=True)
    one, state = model.predict({key: value[0] for key, value in obs.items()}, deterministic=True)
    assert one.shape == ()
    assert one == many[0]
    assert state[0].shape[1] == 1
    with pytest.raises(ValueError, match="axes, or one more for a batch"):
        model.predict({key: value[None, None] for key, value in obs.items()})
    venv.close()


def test_sb3s_callbacks(tmp_path):
    """EvalCallback saves the best model and stops at a threshold; CheckpointCallback counts steps as in SB3."""
    model = IMPALA(corridors(), learning_rate=0.02, ent_coef=0.0, bonus="none", **SMALL)
    stop = StopTrainingOnRewardThreshold(0.9)
    evaluate = EvalCallback(
        corridors(2), callback_on_new_best=stop, eval_freq=20, best_model_save_path=str(tmp_path), verbose=0
    )
    checkpoints = CheckpointCallback(save_freq=4, save_path=str(tmp_path / "all"))
    model.learn(200_000, callback=[checkpoints, evaluate])
    assert evaluate.best_mean_reward >= 0.9
    assert model.num_timesteps < 200_000
    assert (tmp_path / "all" / "rl_model_16_steps.zip").exists()
    best = IMPALA.load(tmp_path / "best_model", env=corridors(2))
    assert evaluate_policy(best, corridors(2), n_eval_episodes=4)[0] >= 0.9


def test_sb3s_callbacks_with_environments_in_actors(tmp_path):
    model = IMPALA("Rooms-K3-v0", n_envs=4, env_options={"max_steps": 6}, **SMALL)
    evaluate = EvalCallback(model.make_env(2), eval_freq=8, n_eval_episodes=2, log_path=str(tmp_path), verbose=0)
    model.learn(64, callback=evaluate)
    assert np.load(tmp_path / "evaluations.npz")["timesteps"].tolist() == [32, 64]
    with pytest.raises(RuntimeError, match="live in its actors"):
        model.get_env().reset()


def test_callbacks_see_every_step_with_its_episodes():
    seen = []

    class Watch(BaseCallback):
        def _on_step(self):
            seen.append((self.num_timesteps, self.locals["dones"].copy(), self.locals["infos"]))
            return True

    model = IMPALA(corridors(), **SMALL)
    model.learn(64, callback=Watch())
    assert [row[0] for row in seen] == list(range(4, 65, 4))
    ended = [info["episode"] for _, done, infos in seen for info, end in zip(infos, done, strict=True) if end]
    assert len(ended) == sum(row[1].sum() for row in seen) > 0
    assert all(episode["l"] <= 5 for episode in ended)


@pytest.mark.filterwarnings("ignore::tqdm.TqdmExperimentalWarning")
def test_a_callback_stops_training_and_a_progress_bar_runs_to_the_end():
    model = IMPALA(corridors(), **SMALL)
    model.learn(100_000, callback=StopTrainingOnMaxEpisodes(max_episodes=2))
    assert 0 < model.num_timesteps <= 96
    model.learn(64, progress_bar=True)
    assert model.num_timesteps == 64


def test_the_logger_has_sb3s_names(tmp_path):
    model = IMPALA(corridors(), **SMALL)
    with pytest.raises(AttributeError, match="no logger before"):
        _ = model.logger
    model.set_logger(configure(str(tmp_path), ["csv"]))
    model.learn(96, log_interval=1)
    model.logger.close()
    with open(tmp_path / "progress.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["time/total_timesteps"] for row in rows] == ["32", "64", "96"]
    assert float(rows[-1]["rollout/ep_len_mean"]) <= 5
    assert float(rows[-1]["train/bonus"]) > 0
    assert "train/loss_value" in rows[-1]


def test_tensorboard_logs_are_written_where_asked_and_nowhere_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    IMPALA(corridors(), **SMALL).learn(32)
    assert not list(tmp_path.iterdir())
    IMPALA(corridors(), tensorboard_log=str(tmp_path / "logs"), **SMALL).learn(32)
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]
    assert list(tmp_path.glob("logs/IMPALA_1/events*"))


def test_a_saved_model_continues_as_it_was(tmp_path):
    model = IMPALA("Rooms-K3-v0", n_envs=4, seed=3, env_options={"max_steps": 9}, **SMALL).learn(64)
    model.save(tmp_path / "model")
    loaded = IMPALA.load(tmp_path / "model")
    assert loaded.config == model.config
    assert loaded.num_timesteps == 64
    assert same_weights(model, loaded)
    for one in (model, loaded):
        one.learn(64, reset_num_timesteps=False)
    assert same_weights(model, loaded)


def test_a_model_of_a_users_environment_needs_it_to_load(tmp_path):
    IMPALA(corridors(), bonus="e3b", bonus_options={"episodic": False}, **SMALL).learn(32).save(tmp_path / "model.zip")
    with pytest.raises(ValueError, match=r"trained in a custom environment, \(DummyVecEnv\); pass env="):
        IMPALA.load(tmp_path / "model")
    with pytest.warns(UserWarning, match="memory is of 4 environments, but there are 3 here"):
        other = IMPALA.load(tmp_path / "model", env=corridors(3))
    assert other.learn(24).num_timesteps == 24
    with pytest.raises(CheckpointError, match="does not fit"):
        IMPALA.load(tmp_path / "model", env=lambda: gym.make("CartPole-v1"))


def test_loading_runs_no_code(tmp_path):
    ran = tmp_path / "ran"

    class Payload:
        def __reduce__(self):
            return open, (str(ran), "w")

    with open(tmp_path / "model.zip", "wb") as file:
        pickle.dump({"kind": "e3b_gym IMPALA model", "format": 1, "config": Payload()}, file)
    with pytest.raises(ValueError, match="damaged"):
        IMPALA.load(tmp_path / "model.zip")
    torch.save({"kind": "e3b_gym IMPALA model", "format": 1, "config": Payload()}, tmp_path / "torch.zip")
    with pytest.raises(ValueError, match="damaged"):
        IMPALA.load(tmp_path / "torch.zip")
    assert not ran.exists()


def test_set_env_trains_elsewhere_and_refuses_other_spaces():
    model = IMPALA(corridors(), **SMALL).learn(32)
    other = VecMonitor(DummyVecEnv([Corridor] * 4))
    model.set_env(other)
    assert model.get_env() is other
    model.learn(32)
    with pytest.raises(ValueError, match="the observation space of the model is"):
        model.set_env("CartPole-v1")
    with pytest.raises(ValueError, match="n_envs is 4, but the VecEnv has 2"):
        model.set_env(corridors(2))


def test_parameters_go_out_and_in():
    one, other = IMPALA(corridors(), seed=0, **SMALL), IMPALA(corridors(), seed=1, **SMALL)
    one.learn(32)
    other.set_parameters(one.get_parameters())
    assert same_weights(one, other)


def test_time_limits_of_a_vec_env_can_be_bootstrapped():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        IMPALA(corridors(), bootstrap_truncated=True, **SMALL).learn(96)
