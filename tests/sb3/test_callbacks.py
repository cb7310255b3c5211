"""Callbacks: the encoder learns and is logged, checkpoints resume, and policy-reading bonuses are fed or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from sb3_contrib import ARS, QRDQN, TQC, TRPO, CrossQ, MaskablePPO, RecurrentPPO
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.callbacks import BaseCallback, EvalCallback
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecFrameStack
from stable_baselines3.her import HerReplayBuffer
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from walks import walks

from e3b_gym.bonuses import PolicyDivergence
from e3b_gym.sb3 import E3BRewardWrapper, EncoderUpdateCallback
from e3b_gym.sb3 import wrapper as sb3_wrapper

LOGGED = {
    "inverse_loss",
    "inverse_accuracy",
    "bonus_mean",
    "bonus_std",
    "reward_share",
    "phi_norm",
    "phi_rank",
    "sigma",
}
CPU: dict[str, Any] = {"seed": 0, "device": "cpu"}
WARM: dict[str, Any] = {"learning_starts": 10, "buffer_size": 500, "batch_size": 8, **CPU}


def tiny(**more: Any) -> dict[str, Any]:
    return {"policy_kwargs": {"net_arch": [8], **more}}


def with_bonus(count: int = 2, bonus: str = "e3b", wrap: Any = None, **options: Any) -> E3BRewardWrapper:
    venv: VecEnv = DummyVecEnv(walks(count, **options))
    return E3BRewardWrapper(venv if wrap is None else wrap(venv), bonus, seed=0)


class Trainings(BaseCallback):
    """Notes at which step of the algorithm the encoder's optimiser has moved."""

    def __init__(self, wrapper: E3BRewardWrapper) -> None:
        super().__init__()
        self.wrapper, self.at = wrapper, []

    def _count(self) -> int:
        moved = list(self.wrapper.explorer.optimizer.state.values())
        return int(moved[0]["step"]) if moved else 0

    def _on_step(self) -> bool:
        self.at.append(self._count())
        return True


def test_on_policy_trains_once_per_rollout_on_the_whole_of_it() -> None:
    wrapper = with_bonus()
    trainings = Trainings(wrapper)
    model = A2C("MlpPolicy", wrapper, n_steps=10, **CPU, **tiny())
    model.learn(60, callback=[EncoderUpdateCallback(batch_size=10), trainings])
    assert trainings.at == [0] * 10 + [2] * 10 + [4] * 10  # 20 transitions in minibatches of 10
    assert trainings._count() == 6


def test_off_policy_trains_every_so_many_steps() -> None:
    wrapper = with_bonus()
    trainings = Trainings(wrapper)
    DQN("MlpPolicy", wrapper, **WARM, **tiny()).learn(60, callback=[EncoderUpdateCallback(every=12), trainings])
    assert trainings.at == [0] * 11 + [1] * 12 + [2] * 9  # DQN takes its steps in fours


@pytest.mark.parametrize("algorithm", [PPO, DQN])
def test_the_logs_reach_sb3s_logger_and_tensorboard(algorithm: Any, tmp_path: Path) -> None:
    options: dict[str, Any] = WARM if algorithm is DQN else {"n_steps": 16, "batch_size": 32, "n_epochs": 1, **CPU}
    model = algorithm("MlpPolicy", with_bonus(), **options, **tiny())
    model.set_logger(configure(str(tmp_path), ["tensorboard"]))
    model.learn(96, callback=EncoderUpdateCallback(every=16 if algorithm is DQN else None), log_interval=1)
    events = EventAccumulator(str(tmp_path)).Reload()
    assert {f"e3b/{name}" for name in LOGGED} <= set(events.Tags()["scalars"])
    for name in LOGGED:
        values = [event.value for event in events.Scalars(f"e3b/{name}")]
        assert len(values) >= 2
        assert np.isfinite(values).all()
    assert all(0 < event.value <= 1 for event in events.Scalars("e3b/reward_share"))
    assert all(1 <= event.value <= 64 for event in events.Scalars("e3b/phi_rank"))


def test_the_encoder_learns_what_the_agent_controls() -> None:
    """Three moves on the ring, at random: a guess is right one time in three."""
    wrapper = with_bonus(8, observations="discrete")
    model = A2C("MlpPolicy", wrapper, n_steps=32, learning_rate=1e-9, ent_coef=1.0, **CPU)
    accuracies = []

    class Accuracy(BaseCallback):
        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            accuracies.append(self.logger.name_to_value["e3b/inverse_accuracy"])

    callback = EncoderUpdateCallback(learning_rate=1e-3, batch_size=64)
    model.learn(8 * 32 * 12, callback=[callback, Accuracy()])
    assert accuracies[0] < 0.6
    assert np.mean(accuracies[-3:]) > 0.9


