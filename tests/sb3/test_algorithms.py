"""Every algorithm of SB3 and sb3-contrib learns from extrinsic + intrinsic, exactly, in the orders people wrap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sb3_contrib import ARS, QRDQN, TQC, TRPO, CrossQ, MaskablePPO, RecurrentPPO
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    SubprocVecEnv,
    VecEnv,
    VecEnvWrapper,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    VecTransposeImage,
)
from torch import nn
from walks import Walk, walks

from e3b_gym.sb3 import E3BRewardWrapper, EncoderUpdateCallback

NO_NET: dict[str, Any] = {"seed": 0, "device": "cpu"}
ON_POLICY = {
    "PPO": (PPO, "MlpPolicy", {"n_steps": 16, "batch_size": 16, "n_epochs": 1}),
    "A2C": (A2C, "MlpPolicy", {"n_steps": 16}),
    "TRPO": (TRPO, "MlpPolicy", {"n_steps": 16, "batch_size": 16}),
    "MaskablePPO": (MaskablePPO, "MlpPolicy", {"n_steps": 16, "batch_size": 16, "n_epochs": 1}),
    "RecurrentPPO": (RecurrentPPO, "MlpLstmPolicy", {"n_steps": 16, "batch_size": 16, "n_epochs": 1}),
}
OFF_POLICY = {
    "DQN": (DQN, "discrete"),
    "QRDQN": (QRDQN, "discrete"),
    "SAC": (SAC, "box"),
    "TD3": (TD3, "box"),
    "DDPG": (DDPG, "box"),
    "TQC": (TQC, "box"),
    "CrossQ": (CrossQ, "box"),
}
WARM: dict[str, Any] = {"learning_starts": 10, "buffer_size": 500, "batch_size": 8}


def tiny() -> dict[str, Any]:
    """A small policy. Made for each call: SB3 writes into the dict it is given."""
    return {"policy_kwargs": {"net_arch": [8]}, **NO_NET}


class Ledger(BaseCallback):
    """What the infos said the reward was, step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.sums: list[list[float]] = []

    def _on_step(self) -> bool:
        infos = self.locals["infos"]
        self.sums.append(
            [np.float32(info["extrinsic_reward"]) + np.float32(info["intrinsic_reward"]) for info in infos]
        )
        return True


@pytest.mark.parametrize(("name", "processes"), [*((name, False) for name in ON_POLICY), ("PPO", True)])
def test_on_policy_rollouts_hold_extrinsic_plus_intrinsic(name: str, processes: bool) -> None:
    algorithm, policy, options = ON_POLICY[name]
    venv = SubprocVecEnv(walks(2), start_method="fork") if processes else DummyVecEnv(walks(2))
    wrapper = E3BRewardWrapper(VecMonitor(venv), beta=0.5, seed=0)
    model: Any = algorithm(policy, wrapper, **tiny(), **options)
    ledger = Ledger()
    model.learn(64, callback=[ledger, EncoderUpdateCallback()])
    wanted = np.array(ledger.sums[-16:])
    # Walk never runs out of time, so SB3 adds no value of a truncated state to these rewards.
    np.testing.assert_allclose(model.rollout_buffer.rewards, wanted, rtol=1e-6)
    assert (wanted > 0).all()
    assert wrapper.explorer.optimizer.state
    venv.close()


@pytest.mark.parametrize("name", OFF_POLICY)
def test_off_policy_replay_holds_extrinsic_plus_intrinsic(name: str) -> None:
    algorithm, actions = OFF_POLICY[name]
    wrapper = E3BRewardWrapper(VecMonitor(DummyVecEnv(walks(2, actions=actions))), beta=0.5, seed=0)
    model: Any = algorithm("MlpPolicy", wrapper, **tiny(), **WARM)
    ledger = Ledger()
    model.learn(80, callback=[ledger, EncoderUpdateCallback(every=16)])
    np.testing.assert_allclose(model.replay_buffer.rewards[: len(ledger.sums)], np.array(ledger.sums), rtol=1e-6)
    assert wrapper.explorer.optimizer.state
    assert len(wrapper.explorer.record) == len(ledger.sums) % 16


class Noted(ARS):
    """ARS that keeps the returns it learns from."""

    def evaluate_candidates(self, *args: Any) -> torch.Tensor:
        returns = super().evaluate_candidates(*args)
        self.noted = [*getattr(self, "noted", []), *returns.tolist()]
        return returns


