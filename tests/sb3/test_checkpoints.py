"""Checkpoints of model and wrapper: they resume exactly, survive damage, and leave those of other runs alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize
from torch import nn
from walks import Walk, walks

from e3b_gym.errors import DamagedFileError
from e3b_gym.sb3 import E3BCheckpointCallback, E3BRewardWrapper, EncoderUpdateCallback, resume
from e3b_gym.sb3.checkpoints import list_checkpoints

CPU: dict[str, Any] = {"seed": 0, "device": "cpu"}
WARM: dict[str, Any] = {"learning_starts": 10, "buffer_size": 500, "batch_size": 8, **CPU}
TINY: dict[str, Any] = {"policy_kwargs": {"net_arch": [8]}}


def same_length(count: int = 2) -> VecEnv:
    """Episodes of 4 steps: rollouts of 8 end where episodes end, so nothing is lost between two processes."""
    return DummyVecEnv([lambda: Walk(4)] * count)


def run_to(model: Any, steps: int, callback: Any) -> None:
    torch.manual_seed(7)
    np.random.seed(7)  # noqa: NPY002 (SB3 draws minibatches from the global generator)
    model.learn(steps, callback=callback, reset_num_timesteps=False)


def test_a_resumed_run_continues_exactly(tmp_path: Path) -> None:
    """Where the environments are at an episode's start and the generators are seeded, resuming changes no bit."""
    original = E3BRewardWrapper(same_length(), seed=0)
    model = PPO("MlpPolicy", original, n_steps=8, batch_size=16, n_epochs=2, **CPU, **TINY)
    model.learn(48, callback=[EncoderUpdateCallback(), E3BCheckpointCallback(8, tmp_path)])
    assert sorted(path.name for path in tmp_path.glob("*.zip")) == [f"e3b_{n}_steps.zip" for n in (16, 32, 48)]
    resumed, wrapper = resume(tmp_path, PPO, same_length(), device="cpu")
    assert resumed.num_timesteps == 48
    for each in (model, resumed):
        run_to(each, 64, EncoderUpdateCallback())
    assert resumed.num_timesteps == model.num_timesteps == 112
    np.testing.assert_array_equal(resumed.rollout_buffer.rewards, model.rollout_buffer.rewards)
    assert_equal(wrapper.explorer.state_dict(), original.explorer.state_dict())
    assert_equal(resumed.policy.state_dict(), model.policy.state_dict())


@pytest.mark.parametrize("side", ["outside", "inside"])
def test_a_checkpoint_brings_vec_normalize_back_to_its_side(side: str, tmp_path: Path) -> None:
    inner = VecNormalize(same_length()) if side == "inside" else same_length()
    original = E3BRewardWrapper(inner, seed=0)
    venv = VecNormalize(original) if side == "outside" else original
    model = PPO("MlpPolicy", venv, n_steps=8, batch_size=16, n_epochs=2, **CPU, **TINY)
    model.learn(48, callback=[EncoderUpdateCallback(), E3BCheckpointCallback(24, tmp_path)])
    resumed, wrapper = resume(tmp_path, PPO, same_length(), device="cpu")
    assert isinstance(resumed.get_env(), VecNormalize if side == "outside" else E3BRewardWrapper)
    assert isinstance(wrapper.venv, VecNormalize) == (side == "inside")
    assert_equal(wrapper.explorer.state_dict(), original.explorer.state_dict())
    for name in ("obs_rms", "ret_rms"):
        ours, theirs = (getattr(each.get_vec_normalize_env(), name) for each in (resumed, model))
        assert_equal([ours.mean, ours.var, ours.count], [theirs.mean, theirs.var, theirs.count])
    resumed.learn(16, callback=EncoderUpdateCallback(), reset_num_timesteps=False)
    assert resumed.num_timesteps == 64


