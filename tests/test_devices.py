"""Every tensor of an update is on the device it should be on: on the CPU, a pretended device, or a real GPU."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from pretend_device import Device, register
from stable_baselines3 import A2C
from stable_baselines3.common.env_util import make_vec_env

from agents import IMPALA
from agents.impala.config import Config
from e3b_gym import E3BReward, E3BRewardWrapper, E3BVectorReward, EncoderUpdateCallback
from e3b_gym.bonuses import METHODS
from e3b_gym.config import BonusConfig
from e3b_gym.devices import find_device, parse_device

register()
GPU = pytest.param(
    "cuda",
    marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU here: device='cuda' is not executed"),
)
DEVICES = ["pretend", GPU]


@pytest.fixture(params=DEVICES)
def device(request):
    """The name of a device other than the CPU, at work."""
    if request.param != "pretend":
        yield request.param
        return
    with Device():
        yield request.param


def small(method, **options):
    sizes = {"engine": "inline", "n_envs": 4, "n_steps": 6, "batch_size": None, "lstm": 8, "dim": 8, "seed": 3}
    return {**sizes, "env_options": {"max_steps": 4}, "bonus": BonusConfig.of(method, "paper"), **options}


def with_messages(method):
    sizes = small(method, env="MiniHack-MultiRoom-N6-Lava-v0", net="fast")
    del sizes["dim"]  # fixed by the network
    return sizes


def learned(name, **options):
    model = IMPALA(options.pop("env", "Rooms-K4-v0"), device=name, **options)
    return model, [update.stats for update in model.updates(48)]


def tensors(part):
    return [*part.parameters(), *part.buffers()]


def on(tree, device):
    """Whether all tensors in dicts and lists are on a device; scalars may be on the CPU."""
    if isinstance(tree, dict):
        return all(on(part, device) for part in tree.values())
    if isinstance(tree, (list, tuple)):
        return all(on(part, device) for part in tree)
    return not isinstance(tree, torch.Tensor) or tree.dim() == 0 or tree.device.type == device


VARIANTS = ("position", "image", "message", "subsampled", "nocount")  # of a method that is tested without them


@pytest.mark.parametrize(
    "method",
    [pytest.param(name, marks=[pytest.mark.slow] if name.endswith(VARIANTS) else []) for name in sorted(METHODS)],
)
def test_updates_of_every_method_are_those_of_the_cpu(method, device):
    options = with_messages(method) if method.endswith("message") else small(method)
    expected, numbers = learned("cpu", **options)
    model, found = learned(device, **options)
    assert model.device.type == device
    assert on([tensor.data for tensor in tensors(model.policy)], device)
    assert on([tensor.data for tensor in tensors(model.learner.explorer.bonus)], device)
    assert on(model.learner.policy_optimizer.state_dict()["state"], device)
    for one, other in zip(numbers, found, strict=True):
        for mine, theirs in zip(one, other, strict=True):
            assert theirs == pytest.approx(mine, rel=2e-2, abs=1e-4)
    for mine, theirs in zip(expected.policy.parameters(), model.policy.parameters(), strict=True):
        torch.testing.assert_close(theirs.detach().cpu(), mine.detach(), rtol=1e-3, atol=1e-5)
    assert model.predict(model.make_env().reset())[0].shape == (1,)


@pytest.mark.parametrize(
    "options",
    [
        {"normalize_advantage": True, "clip_range": 0.2, "n_epochs": 2, "optimizer": "adam", "batch_size": 12},
        {"bootstrap_truncated": True, "value_heads": 2},
    ],
    ids=["ppo", "bootstrap"],
)
def test_other_losses_and_optimisers_run_there_too(options, device):
    _, stats = learned(device, **small("e3b", **options))
    _, numbers = learned("cpu", **small("e3b", **options))
    assert stats[-1][-1] == pytest.approx(numbers[-1][-1], rel=2e-2, abs=1e-3)


@pytest.mark.parametrize("net", ["fast", "moves", pytest.param("paper", marks=pytest.mark.slow)])
def test_the_networks_of_minihack_have_a_form_for_other_devices(net, device):
    sizes = small("e3b", env="MiniHack-MultiRoom-N6-Lava-v0", net=net, n_envs=2, n_steps=12)
    del sizes["dim"], sizes["batch_size"]  # fixed by the network; by the number of environments
    _, numbers = learned("cpu", **sizes)
    model, found = learned(device, **sizes)
    assert on([tensor.data for tensor in tensors(model.policy)], device)
    assert found[0][0] == pytest.approx(numbers[0][0], rel=2e-2, abs=1e-3)


def test_a_checkpoint_moves_between_devices(tmp_path, device):
    model, _ = learned(device, **small("e3b-nonepisodic"))
    model.save(tmp_path / "model")
    weights = {name: value.cpu() for name, value in model.policy.state_dict().items()}
    for target in ("cpu", device):
        loaded = IMPALA.load(tmp_path / "model", device=target)
        assert loaded.device.type == target
        assert all(torch.equal(value.cpu(), weights[name]) for name, value in loaded.policy.state_dict().items())
        loaded.learn(24, reset_num_timesteps=False)
        assert on(loaded.learner.policy_optimizer.state_dict()["state"], target)


IN_SHORT = ("e3b", "noveld", "agac", "e3b-policy", "count")  # a method of each kind
KEYS = ("position", "image", "message", "subsampled")  # which CartPole has not


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(name, marks=[] if name in IN_SHORT else [pytest.mark.slow])
        for name in sorted(METHODS)
        if name != "none" and not name.endswith(KEYS)
    ],
)
def test_the_wrapper_follows_the_model_that_it_feeds(method, tmp_path, device):
    if device == "pretend":
        model = A2C("MlpPolicy", E3BRewardWrapper(make_vec_env("CartPole-v1", 2, seed=0), method, seed=0), 1e-3, 8)
        model.policy.to(device)
        model.device = model.rollout_buffer.device = find_device(device)
        model.policy.optimizer = torch.optim.RMSprop(model.policy.parameters(), 1e-3)
    else:
        model = A2C("MlpPolicy", E3BRewardWrapper(make_vec_env("CartPole-v1", 2), method), 1e-3, 8, device=device)
    wrapper = model.get_env()
    assert wrapper.explorer.device.type == "cpu"
    model.learn(32, callback=EncoderUpdateCallback())
    assert wrapper.explorer.device.type == device
    assert on([tensor.data for tensor in tensors(wrapper.bonus)], device)
    assert on(wrapper.explorer.state_dict()["optimizer"], device)
    assert method not in ("e3b", "e3b-policy") or wrapper.explorer.memory.device.type == device
    assert method.startswith("agac") or np.isfinite(wrapper.step([0, 1])[1]).all()  # AGAC needs the policy's logits
    if method == "e3b":
        wrapper.save(tmp_path / "bonus")
        loaded = E3BRewardWrapper.load(tmp_path / "bonus", make_vec_env("CartPole-v1", 2), device="cpu")
        assert loaded.explorer.device.type == "cpu"


def test_the_gymnasium_wrappers_score_and_train_on_a_device(device):
    def rewards(name):
        envs = E3BVectorReward(gym.make_vec("CartPole-v1", 3), "e3b", dim=8, seed=0, device=name)
        envs.reset(seed=0)
        envs.action_space.seed(0)
        found = [envs.step(envs.action_space.sample())[1] for _ in range(40)]
        envs.train_encoder()
        return envs, np.stack(found + [envs.step(envs.action_space.sample())[1] for _ in range(5)])

    (_, expected), (envs, found) = rewards("cpu"), rewards(device)
    assert on([tensor.data for tensor in tensors(envs.bonus)], device)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)
    env = E3BReward(gym.make("CartPole-v1"), "e3b", seed=0, device=device)
    env.reset(seed=0)
    assert env.step(0)[1] > 0
    assert env.explorer.device.type == device


def test_the_pretended_device_refuses_what_a_gpu_refuses():
    with Device():
        there, here = torch.ones(3, device="pretend"), torch.ones(3)
        for mix in (
            lambda: there + here,
            lambda: torch.cat([there, here]),
            lambda: torch.where(there > 0, there, here),
        ):
            with pytest.raises(RuntimeError, match="one device"):
                mix()
        with pytest.raises((TypeError, RuntimeError)):
            there.numpy()
        assert (there * torch.tensor(2.0)).cpu().tolist() == [2, 2, 2]
        assert there[torch.tensor([0, 1])].device.type == "pretend"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpu", r"device must be 'auto', 'cpu', 'cuda' or 'cuda:<number>'; got 'gpu'"),
        ("mps", "has no float64, which the bonus needs; use device='auto' or 'cpu'"),
        ("meta", "holds no numbers"),
        ("cuda:99", r"device 'cuda:99' is not available \(PyTorch finds .*\); use device='auto' or 'cpu'"),
    ],
)
def test_a_device_that_cannot_be_used_is_one_clear_line(name, message):
    for make in (
        lambda: IMPALA("Rooms-K3-v0", engine="inline", n_envs=2, n_steps=2, device=name),
        lambda: E3BRewardWrapper(make_vec_env("CartPole-v1", 1), device=name),
        lambda: E3BReward(gym.make("CartPole-v1"), device=name),
    ):
        with pytest.raises(ValueError, match=message):
            make()


def test_auto_is_a_gpu_where_there_is_one():
    assert find_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert parse_device("auto") is None
    assert Config("Rooms-K3-v0", device="cuda").device == "cuda"  # a config can be read where there is none
    with pytest.raises(ValueError, match="device must be"):
        Config("Rooms-K3-v0", device="gpu")