class Overheard(VecEnvWrapper):
    """Keeps what the infos say the reward was; ARS shows them to no callback."""

    def __init__(self, venv: VecEnv) -> None:
        super().__init__(venv)
        self.sums: list[float] = []

    def reset(self) -> Any:
        return self.venv.reset()

    def step_wait(self) -> Any:
        result = self.venv.step_wait()
        self.sums += [info["extrinsic_reward"] + info["intrinsic_reward"] for info in result[3]]
        return result


@pytest.mark.parametrize("monitor", [False, True])
def test_ars_returns_are_extrinsic_plus_intrinsic(monitor: bool) -> None:
    """ARS learns from episode returns: as evaluate_policy sums them, or as an outer VecMonitor does."""
    wrapper = E3BRewardWrapper(DummyVecEnv([lambda: Walk(4)]), beta=0.5, seed=0)
    venv = Overheard(VecMonitor(wrapper) if monitor else wrapper)
    model = Noted("LinearPolicy", venv, n_delta=2, n_eval_episodes=1, **NO_NET)
    model.learn(30, callback=EncoderUpdateCallback(every=8))
    sums = np.array(venv.sums).reshape(-1, 4).sum(axis=1)
    np.testing.assert_allclose(model.noted, sums, rtol=1e-5)
    assert sums.min() > 0
    assert wrapper.explorer.optimizer.state


@pytest.mark.parametrize("name", ["PPO", "DQN", "RecurrentPPO"])
def test_dict_observations(name: str) -> None:
    wrapper = E3BRewardWrapper(DummyVecEnv(walks(2, observations="dict")), seed=0)
    policy = "MultiInputLstmPolicy" if name == "RecurrentPPO" else "MultiInputPolicy"
    algorithm, options = (DQN, WARM) if name == "DQN" else (ON_POLICY[name][0], ON_POLICY[name][2])
    model: Any = algorithm(policy, wrapper, **tiny(), **options)
    model.learn(64, callback=EncoderUpdateCallback(every=16 if name == "DQN" else None))
    assert wrapper.explorer.optimizer.state


def test_pictures_go_through_vec_transpose_image() -> None:
    """SB3 puts VecTransposeImage outside by itself; the encoder sees the picture as the environment gives it."""
    wrapper = E3BRewardWrapper(DummyVecEnv(walks(1, observations="image")), seed=0)
    ledger = Ledger()
    model = PPO("CnnPolicy", wrapper, n_steps=8, batch_size=8, n_epochs=1, **NO_NET)
    assert isinstance(model.get_env(), VecTransposeImage)
    model.learn(16, callback=[ledger, EncoderUpdateCallback()])
    np.testing.assert_allclose(model.rollout_buffer.rewards, np.array(ledger.sums[-8:]), rtol=1e-6)


def normalised(venv: VecEnv) -> VecNormalize:
    return VecNormalize(venv, norm_obs=True, norm_reward=True)


def stacked(venv: VecEnv) -> VecFrameStack:
    return VecFrameStack(venv, 2)


def with_bonus(venv: VecEnv) -> E3BRewardWrapper:
    return E3BRewardWrapper(venv, beta=0.5, seed=0)


# Innermost first, as one builds them.
ORDERS: dict[str, list[Callable[[VecEnv], VecEnv]]] = {
    "VecFrameStack inside": [stacked, with_bonus],
    "VecFrameStack outside": [with_bonus, stacked],
    "VecNormalize outside": [with_bonus, normalised],
    "VecMonitor inside, VecNormalize outside": [VecMonitor, with_bonus, normalised],
    "VecFrameStack inside, VecNormalize outside": [stacked, with_bonus, normalised],
}


@pytest.mark.parametrize("order", ORDERS)
def test_right_orders_are_silent_and_keep_the_bonus_off_policy(order: str) -> None:
    """A replay buffer holds unnormalised rewards: VecNormalize normalises them when sampled."""
    venv: VecEnv = DummyVecEnv(walks(2))
    for wrap in ORDERS[order]:
        venv = wrap(venv)
    ledger = Ledger()
    model = DQN("MlpPolicy", venv, **tiny(), **WARM)
    model.learn(60, callback=[ledger, EncoderUpdateCallback(every=10)])
    np.testing.assert_allclose(model.replay_buffer.rewards[: len(ledger.sums)], np.array(ledger.sums), rtol=1e-6)


