"""RecurrentPPO gives sb3-contrib's results: the same minibatches, losses and gradients to rounding."""

import copy
import pickle

import gymnasium as gym
import numpy as np
import pytest
import sb3_contrib
import torch as th
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
from stable_baselines3.common.logger import KVWriter, Logger
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.vec_env import DummyVecEnv
from torch import nn

from e3b_gym.encoders.lstm import lstm_sequences, lstm_step
from e3b_gym.sb3.recurrent_ppo import DictRowBuffer, RecurrentPPO, RowBuffer

IMAGE = spaces.Box(0, 255, (3, 36, 36), np.uint8)
VECTOR = spaces.Box(-1, 1, (6,), np.float32)
SPACES = {
    "MlpLstmPolicy": VECTOR,
    "CnnLstmPolicy": IMAGE,
    "MultiInputLstmPolicy": spaces.Dict(vector=VECTOR, kind=spaces.Discrete(4)),
}
ACTIONS = {
    "discrete": spaces.Discrete(3),
    "box": spaces.Box(-1, 1, (2,), np.float32),
    "multi": spaces.MultiDiscrete([2, 3]),
}


class Stream(gym.Env):
    """Random observations, a reward that depends on the action, episodes that end or are cut with chance `ends`."""

    def __init__(self, observations, actions, ends, seed):
        self.observation_space, self.action_space = copy.deepcopy((observations, actions))
        self.ends, self.rng = ends, np.random.default_rng(seed)
        self.observation_space.seed(seed)

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}

    def step(self, action):
        ended, cut = self.rng.random(2) < self.ends
        return self.observation_space.sample(), float(np.sum(action)), bool(ended), bool(cut), {}


def vec_env(policy, actions="discrete", ends=0.05, n_envs=3):
    return DummyVecEnv(
        [lambda i=i: Stream(SPACES.get(policy, VECTOR), ACTIONS[actions], ends, i) for i in range(n_envs)]
    )


def pair(policy, actions="discrete", ends=0.05, policy_kwargs=None, **kwargs):
    """contrib's model and ours from the same seed, both with contrib's rollout."""
    settings_ = {"n_steps": 24, "batch_size": 20, "n_epochs": 2, "seed": 3, "device": "cpu", "max_grad_norm": 1e9}
    settings_ |= kwargs | {"policy_kwargs": {"lstm_hidden_size": 16, "net_arch": [8]} | (policy_kwargs or {})}
    theirs, ours = (
        algorithm(policy, vec_env(getattr(policy, "__name__", policy), actions, ends), **settings_)
        for algorithm in (sb3_contrib.RecurrentPPO, RecurrentPPO)
    )
    for model in (theirs, ours):
        _, callback = model._setup_learn(10_000)
    _, callback = theirs._setup_learn(10_000)
    for _ in range(2):  # the second rollout begins in mid-episode, with states that are not zero
        theirs.collect_rollouts(theirs.env, callback, theirs.rollout_buffer, theirs.n_steps)
    for name, value in vars(theirs.rollout_buffer).items():
        setattr(ours.rollout_buffer, name, copy.deepcopy(value))
    return theirs, ours


class Records(KVWriter):
    def __init__(self):
        self.rows = []

    def write(self, key_values, key_excluded, step=0):
        self.rows.append({key: value for key, value in key_values.items() if key.startswith("train/")})

    def close(self):
        """Nothing to close."""


def trained(model, seed=7):
    """Losses that train() logs and the gradients of each of its minibatches."""
    gradients = []

    def record(optimizer, *_):
        gradients.append([p.grad.clone() for group in optimizer.param_groups for p in group["params"]])

    model.policy.optimizer.register_step_pre_hook(record)
    model.set_logger(Logger(None, []))
    np.random.seed(seed)  # noqa: NPY002  contrib's buffer draws from the global generator
    th.manual_seed(seed)
    model.train()
    losses = {key: value for key, value in model.logger.name_to_value.items() if key.startswith("train/")}
    return losses, gradients