def test_settings_reach_the_trainer_and_wrong_ones_are_errors_at_once() -> None:
    wrapper = with_bonus()
    callback = EncoderUpdateCallback(learning_rate=3e-4, epochs=2, batch_size=64, max_grad_norm=1.0)
    A2C("MlpPolicy", wrapper, n_steps=4, **CPU, **tiny()).learn(16, callback=callback)
    config = wrapper.explorer.trainer
    assert (config.learning_rate, config.epochs, config.batch_size, config.max_grad_norm) == (3e-4, 2, 64, 1.0)
    assert wrapper.explorer.optimizer.param_groups[0]["lr"] == 3e-4
    for wrong, message in (
        ({"learning_rate": -1.0}, "learning_rate must be a positive number"),
        ({"epochs": 0}, "epochs must be a whole number of at least 1; got 0"),
        ({"every": 0}, "every must be a whole number of at least 1 or None; got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            EncoderUpdateCallback(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="every has no effect: with A2C the encoder is trained after each rollout"):
        A2C("MlpPolicy", wrapper, **CPU).learn(5, callback=EncoderUpdateCallback(every=8))
    with pytest.raises(ValueError, match=r"wrap it: E3BRewardWrapper\(venv\)"):
        A2C("MlpPolicy", DummyVecEnv(walks(1)), **CPU).learn(5, callback=EncoderUpdateCallback())


@pytest.mark.parametrize(
    ("name", "wrong", "allowed"),
    [
        ("learning_rate", "1e-3", "a positive number"),
        ("max_grad_norm", "abc", "a positive number"),
        ("epochs", "3", "a whole number of at least 1"),
        ("epochs", 2.0, "a whole number of at least 1"),
        ("batch_size", True, "a whole number of at least 1"),
    ],
)
def test_a_setting_of_the_wrong_type_is_named(name: str, wrong: Any, allowed: str) -> None:
    message = f"^{name} must be {allowed}; got {wrong!r}$"
    with pytest.raises(ValueError, match=message):
        EncoderUpdateCallback(**{name: wrong})
    with pytest.raises(ValueError, match=message):
        with_bonus().train_encoder(**{name: wrong})


def test_settings_of_the_encoder_may_be_numpy_numbers() -> None:
    wrapper = with_bonus()
    wrapper.train_encoder(learning_rate=np.float32(0.5), epochs=np.int64(2))
    trainer = wrapper.explorer.trainer
    assert (trainer.learning_rate, trainer.epochs) == (0.5, 2)
    assert (type(trainer.learning_rate), type(trainer.epochs)) == (float, int)  # numpy's numbers cannot be saved


def test_an_encoder_that_diverges_is_an_error_that_names_the_loss() -> None:
    wrapper = with_bonus()
    with torch.no_grad():
        wrapper.bonus.representation.inverse.net[0].weight.fill_(float("inf"))
    with pytest.raises(ValueError, match=r"the loss 'inverse' .* lower its learning rate"):
        A2C("MlpPolicy", wrapper, n_steps=4, **CPU, **tiny()).learn(16, callback=EncoderUpdateCallback())


def test_an_evaluation_wrapped_like_training_is_switched_to_evaluation(monkeypatch: Any) -> None:
    """rl-zoo3 does so; its wrapper must neither learn a scale nor warn that it is not trained."""
    monkeypatch.setattr(sb3_wrapper, "PATIENCE", 10)
    evaluated, wrapper = with_bonus(1), with_bonus(1)
    evaluate = EvalCallback(evaluated, eval_freq=8, n_eval_episodes=5, verbose=0, warn=False)
    A2C("MlpPolicy", wrapper, n_steps=8, **CPU).learn(32, callback=[evaluate, EncoderUpdateCallback()])
    assert not evaluated.training
    assert evaluated.explorer.mixer.sigma == 1.0
    assert wrapper.training


ON = {"n_steps": 8, **CPU}
POLICIES: dict[str, tuple[Any, dict[str, Any], int]] = {
    "PPO": (PPO, {**ON, "batch_size": 16, "n_epochs": 1}, 8),
    "A2C": (A2C, ON, 8),
    "TRPO": (TRPO, {**ON, "batch_size": 16}, 8),
    "MaskablePPO": (MaskablePPO, {**ON, "batch_size": 16, "n_epochs": 1}, 8),
    "RecurrentPPO": (RecurrentPPO, {**ON, "batch_size": 16, "n_epochs": 1}, 3),
    "DQN": (DQN, WARM, 8),
    "QRDQN": (QRDQN, WARM, 8),
    "SAC": (SAC, WARM, 8),
    "TD3": (TD3, WARM, 8),
    "DDPG": (DDPG, WARM, 8),
    "TQC": (TQC, WARM, 8),
    "CrossQ": (CrossQ, WARM, 8),
}


@pytest.mark.parametrize("name", POLICIES)
def test_the_policy_encoder_is_the_policys_own_network(name: str) -> None:
    algorithm, options, dim = POLICIES[name]
    actions = "box" if name in ("SAC", "TD3", "DDPG", "TQC", "CrossQ") else "discrete"
    wrapper = with_bonus(bonus="e3b-policy", actions=actions)
    model = algorithm("MlpLstmPolicy" if name == "RecurrentPPO" else "MlpPolicy", wrapper, **options, **tiny())
    model.learn(40, callback=EncoderUpdateCallback(every=None if "n_steps" in options else 8))
    encoder = wrapper.bonus.representation.policy
    rows = torch.randn(5, 3)
    assert encoder.encode(rows).shape == (5, dim) == (5, wrapper.bonus.representation.dim)
    before = encoder.encode(rows)
    with torch.no_grad():
        for weights in model.policy.parameters():
            weights.mul_(2.0)
    if name != "RecurrentPPO":  # whose features are the observations themselves, flattened
        assert not torch.allclose(encoder.encode(rows), before)


def test_the_policy_encoder_sees_pictures_as_the_policy_does() -> None:
    wrapper = with_bonus(1, "e3b-policy", observations="image")
    model = A2C("CnnPolicy", wrapper, n_steps=4, **CPU)
    model.learn(8, callback=EncoderUpdateCallback())
    picture = torch.randint(0, 256, (2, 36, 36, 3), dtype=torch.uint8)
    seen = picture.permute(0, 3, 1, 2)
    wanted = model.policy.mlp_extractor.forward_actor(model.policy.extract_features(seen))
    got = wrapper.bonus.representation.policy.encode(picture)
    torch.testing.assert_close(got, wanted.detach())


def test_the_policy_encoder_takes_dict_observations() -> None:
    wrapper = with_bonus(2, "e3b-policy", observations="dict")
    A2C("MultiInputPolicy", wrapper, n_steps=4, **CPU, **tiny()).learn(16, callback=EncoderUpdateCallback())
    assert wrapper.bonus.representation.dim == 8


def test_the_policy_encoder_is_refused_where_it_would_see_something_else() -> None:
    stack = VecFrameStack(with_bonus(bonus="e3b-policy"), 2)
    with pytest.raises(ValueError, match="VecFrameStack is between them; put E3BRewardWrapper outermost"):
        A2C("MlpPolicy", stack, **CPU).learn(10, callback=EncoderUpdateCallback())
    with pytest.raises(ValueError, match=r"no policy yet.*EncoderUpdateCallback"):
        A2C("MlpPolicy", with_bonus(bonus="e3b-policy"), **CPU).learn(10)
    with pytest.raises(ValueError, match="does not support the network of ARS"):
        ARS("LinearPolicy", with_bonus(bonus="e3b-policy"), **CPU).learn(10, callback=EncoderUpdateCallback())


@pytest.mark.parametrize("name", ["PPO", "A2C", "TRPO", "MaskablePPO", "RecurrentPPO"])
def test_agac_compares_with_what_the_policy_really_said(name: str) -> None:
    """The recorded logits give back the log probabilities that the algorithm stored."""
    algorithm, options, _ = POLICIES[name]
    wrapper = with_bonus(bonus="agac-nocount")
    model = algorithm("MlpLstmPolicy" if name == "RecurrentPPO" else "MlpPolicy", wrapper, **options, **tiny())
    said: list[torch.Tensor] = []

    class Listen(BaseCallback):
        def _on_step(self) -> bool:
            said.append(wrapper.policy_logits())
            return True

    callback = EncoderUpdateCallback()
    model.learn(32, callback=[callback, Listen()], **({"use_masking": False} if name == "MaskablePPO" else {}))
    logits = torch.stack(said[-8:])
    actions = torch.as_tensor(model.rollout_buffer.actions).reshape(-1).long()
    stored = torch.as_tensor(model.rollout_buffer.log_probs).reshape(-1)
    chosen = logits.log_softmax(-1)
    if model.rollout_buffer.generator_ready:  # SB3 flattens environment by environment once it has sampled
        chosen = chosen.swapaxes(0, 1)
    got = chosen.reshape(-1, 3).gather(1, actions[:, None])[:, 0]
    torch.testing.assert_close(got, stored, rtol=1e-4, atol=1e-5)
    assert wrapper.explorer.optimizer.state


def test_agac_trains_its_adversary_and_is_refused_without_probabilities() -> None:
    wrapper = with_bonus(bonus="agac")
    assert any(isinstance(part, PolicyDivergence) for part in wrapper.bonus.modules())
    with pytest.raises(ValueError, match=r"no policy_logits.*EncoderUpdateCallback"):
        A2C("MlpPolicy", wrapper, **CPU).learn(10)
    with pytest.raises(ValueError, match="which DQN does not have; use PPO"):
        DQN("MlpPolicy", with_bonus(bonus="agac"), **WARM).learn(10, callback=EncoderUpdateCallback())
    with pytest.raises(ValueError, match="which ARS does not have; use PPO"):
        ARS("LinearPolicy", with_bonus(bonus="agac"), **CPU).learn(10, callback=EncoderUpdateCallback())
    with pytest.raises(ValueError, match="AGAC needs a Discrete action space"):
        with_bonus(bonus="agac", actions="box")


def test_agac_leaves_one_hook_on_the_policy_however_often_it_learns() -> None:
    model = A2C("MlpPolicy", with_bonus(bonus="agac"), n_steps=4, **CPU, **tiny())
    for _ in range(3):
        model.learn(8, callback=EncoderUpdateCallback())
    assert len(model.policy.action_net._forward_hooks) == 1


def test_a_later_callback_changes_only_the_settings_that_it_names(tmp_path: Path) -> None:
    wrapper = with_bonus()
    model = A2C("MlpPolicy", wrapper, n_steps=4, **CPU, **tiny())
    model.learn(8, callback=EncoderUpdateCallback(learning_rate=1e-4, epochs=3, batch_size=np.int64(64)))
    wrapper.save(tmp_path / "wrapper.pt")
    loaded = E3BRewardWrapper.load(tmp_path / "wrapper.pt", DummyVecEnv(walks(2)))
    explorer = loaded.explorer
    trainer = explorer.trainer
    assert trainer == wrapper.explorer.trainer
    A2C("MlpPolicy", loaded, n_steps=4, **CPU, **tiny()).learn(8, callback=EncoderUpdateCallback(epochs=2))
    trainer = explorer.trainer
    assert (trainer.learning_rate, trainer.epochs, trainer.batch_size) == (1e-4, 2, 64)
    assert explorer.optimizer.param_groups[0]["lr"] == 1e-4


class Reach(gym.Env[Any, Any]):
    """A goal-conditioned Walk, for HER."""

    def __init__(self) -> None:
        goal = spaces.Box(-1.0, 9.0, (1,), np.float32)
        self.observation_space = spaces.Dict(observation=goal, achieved_goal=goal, desired_goal=goal)
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def _obs(self) -> dict[str, Any]:
        place = np.array([self.place], np.float32)
        return {"observation": place, "achieved_goal": place, "desired_goal": np.array([3.0], np.float32)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place, self.time = 0.0, 0
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        self.place, self.time = float(np.clip(self.place + action[0], 0, 8)), self.time + 1
        return self._obs(), 0.0, self.time == 6, False, {}

    def compute_reward(self, achieved: Any, desired: Any, infos: Any) -> Any:
        return -(np.abs(achieved - desired)[..., 0] > 0.5).astype(np.float32)


def test_hindsight_replay_is_reported_since_relabelled_rewards_lack_the_bonus() -> None:
    wrapper = E3BRewardWrapper(DummyVecEnv([Reach]), seed=0)
    model = SAC("MultiInputPolicy", wrapper, replay_buffer_class=HerReplayBuffer, **WARM, **tiny())
    with pytest.warns(UserWarning, match=r"compute_reward\(\)") as caught:
        model.learn(30, callback=EncoderUpdateCallback())
    assert len(caught) == 1