@pytest.mark.parametrize("order", [*ORDERS, "VecNormalize inside"])
def test_right_orders_are_silent_and_keep_the_bonus_on_policy(order: str) -> None:
    """With VecNormalize outside, the rollout holds the sum divided by the running deviation of its return."""
    venv: VecEnv = DummyVecEnv(walks(2))
    for wrap in ORDERS.get(order, [normalised, with_bonus]):
        venv = wrap(venv)
    ledger = Ledger()
    model = A2C("MlpPolicy", venv, n_steps=1, **tiny())
    model.learn(40, callback=[ledger, EncoderUpdateCallback()])
    scale = np.sqrt(venv.ret_rms.var + venv.epsilon) if isinstance(venv, VecNormalize) else 1.0
    np.testing.assert_allclose(model.rollout_buffer.rewards * scale, np.array(ledger.sums[-1:]), rtol=1e-5)


def learned(venv: VecEnv, model: str) -> BaseAlgorithm:
    if model == "ARS":
        return ARS("LinearPolicy", venv, n_delta=1, n_eval_episodes=1, **NO_NET)
    return DQN("MlpPolicy", venv, **tiny(), **WARM) if model == "DQN" else A2C("MlpPolicy", venv, n_steps=8, **tiny())


@pytest.mark.parametrize(
    ("model", "order", "remedy"),
    [
        ("A2C", [with_bonus, VecMonitor], r"E3BRewardWrapper\(VecMonitor\(venv\)\)"),
        ("DQN", [with_bonus, VecMonitor], r"E3BRewardWrapper\(VecMonitor\(venv\)\)"),
        ("DQN", [normalised, with_bonus], r"VecNormalize\(E3BRewardWrapper\(venv\)\)"),
        ("DQN", [normalised, VecMonitor, with_bonus], r"VecNormalize\(E3BRewardWrapper\(venv\)\)"),
        ("ARS", [VecMonitor, with_bonus], r"VecMonitor\(E3BRewardWrapper\(venv\)\)"),
    ],
)
def test_wrong_orders_give_one_warning_with_the_right_order(model: str, order: list[Any], remedy: str) -> None:
    venv: VecEnv = DummyVecEnv(walks(2))
    for wrap in order:
        venv = wrap(venv)
    with pytest.warns(UserWarning, match=remedy) as caught:
        learned(venv, model).learn(20, callback=EncoderUpdateCallback())
    assert len(caught) == 1


def test_the_warning_is_right_off_policy_with_vec_normalize_inside_loses_the_bonus() -> None:
    venv = with_bonus(normalised(DummyVecEnv(walks(2))))
    model = DQN("MlpPolicy", venv, **tiny(), **WARM)
    with pytest.warns(UserWarning, match="bonus would be lost"):
        model.learn(60, callback=EncoderUpdateCallback())
    assert set(model.replay_buffer.rewards[:30].ravel()) <= {0.0, 0.5}


class AlwaysOn(nn.Module):
    """Knows only whether the agent stands at the end of the chain, place 4."""

    def forward(self, place: torch.Tensor) -> torch.Tensor:
        return (place == 4).float()[:, None]


def test_credit_flows_back_from_the_bonus_at_the_end_of_a_chain() -> None:
    """In PPO's own rollout the one bonus, at the fourth step, raises the advantages of the steps before it.

    A bonus that is added after GAE leaves them at zero, as the difference to the rollout without a bonus shows.
    """
    gamma, lam = 0.99, 0.95
    advantages = {}
    for beta in (0.0, 1.0):
        venv = DummyVecEnv([lambda: Walk(6, observations="discrete")])
        options: dict[str, Any] = {"preset": "paper", "normaliser": "none", "ridge": 1.0, "encoder": AlwaysOn()}
        wrapper = E3BRewardWrapper(venv, "e3b-random", beta=beta, extrinsic=0.0, **options)
        model = PPO("MlpPolicy", wrapper, n_steps=6, batch_size=6, gamma=gamma, gae_lambda=lam, **tiny())
        with torch.no_grad():
            model.policy.action_net.bias[2] = 100.0  # always onwards
        callback = EncoderUpdateCallback()
        total, callback = model._setup_learn(6, callback)
        callback.on_training_start(locals(), globals())
        model.collect_rollouts(model.get_env(), callback, model.rollout_buffer, 6)
        advantages[beta] = model.rollout_buffer.advantages[:, 0].copy()
    np.testing.assert_allclose(model.rollout_buffer.rewards[:, 0], [0, 0, 0, 1, 0, 0], atol=1e-6)
    through_gae = advantages[1.0] - advantages[0.0]
    np.testing.assert_allclose(through_gae, [*(gamma * lam) ** np.arange(3, -1, -1), 0, 0], atol=1e-5)
    after_gae = np.array([0, 0, 0, 1, 0, 0])
    assert (through_gae[:3] - after_gae[:3] > 0.8).all()