def assert_same_training(theirs, ours, tolerance=2e-5):
    (their_losses, their_gradients), (our_losses, our_gradients) = trained(theirs), trained(ours)
    assert our_losses.keys() == their_losses.keys()
    for key, value in their_losses.items():
        assert our_losses[key] == pytest.approx(value, rel=10 * tolerance, abs=tolerance), key
    assert len(our_gradients) == len(their_gradients) > 1
    for their_batch, our_batch in zip(their_gradients, our_gradients, strict=True):
        for expected, got in zip(their_batch, our_batch, strict=True):
            assert (got - expected).abs().max() <= tolerance * (expected.abs().max() + 1e-3)


LSTMS = {
    "separate": {},
    "no critic lstm": {"enable_critic_lstm": False},
    "shared": {"enable_critic_lstm": False, "shared_lstm": True},
    "two layers": {"n_lstm_layers": 2},
    "no bias": {"lstm_kwargs": {"bias": False}},
    "odd size": {"lstm_hidden_size": 15},
}


@pytest.mark.parametrize("kind", LSTMS)
@pytest.mark.parametrize("policy", ["MlpLstmPolicy", "MultiInputLstmPolicy"])
def test_losses_and_gradients_are_contribs(policy, kind):
    theirs, ours = pair(policy, policy_kwargs=LSTMS[kind], learning_rate=0.0)
    assert isinstance(ours.rollout_buffer, (RowBuffer, DictRowBuffer))
    assert_same_training(theirs, ours)


@pytest.mark.parametrize("share", [True, False])
def test_losses_and_gradients_are_contribs_on_images(share):
    kwargs = {"share_features_extractor": share, "features_extractor_kwargs": {"features_dim": 12}}
    assert_same_training(*pair("CnnLstmPolicy", policy_kwargs=kwargs, learning_rate=0.0, n_epochs=1))


@pytest.mark.parametrize("ends", [0.0, 0.02, 0.5, 1.0])
@pytest.mark.parametrize("batch_size", [7, 24, 72, None])
def test_any_cut_and_any_number_of_episode_ends(ends, batch_size):
    assert_same_training(*pair("MlpLstmPolicy", ends=ends, batch_size=batch_size, learning_rate=0.0))


@pytest.mark.parametrize("actions", ["box", "multi"])
def test_any_action_space(actions):
    assert_same_training(*pair("MlpLstmPolicy", actions=actions, learning_rate=0.0))


def test_options_of_the_loss_and_updates_with_adam():
    options = {"clip_range_vf": 0.1, "ent_coef": 0.02, "target_kl": 0.5, "max_grad_norm": 0.5, "use_sde": True}
    theirs, ours = pair("MlpLstmPolicy", actions="box", **options)
    assert_same_training(theirs, ours, tolerance=2e-4)
    for expected, got in zip(theirs.policy.parameters(), ours.policy.parameters(), strict=True):
        th.testing.assert_close(got, expected, rtol=1e-3, atol=1e-5)


class InDtypeOfPolicy(FlattenExtractor):
    """SB3 hands out float32 observations; this follows policy.double()."""

    def __init__(self, observation_space):
        super().__init__(observation_space)
        self.register_buffer("like", th.zeros(1))

    def forward(self, observations):
        return super().forward(observations).to(self.like.dtype)


def test_float64_agrees_tightly():
    kwargs = {"features_extractor_class": InDtypeOfPolicy, "n_lstm_layers": 2}
    models = pair("MlpLstmPolicy", policy_kwargs=kwargs, learning_rate=0.0, ends=0.1)
    for model in models:
        model.policy.double()
        for name in ("hidden_states_pi", "cell_states_pi", "hidden_states_vf", "cell_states_vf"):
            setattr(model.rollout_buffer, name, getattr(model.rollout_buffer, name).astype(np.float64))
    assert_same_training(*models, tolerance=1e-12)


def losses_of_learning(algorithm):
    kwargs = {"lstm_hidden_size": 16, "net_arch": [16]}
    model = algorithm(
        "MultiInputLstmPolicy", vec_env("MultiInputLstmPolicy"), n_steps=64, batch_size=64, n_epochs=2, seed=1,
        device="cpu", policy_kwargs=kwargs,
    )  # fmt: skip
    records = Records()
    model.set_logger(Logger(None, [records]))
    model.learn(64 * 3 * 11)
    return [row for row in records.rows if row]


