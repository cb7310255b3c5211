"""Evaluation: unseen environments, equal shares, honest intervals, the environment's own reward."""

import errno
import json

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_runs import tiny

from agents.impala.config import Config
from agents.ppo.config import PPOConfig
from e3b_gym.envs import make_vec
from experiments.evaluate import Played, evaluate, main, play, summary
from experiments.intervals import bootstrap, wilson
from experiments.players import fresh_seeds
from experiments.runs import RunFolder
from experiments.train import main as train


def test_wilsons_interval_has_the_published_values():
    # Agresti and Coull 1998: 0 of 10 and 5 of 10.
    assert wilson(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert wilson(10, 10) == pytest.approx((1 - 0.2775, 1.0), abs=1e-4)


@settings(deadline=None)
@given(trials=st.integers(1, 500), share=st.floats(0, 1))
def test_wilsons_interval_holds_the_share_and_is_symmetric(trials, share):
    successes = round(share * trials)
    low, high = wilson(successes, trials)
    assert 0 <= low <= successes / trials <= high <= 1
    assert wilson(trials - successes, trials) == pytest.approx((1 - high, 1 - low))


def test_wilsons_interval_covers_the_truth_95_times_in_100():
    draws = np.random.default_rng(0).binomial(100, 0.9, size=4000)
    covered = np.mean([low <= 0.9 <= high for low, high in (wilson(int(k), 100) for k in draws)])
    assert 0.93 < covered < 0.97


def test_the_bootstrap_narrows_with_the_sample_and_is_reproducible():
    values = np.random.default_rng(0).normal(size=400).tolist()
    low, high = bootstrap(values)
    assert low < np.mean(values) < high
    assert high - low == pytest.approx(2 * 1.96 * np.std(values) / 20, rel=0.1)
    assert bootstrap(values) == (low, high)
    wide = bootstrap(values[:25])
    assert wide[1] - wide[0] > 2 * (high - low)


@settings(deadline=None, max_examples=10)
@given(run_seed=st.integers(0, 50), seed=st.integers(0, 5))
def test_evaluation_never_uses_an_environment_of_training(run_seed, seed):
    config = Config("Rooms-K3-v0", seed=run_seed, actors=3, n_envs=64, batch_size=None)
    fresh = set(fresh_seeds(config, 100, seed))
    assert len(fresh) == 100
    for actor in range(3):
        for restarts in range(20):
            first = config.env_seed(actor, restarts)
            assert not fresh & set(range(first, first + 64))


def test_seeds_that_training_used_are_passed_over(monkeypatch):
    config = PPOConfig("Rooms-K3-v0")
    free = fresh_seeds(config, 3, 0)
    monkeypatch.setattr("experiments.players.training_seeds", lambda config: np.array([[free[1] - 5, free[1] + 5]]))
    without = fresh_seeds(config, 3, 0)
    assert without[:2] == [free[0], free[2]]
    assert free[1] not in without


class Walker:
    """Acts at random."""

    frames = 0

    def __init__(self, envs):
        self._space = envs.single_action_space
        self._space.seed(0)

    def act(self, obs, starts):
        return np.array([self._space.sample() for _ in starts])


def test_every_environment_plays_its_share_however_long_its_episodes_are():
    envs = make_vec("CartPole-v1", 4)
    played = play(envs, Walker(envs), [1, 2, 3, 4], 10)
    envs.close()
    assert [episode.seed for episode in played] == [1] * 3 + [2] * 3 + [3] * 2 + [4] * 2
    assert all(episode.ret == episode.length for episode in played)  # CartPole's reward is 1 per step
    assert all(episode.success is None for episode in played)


def test_success_is_left_out_where_the_suite_cannot_tell():
    assert "success" not in summary([Played(0, 1.0, 3, None)])
    numbers = summary([Played(0, 1.0, 3, True), Played(0, 0.0, 5, False)])
    assert numbers["success"]["mean"] == 0.5
    assert (numbers["return"]["mean"], numbers["length"]["mean"]) == (0.5, 4.0)


def test_the_same_command_evaluates_every_agent(trained, capsys):
    assert main([f"RUN={trained}", "EPISODES=6", "SEED=3"]) == 0
    out = capsys.readouterr().out
    assert "success" in out
    assert "95 % interval" in out
    found = json.loads((trained / "evaluation-latest-seed3.json").read_text())
    assert found["episodes"] == len(found["played"]) == 6
    assert found["agent"] == yaml.safe_load((trained / "config.yaml").read_text())["agent"]
    assert found["frames"] == 64
    assert found["provenance"]["commit"]
    assert found["length"]["mean"] <= 10  # the run's own environment: max_steps=10


def test_an_evaluation_can_be_repeated(trained):
    folder = RunFolder.existing(str(trained))
    first, again, other = (evaluate(folder, 5, seed)["played"] for seed in (1, 1, 2))
    assert first == again != other


def test_greedy_and_best_have_files_of_their_own(trained):
    best = trained / "checkpoints" / "best.pt"
    best.write_bytes(sorted((trained / "checkpoints").glob("checkpoint-*.pt"))[-1].read_bytes())
    try:
        assert main([f"RUN={trained}", "EPISODES=2", "GREEDY=1", "CHECKPOINT=best"]) == 0
    finally:
        best.unlink()
    found = json.loads((trained / "evaluation-best-greedy-seed0.json").read_text())
    assert found["actions"] == "most probable"


def test_best_without_a_best_checkpoint_is_refused(trained, capsys):
    assert main([f"RUN={trained}", "EPISODES=2", "CHECKPOINT=best"]) == 2
    assert "has no best checkpoint: none was saved with a score yet; use the latest" in capsys.readouterr().err


def test_the_result_is_printed_even_where_it_cannot_be_written(trained, capsys, monkeypatch):
    def full(path, text):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("pathlib.Path.write_text", full)
    assert main([f"RUN={trained}", "EPISODES=2", "SEED=9"]) == 2
    out, err = capsys.readouterr()
    assert "success" in out
    assert "written to" not in out
    file = trained / "evaluation-latest-seed9.json"
    assert err == f"error: cannot use {file}: no space left on device; free some space on that disk\n"
    assert not list(trained.glob("evaluation-latest-seed9*"))


def test_the_reward_is_the_environments_own(tmp_path):
    run = tmp_path / "run"
    assert train(tiny(run, "CartPole-v1", "impala", "beta=1000")) == 0
    assert all(ret == length for _, ret, length, _ in evaluate(RunFolder(run), 5)["played"])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["EPISODES=0"], "at least 1"),
        (["CHECKPOINT=first"], "latest or best"),
        (["learning_rate=1"], "evaluate takes"),
        (["EPISODE=3"], "did you mean EPISODES"),
    ],
)
def test_mistakes_are_answered_in_one_line(options, reason, trained, capsys):
    assert main([f"RUN={trained}", *options]) == 2
    assert reason in capsys.readouterr().err


def test_a_folder_that_is_no_run_is_answered_with_those_near_it(trained, capsys):
    assert main([f"RUN={trained.parent}"]) == 2
    assert str(trained) in capsys.readouterr().err
    assert main(["EPISODES=3"]) == 2
    assert "RUN= is missing" in capsys.readouterr().err


def test_a_wrong_folder_raises_an_error_with_the_runs_nearby_but_not_those_far_below(tmp_path):
    near, far = tmp_path / "env" / "run", tmp_path / "a" / "b" / "c" / "d" / "run"
    for folder in (near, far):
        folder.mkdir(parents=True)
        (folder / "config.yaml").touch()
    with pytest.raises(ValueError, match="not the folder of a run") as error:
        RunFolder.existing(str(tmp_path))
    assert str(near) in str(error.value)
    assert str(far) not in str(error.value)