def assert_equal(one: Any, two: Any) -> None:
    """Nested states, tensor by tensor."""
    if isinstance(one, dict):
        assert one.keys() == two.keys()
        for key in one:
            assert_equal(one[key], two[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(two)
        for a, b in zip(one, two, strict=True):
            assert_equal(a, b)
    elif isinstance(one, torch.Tensor):
        torch.testing.assert_close(one, two, rtol=0, atol=0)
    else:
        np.testing.assert_equal(one, two)


def test_off_policy_checkpoints_bring_the_replay_buffer(tmp_path: Path) -> None:
    model = DQN("MlpPolicy", E3BRewardWrapper(DummyVecEnv(walks(2)), seed=0), **WARM, **TINY)
    checkpoint = E3BCheckpointCallback(15, tmp_path, "dqn", save_replay_buffer=True)
    model.learn(60, callback=[EncoderUpdateCallback(every=8), checkpoint])
    resumed, wrapper = resume(tmp_path, DQN, DummyVecEnv(walks(2)), "dqn", device="cpu")
    assert (resumed.num_timesteps, resumed.replay_buffer.pos) == (64, 32)  # DQN takes its steps in fours
    np.testing.assert_array_equal(resumed.replay_buffer.rewards[:32], model.replay_buffer.rewards[:32])
    moved = int(wrapper.explorer.optimizer.state_dict()["state"][0]["step"])
    resumed.learn(40, callback=EncoderUpdateCallback(every=8), reset_num_timesteps=False)
    assert resumed.num_timesteps == 104
    assert wrapper.explorer.optimizer.state_dict()["state"][0]["step"] > moved


def test_only_the_newest_checkpoints_stay(tmp_path: Path) -> None:
    (tmp_path / "e3b_notes.txt").write_text("mine")
    callback = E3BCheckpointCallback(5, tmp_path, keep=2, verbose=1)
    A2C("MlpPolicy", E3BRewardWrapper(DummyVecEnv(walks(1)), seed=0), n_steps=5, **CPU).learn(
        25, callback=[EncoderUpdateCallback(), callback]
    )
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"e3b_notes.txt", *(f"e3b_{n}_steps{end}" for n in (20, 25) for end in (".zip", "_e3b.pt"))}


def test_a_checkpoint_with_an_own_encoder_resumes_with_it(tmp_path: Path) -> None:
    wrapper = E3BRewardWrapper(same_length(), encoder=nn.Linear(3, 6))
    callbacks = [EncoderUpdateCallback(), E3BCheckpointCallback(8, tmp_path)]
    A2C("MlpPolicy", wrapper, n_steps=8, **CPU).learn(16, callback=callbacks)
    objects = {"encoder": nn.Linear(3, 6)}
    _, resumed = resume(tmp_path, A2C, same_length(), wrapper_objects=objects, device="cpu")
    assert_equal(resumed.explorer.state_dict(), wrapper.explorer.state_dict())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"save_freq": 0}, "save_freq must be a whole number of at least 1; got 0"),
        ({"save_freq": "8"}, "save_freq must be a whole number of at least 1; got '8'"),
        ({"keep": 0}, "keep must be a whole number of at least 1 or None; got 0"),
        ({"keep": "3"}, "keep must be a whole number of at least 1 or None; got '3'"),
        ({"save_replay_buffer": "no"}, "save_replay_buffer must be true or false; got 'no'"),
    ],
)
def test_a_wrong_option_of_the_checkpoints_is_named(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        E3BCheckpointCallback(**{"save_freq": 1, "save_path": tmp_path, **options})


def test_a_replay_buffer_that_the_algorithm_does_not_have_is_refused(tmp_path: Path) -> None:
    callback = E3BCheckpointCallback(8, tmp_path, save_replay_buffer=True)
    with pytest.raises(ValueError, match="save_replay_buffer has no effect: A2C has none; remove it"):
        A2C("MlpPolicy", E3BRewardWrapper(same_length()), **CPU).learn(8, callback=callback)


def test_options_of_the_checkpoints_may_be_numpy_numbers(tmp_path: Path) -> None:
    made = E3BCheckpointCallback(np.int64(8), tmp_path, keep=np.int32(2), save_replay_buffer=np.bool_(False))
    assert (made.save_freq, made.keep, made.save_replay_buffer) == (8, 2, False)


def test_checkpoint_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no checkpoint e3b_<steps>_steps\.zip"):
        resume(tmp_path, PPO, same_length())
    with pytest.raises(ValueError, match="use SB3's CheckpointCallback"):
        A2C("MlpPolicy", same_length(), **CPU).learn(5, callback=E3BCheckpointCallback(5, tmp_path))


def learn(folder: Path, steps: int, *, seed: int = 0, **options: Any) -> A2C:
    """A run that saves every 8 steps of its environment."""
    model = A2C("MlpPolicy", E3BRewardWrapper(same_length(1), seed=0), n_steps=8, seed=seed, device="cpu", **TINY)
    model.learn(steps, callback=[EncoderUpdateCallback(), E3BCheckpointCallback(8, folder, **options)])
    return model


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_second_run_does_not_touch_the_checkpoints_of_the_first(tmp_path: Path) -> None:
    learn(tmp_path, 32, keep=2)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match=r"did not write \(e3b_24_steps.zip, e3b_32_steps.zip\); choose another"):
        learn(tmp_path, 16, seed=1, keep=2)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    learn(tmp_path, 16, seed=1, keep=2, name_prefix="second")
    assert {path: path.read_bytes() for path in before} == before