def test_a_whole_run_follows_contribs():
    theirs, ours = (losses_of_learning(algorithm) for algorithm in (sb3_contrib.RecurrentPPO, RecurrentPPO))
    assert len(ours) == len(theirs) == 10
    for expected, got in zip(theirs, ours, strict=True):
        assert got == pytest.approx(expected, rel=2e-3, abs=1e-5)


@settings(deadline=None, max_examples=40)
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=9),
    size_in=st.sampled_from([1, 5]),
    size=st.sampled_from([4, 20, 64]),
    layers=st.integers(1, 2),
    bias=st.booleans(),
    seed=st.integers(0, 99),
)
def test_the_kernel_is_as_exact_as_torch(lengths, size_in, size, layers, bias, seed):
    th.manual_seed(seed)
    lstm = nn.LSTM(size_in, size, layers, bias=bias)
    x, upstream = th.randn(sum(lengths), size_in, requires_grad=True), th.randn(sum(lengths), size)
    h_0, c_0 = th.randn(2, layers, len(lengths), size)

    def one_by_one(module, x, h_0, c_0):
        parts = [
            module(rows[:, None], (h_0[:, i : i + 1].contiguous(), c_0[:, i : i + 1].contiguous()))[0][:, 0]
            for i, rows in enumerate(x.split(lengths))
        ]
        return th.cat(parts)

    def results(out, inputs):
        return [out, *th.autograd.grad(out, inputs, upstream.to(out.dtype))]

    exact, x64 = copy.deepcopy(lstm).double(), x.detach().double().requires_grad_()
    truth = results(one_by_one(exact, x64, h_0.double(), c_0.double()), [x64, *exact.parameters()])
    torchs = results(one_by_one(lstm, x, h_0, c_0), [x, *lstm.parameters()])
    ours = results(lstm_sequences(lstm, x, h_0, c_0, np.array(lengths)), [x, *lstm.parameters()])
    for expected, other, got in zip(truth, torchs, ours, strict=True):
        allowed = 4 * (other - expected).abs().max() + 2e-6 * (1 + expected.abs().max())
        assert (got - expected).abs().max() <= allowed


def test_the_kernel_saturates_and_lets_nan_through():
    th.manual_seed(0)  # weights whose products with the large inputs do not cancel
    lstm = nn.LSTM(2, 4)
    zeros = th.zeros(1, 3, 4)
    with th.no_grad():
        x = th.tensor([[1e30, -1e30], [-1e4, 1e4], [float("nan"), 0.0]])
        out, (_, cell) = lstm_step(lstm, x, zeros, zeros)
        expected, _ = lstm(x[None], (zeros, zeros))
    th.testing.assert_close(out[:2], expected[0, :2], rtol=1e-6, atol=1e-7)
    assert out[2].isnan().all()
    assert cell[0, 2].isnan().all()


def test_a_start_in_mid_sequence_resets_the_state():
    theirs, ours = pair("MlpLstmPolicy")
    features, states = th.randn(12, 6), (th.randn(1, 3, 16), th.randn(1, 3, 16))
    for starts in (th.zeros(12), th.tensor([1.0, 0, 0, 0] * 3), th.tensor([0, 0, 1.0, 0] * 3)):
        (expected, their_states), (got, our_states) = (
            model.policy._process_sequence(features, states, starts, theirs.policy.lstm_actor)
            for model in (theirs, ours)
        )
        th.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)
        th.testing.assert_close(our_states, their_states, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["separate", "shared", "two layers"])
def test_predict_with_states_is_contribs(kind):
    theirs, ours = pair("MultiInputLstmPolicy", policy_kwargs=LSTMS[kind])
    their_state = our_state = None
    env = vec_env("MultiInputLstmPolicy")
    observation, start = env.reset(), np.ones(3, bool)
    for _ in range(30):
        action, their_state = theirs.predict(observation, their_state, start, deterministic=True)
        ours_action, our_state = ours.predict(observation, our_state, start, deterministic=True)
        np.testing.assert_array_equal(ours_action, action)
        np.testing.assert_allclose(our_state, their_state, rtol=1e-4, atol=1e-6)
        observation, _, start, _ = env.step(action)