def test_resume_gives_the_last_written_where_the_count_of_steps_started_again(tmp_path: Path) -> None:
    model = A2C("MlpPolicy", E3BRewardWrapper(same_length(1), seed=0), n_steps=8, **CPU, **TINY)
    callback = E3BCheckpointCallback(8, tmp_path, keep=3)
    model.learn(32, callback=[EncoderUpdateCallback(), callback])
    model.learn(16, callback=[EncoderUpdateCallback(), callback])
    assert [path.stem for path in list_checkpoints(tmp_path)] == ["e3b_32_steps", "e3b_8_steps", "e3b_16_steps"]
    resumed, _ = resume(tmp_path, A2C, same_length(1), device="cpu")
    assert resumed.num_timesteps == 16
    for name, weight in model.policy.state_dict().items():
        assert torch.equal(weight, resumed.policy.state_dict()[name])


def test_the_order_survives_copying(tmp_path: Path) -> None:
    learn(tmp_path / "run", 24)
    (tmp_path / "copy").mkdir()
    for path in reversed(list_checkpoints(tmp_path / "run")):
        for file in (tmp_path / "run").glob(f"{path.stem}*"):
            (tmp_path / "copy" / file.name).write_bytes(file.read_bytes())
    assert [path.stem for path in list_checkpoints(tmp_path / "copy")] == [f"e3b_{n}_steps" for n in (8, 16, 24)]


def test_a_resumed_run_keeps_the_checkpoints_of_its_first_part(tmp_path: Path) -> None:
    learn(tmp_path, 16)
    model, _ = resume(tmp_path, A2C, same_length(1), device="cpu")
    callbacks = [EncoderUpdateCallback(), E3BCheckpointCallback(8, tmp_path, keep=1)]
    model.learn(16, callback=callbacks, reset_num_timesteps=False)
    assert [path.stem for path in list_checkpoints(tmp_path)] == [f"e3b_{n}_steps" for n in (8, 16, 32)]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    middle = content.index(b"policy.pth") + 400
    content[middle] ^= 0xFF
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("e3b_16_steps.zip", cut),
        ("e3b_16_steps.zip", flip),
        ("e3b_16_steps_e3b.pt", cut),
        ("e3b_16_steps_e3b.pt", Path.unlink),
    ],
)
def test_a_damaged_checkpoint_gives_way_to_the_one_before(file: str, damage: Any, tmp_path: Path) -> None:
    learn(tmp_path, 16)
    damage(tmp_path / file)
    with pytest.warns(UserWarning, match=r"resuming from e3b_8_steps.zip, because .*e3b_16_steps"):
        model, _ = resume(tmp_path, A2C, same_length(1), device="cpu")
    assert model.num_timesteps == 8