@pytest.mark.parametrize("ours_writes", [True, False])
def test_files_are_read_both_ways_and_training_continues(ours_writes, tmp_path):
    writer, reader = (RecurrentPPO, sb3_contrib.RecurrentPPO)[:: 1 if ours_writes else -1]
    kwargs = {"n_steps": 16, "batch_size": 12, "n_epochs": 2, "device": "cpu", "policy_kwargs": {"lstm_hidden_size": 8}}
    model = writer("MultiInputLstmPolicy", vec_env("MultiInputLstmPolicy"), seed=0, **kwargs).learn(48)
    model.save(tmp_path / "model")
    loaded = reader.load(tmp_path / "model", env=vec_env("MultiInputLstmPolicy"), device="cpu")
    assert loaded.policy_class is model.policy_class is sb3_contrib.RecurrentPPO.policy_aliases["MultiInputLstmPolicy"]
    assert list(loaded.policy.state_dict()) == list(model.policy.state_dict())
    for expected, got in zip(model.policy.parameters(), loaded.policy.parameters(), strict=True):
        assert th.equal(got, expected)
    groups = loaded.policy.optimizer.state_dict()["param_groups"]
    assert [group["fused"] for group in groups] == [None]
    loaded.set_parameters(model.get_parameters(), exact_match=True)
    loaded.learn(48)
    assert loaded.num_timesteps == 48
    assert all(th.isfinite(p).all() for p in loaded.policy.parameters())


class OwnEvaluation(RecurrentActorCriticPolicy):
    """Relies on padded minibatches."""

    def evaluate_actions(self, obs, actions, lstm_states, episode_starts):
        assert len(obs) % lstm_states.pi[0].shape[1] == 0
        values, log_prob, entropy = super().evaluate_actions(obs, actions, lstm_states, episode_starts)
        return 2 * values, log_prob, entropy


class OwnSequence(RecurrentActorCriticPolicy):
    @staticmethod
    def _process_sequence(features, lstm_states, episode_starts, lstm):
        out, states = RecurrentActorCriticPolicy._process_sequence(features, lstm_states, episode_starts, lstm)
        return 3 * out, states


class Normed(FlattenExtractor):
    def __init__(self, observation_space):
        super().__init__(observation_space)
        self.norm = nn.BatchNorm1d(self.features_dim)

    def forward(self, observations):
        return self.norm(super().forward(observations))


@pytest.mark.parametrize(
    ("policy", "policy_kwargs"),
    [
        (OwnEvaluation, {}),
        (OwnSequence, {}),
        ("MlpLstmPolicy", {"features_extractor_class": Normed}),
        ("MlpLstmPolicy", {"n_lstm_layers": 2, "lstm_kwargs": {"dropout": 0.3}}),
    ],
)
def test_where_padding_or_the_loop_matter_contribs_way_is_taken(policy, policy_kwargs):
    theirs, ours = pair(policy, policy_kwargs=policy_kwargs, learning_rate=0.0, n_epochs=1)
    assert not isinstance(ours.rollout_buffer, RowBuffer)
    assert_same_training(theirs, ours)


class OwnHead(RecurrentActorCriticPolicy):
    def _get_action_dist_from_latent(self, latent_pi):
        return super()._get_action_dist_from_latent(2 * latent_pi)


def test_a_custom_policy_keeps_its_overrides_and_gains_the_speed():
    theirs, ours = pair(OwnHead, learning_rate=0.0)
    assert isinstance(ours.rollout_buffer, RowBuffer)
    assert ours.policy_class is OwnHead
    assert isinstance(ours.policy, OwnHead)
    assert_same_training(theirs, ours)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda policy: pickle.loads(pickle.dumps(policy))])
@pytest.mark.parametrize("policy", ["MlpLstmPolicy", "MultiInputLstmPolicy", OwnHead])
def test_policies_can_be_copied_and_pickled(policy, copied):
    _, ours = pair(policy)
    twin = copied(ours.policy)
    assert type(twin) is type(ours.policy)
    for expected, got in zip(ours.policy.parameters(), twin.parameters(), strict=True):
        assert th.equal(got, expected)