def test_a_damaged_normalizer_gives_way_too_and_nothing_readable_is_an_error(tmp_path: Path) -> None:
    venv = VecNormalize(E3BRewardWrapper(same_length(1), seed=0))
    model = A2C("MlpPolicy", venv, n_steps=8, **CPU, **TINY)
    model.learn(16, callback=[EncoderUpdateCallback(), E3BCheckpointCallback(8, tmp_path)])
    cut(tmp_path / "e3b_16_steps_vecnormalize_outside.pkl")
    with pytest.warns(UserWarning, match=r"because e3b_16_steps_vecnormalize_outside.pkl is damaged"):
        assert resume(tmp_path, A2C, same_length(1), device="cpu")[0].num_timesteps == 8
    cut(tmp_path / "e3b_8_steps.zip")
    with pytest.raises(DamagedFileError, match=r"no checkpoint in .* can be read: .*e3b_8_steps.zip is damaged"):
        resume(tmp_path, A2C, same_length(1), device="cpu")


def test_a_save_that_fails_leaves_no_half_files_and_a_kill_s_are_swept(tmp_path: Path, monkeypatch: Any) -> None:
    model = learn(tmp_path, 8)
    good = names(tmp_path)

    def no_space(self: Any, path: Any, *more: Any, **options: Any) -> None:
        Path(path).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(A2C, "save", no_space)
        with pytest.raises(OSError, match="No space left"):
            model.learn(8, callback=E3BCheckpointCallback(8, tmp_path), reset_num_timesteps=False)
    assert names(tmp_path) == good
    left = ["e3b_24_steps_e3b.pt.part", "e3b_999_steps_e3b.pt", "e3b_999_steps_vecnormalize_outside.pkl"]
    own = ["other.part", "e3b_notes.txt", "e3b_999_steps_e3b.pt.bak", "e3b_extra_9_steps_e3b.pt"]
    for name in left + own:
        (tmp_path / name).write_bytes(b"half")
    model.learn(8, callback=E3BCheckpointCallback(8, tmp_path), reset_num_timesteps=False)
    assert not set(left) & set(names(tmp_path))
    assert set(own) <= set(names(tmp_path))


def test_the_policy_encoders_memory_resumes(tmp_path: Path) -> None:
    """Its size is known only when the policy is bound, which happens after loading."""
    model = PPO(
        "MlpPolicy", E3BRewardWrapper(same_length(), "e3b-policy", seed=0), n_steps=8, batch_size=8, **CPU, **TINY
    )
    model.learn(16, callback=[EncoderUpdateCallback(), E3BCheckpointCallback(8, tmp_path)])
    resumed, wrapper = resume(tmp_path, PPO, same_length(), device="cpu")
    saved = wrapper.explorer.state_dict()["memory"]
    assert saved is not None
    resumed.learn(16, callback=EncoderUpdateCallback(), reset_num_timesteps=False)
    assert resumed.num_timesteps == 32


def test_a_lifelong_memory_resumes_as_it_was(tmp_path: Path) -> None:
    wrapper = E3BRewardWrapper(same_length(), "e3b", episodic=False, seed=0)
    A2C("MlpPolicy", wrapper, n_steps=8, **CPU).learn(
        32, callback=[EncoderUpdateCallback(), E3BCheckpointCallback(8, tmp_path)]
    )
    _, loaded = resume(tmp_path, A2C, same_length(), device="cpu")
    assert_equal(loaded.explorer.memory.state_dict(), wrapper.explorer.memory.state_dict())
