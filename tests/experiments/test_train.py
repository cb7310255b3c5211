"""One command trains every suite with every agent and method; it can be stopped, killed and damaged without loss."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny_runs import FRAMES, TINY, rows, tiny

from agents.checkpoint import CheckpointStore
from e3b_gym.bonuses import METHODS
from experiments.progress import EpisodeWindow, Progress, duration, fitted, progress_line, short
from experiments.train import main

ROOT = Path(__file__).parents[2]


class Fickle(gymnasium.Env):
    """Its reward is NaN from the 40th step on."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (3,))
    action_space = gymnasium.spaces.Discrete(2)
    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.steps += 1
        reward = float("nan") if self.steps >= 40 else 0.0
        return np.full(3, 0.1, np.float32), reward, False, self.steps % 10 == 0, {}


@pytest.fixture
def fickle():
    gymnasium.register("Fickle-v0", Fickle)
    yield "Fickle-v0"
    del gymnasium.registry["Fickle-v0"]


@pytest.mark.parametrize("agent", TINY)
@pytest.mark.parametrize("method", [name for name in METHODS if "message" not in name])
def test_every_method_trains_with_every_agent(method, agent, tmp_path):
    options = [f"METHOD={method}", "env.max_steps=5"]
    assert main(tiny(tmp_path / "run", "Rooms-K3-v0", agent, *options, steps=FRAMES)) == 0
    last = rows(tmp_path / "run")[-1]
    assert int(last["frames"]) == FRAMES
    assert float(last["length"]) == 5.0


@pytest.mark.parametrize(
    ("env", "agent", "method"),
    [
        ("MiniHack-LavaCross-Restricted-v0", "impala", "e3b"),
        ("MiniHack-LavaCross-Restricted-v0", "impala", "noveld-image"),
        ("MiniHack-LavaCross-Restricted-v0", "impala", "ride-message"),
        ("MiniHack-LavaCross-Restricted-v0", "impala", "agac"),
        ("MiniHack-LavaCross-Restricted-v0", "ppo", "e3b"),
        ("MiniHack-LavaCross-Restricted-v0", "ppo", "count-message"),
        ("MiniHack-LavaCross-Restricted-v0", "recurrent_ppo", "e3b-policy"),
        ("VizdoomMyWayHomeSparse-v0", "impala", "e3b"),
        ("VizdoomMyWayHomeSparse-v0", "ppo", "icm"),
        ("VizdoomMyWayHomeSparse-v0", "recurrent_ppo", "e3b"),
        ("MiniGrid-MultiRoom-N2-S4-v0", "impala", "e3b"),
        ("MiniGrid-MultiRoom-N2-S4-v0", "impala", "noveld-position"),
        ("MiniGrid-MultiRoom-N2-S4-v0", "ppo", "e3b-x-rnd"),
        ("MiniGrid-MultiRoom-N2-S4-v0", "recurrent_ppo", "ride-position"),
        ("CartPole-v1", "impala", "e3b"),
        ("Pendulum-v1", "ppo", "e3b"),
    ],
)
def test_every_suite_trains(env, agent, method, tmp_path):
    options = [f"METHOD={method}", "n_envs=2", "batch_size=8"]
    assert main(tiny(tmp_path / "run", env, agent, *options, steps=FRAMES)) == 0
    assert int(rows(tmp_path / "run")[-1]["frames"]) == FRAMES


# Names of methods that want to count what a suite does not show, and what that is.
MISSING = {
    "MiniHack-LavaCross-Restricted-v0": {"subsampled": "image"},
    "MiniHack-MultiRoom-N4-v0": {"subsampled": "image"},
    "VizdoomMyWayHomeSparse-v0": {part: part for part in ("position", "message", "image")} | {"subsampled": "image"},
    "MiniGrid-MultiRoom-N2-S4-v0": {"message": "message"},
    "Habitat-FloorPlan-v0": {part: part for part in ("position", "message")},
    "CartPole-v1": {part: part for part in ("position", "message", "image")} | {"subsampled": "image"},
}


@pytest.mark.slow
@pytest.mark.parametrize("agent", TINY)
@pytest.mark.parametrize("env", MISSING)
@pytest.mark.parametrize("method", METHODS)
def test_every_pairing_trains_or_is_refused_with_the_reason(env, agent, method, tmp_path, capsys):
    options = [f"METHOD={method}", "n_envs=2", "batch_size=8"]
    code = main(tiny(tmp_path / "run", env, agent, *options, steps=FRAMES))
    if missing := [part for name, part in MISSING[env].items() if name in method]:
        assert code == 2
        assert f"no {missing[0]} to count" in capsys.readouterr().err
        assert not (tmp_path / "run").exists()
    else:
        assert code == 0
        assert int(rows(tmp_path / "run")[-1]["frames"]) == FRAMES


def test_settings_of_the_task_alone_are_shown_as_they_are_in_effect(tmp_path, capsys, monkeypatch):
    options = "options of the preset for this task: steps=2000000"
    given = ["ENV=MiniHack-MultiRoom-N6-Lava-v0", "engine=inline", "n_envs=2", "batch_size=8", "n_steps=4"]
    monkeypatch.setattr("experiments.train.run", lambda *prepared: 0)
    assert main([*given, f"RUN={tmp_path}/whole"]) == 0
    assert options in capsys.readouterr().out
    assert main([*given, f"RUN={tmp_path}/short", "STEPS=8"]) == 0
    assert options not in capsys.readouterr().out


@pytest.mark.slow
def test_two_learners_train_in_a_home(tmp_path):
    """Each learner collects and learns, and gradients are averaged, as in the paper's DD-PPO."""
    options = ["ENV=Habitat-FloorPlan-v0", "engine=inline", "learners=2", "env.size=32", "log_seconds=0"]
    sizes = ["n_envs=4", "n_steps=4", "batch_size=8", "STEPS=32"]
    assert main([*options, *sizes, f"RUN={tmp_path}/run"]) == 0
    assert int(rows(tmp_path / "run")[-1]["frames"]) == 32
    assert yaml.safe_load((tmp_path / "run/config.yaml").read_text())["config"]["clip_range"] is not None


def test_the_papers_networks_train(tmp_path):
    options = ["PRESET=paper", "n_envs=2", "batch_size=8", "n_steps=4", "engine=inline", "log_seconds=0", "STEPS=8"]
    assert main(["ENV=MiniHack-LavaCross-Restricted-v0", f"RUN={tmp_path}/run", *options]) == 0


@pytest.mark.parametrize("agent", TINY)
@pytest.mark.parametrize(
    ("env", "method", "reason"),
    [
        ("VizdoomMyWayHomeSparse-v0", "noveld-position", "no position to count"),
        ("Rooms-K3-v0", "ride-message", "no message to count"),
        ("MiniGrid-MultiRoom-N2-S4-v0", "count-message", "no message to count"),
        ("CartPole-v1", "count-image", "no image to count"),
        ("Rooms-K3", "e3b", "did you mean 'Rooms-K3-v0'"),
        ("MiniHack-KeyRoom-S5-v0", "e3b", "not among the MiniHack tasks that these networks support"),
    ],
)
def test_a_pairing_that_makes_no_sense_is_refused_with_the_reason(env, method, reason, agent, tmp_path, capsys):
    assert main(tiny(tmp_path / "run", env, agent, f"METHOD={method}")) == 2
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["ENV=Pendulum-v1"], "IMPALA acts in Discrete action spaces"),
        (["env.colour=red"], "Rooms-K3-v0 has no option env.colour; did you mean clock"),
        (["ENV=VizdoomMyWayHomeSparse-v0", "env.colour=red"], "has no option env.colour"),
        (["ENV=CartPole-v1", "env.render_mode=yes"], "env.render_mode is set by the command and cannot be an option"),
        (["ENV=CartPole-v1", "env.disable_env_checker=7"], "env.disable_env_checker must be true or false"),
        (["env.num_envs=3"], "num_envs: no option of an environment"),
        (["batch_size=24"], "batch_size must be a multiple of n_steps (8) that divides n_steps * n_envs (32)"),
        (["bonus.preset=best"], "unknown preset 'best'"),
        (["bonus_preset=best"], "has no option 'bonus_preset'; did you mean bonus.preset"),
        (["ENV=CartPole-v1", "env.colour=red"], "does not take all of env.colour"),
        (["env.seed=3"], "seed: no option of an environment"),
        (["env.max_steps=abc"], "env.max_steps must be a whole number of at least 1 or None; got 'abc'"),
        (["beta=abc"], "beta must be a number, 0 or more; got 'abc'"),
        (["episodic=maybe"], "episodic must be true or false; got 'maybe'"),
        (["bonus.ridge=-1"], "ridge must be a positive number"),
        (["ENV=Rooms-K3-v0", "AGENT=ppo", "lstm=none", "engine=inline"], "ppo with e3b has no option 'engine'"),
        (["net=fast"], "net= has no effect: there is one network for Rooms-K3-v0"),
        (["agac_coef=1"], "agac_coef= has no effect"),
        (["log_seconds=abc"], "log_seconds must be a number, 0 or more; got 'abc'"),
        (["RESUME=maybe"], "RESUME is a switch"),
        (["bonus.bonus_of=last"], "bonus_of must be"),
    ],
)
def test_other_mistakes_are_answered_in_one_line(options, reason, tmp_path, capsys):
    assert main([*tiny(tmp_path / "run"), *options]) == 2
    error = capsys.readouterr().err
    assert reason in error
    assert error.count("\n") == 1


def test_without_options_the_command_prints_its_help(capsys):
    assert main([]) == 0
    assert "make train ENV=" in capsys.readouterr().out


def test_the_run_folder_holds_the_resolved_config_and_its_origin(trained):
    content = yaml.safe_load((trained / "config.yaml").read_text())
    assert content["config"]["n_envs"] == 4
    given = content["config"]["env_options"]
    assert (given["max_steps"], set(given)) == (10, {"max_steps", "rooms", "clock", "noise", "flat"}), "with defaults"
    bonus = {"method", "beta", "extrinsic", "penalties", "normaliser", "clip", "floor"}
    assert bonus | {"ridge", "unit_length", "hidden"} < set(content["config"]["bonus"])
    assert content["provenance"][0]["commit"]
    assert content["provenance"][0]["packages"]["torch"]
    assert (trained / "checkpoints").is_dir()


def test_tensorboard_has_the_curves_of_the_csv(trained):
    board = EventAccumulator(str(trained))
    board.Reload()
    tags = set(board.Tags()["scalars"])
    assert {
        "episode/return",
        "episode/length",
        "episode/success",
        "learner/bonus",
        "time/fps",
        "time/rollout_us",
    } <= tags
    assert "learner/inverse_accuracy" in tags
    column = [float(row["bonus"]) for row in rows(trained)]
    assert [event.value for event in board.Scalars("learner/bonus")] == pytest.approx(column, rel=1e-5)
    assert [event.step for event in board.Scalars("learner/bonus")] == [int(row["frames"]) for row in rows(trained)]


def test_an_existing_run_is_not_overwritten(trained, capsys):
    before = (trained / "config.yaml").read_bytes()
    agent = yaml.safe_load(before)["agent"]
    assert main(tiny(trained, "Rooms-K3-v0", agent)) == 2
    assert f"make train RUN={trained} RESUME=1" in capsys.readouterr().err
    assert main([f"RUN={trained}"]) == 2
    assert "RESUME=1" in capsys.readouterr().err
    assert (trained / "config.yaml").read_bytes() == before


@pytest.mark.parametrize("agent", TINY)
def test_a_run_resumes_where_it_was(agent, tmp_path, capsys):
    run = tmp_path / "run"
    assert main(tiny(run, "Rooms-K3-v0", agent, "env.max_steps=10")) == 0
    assert main([f"RUN={run}", "RESUME=1"]) == 2
    assert "is at frame 64, and STEPS is 64; to continue training, raise it: make train" in capsys.readouterr().err
    assert main([f"RUN={run}", "RESUME=1", "learning_rate=0.5"]) == 2
    assert "start a new run" in capsys.readouterr().err
    assert main([f"RUN={run}", "RESUME=1", "METHOD=none"]) == 2
    assert main([f"RUN={run}", "RESUME=1", f"STEPS={4 * FRAMES}"]) == 0
    output = capsys.readouterr().out
    assert "changed: steps is now 128" in output
    assert "resuming at frame 64" in output
    assert [int(row["frames"]) for row in rows(run)] == [32, 64, 96, 128]
    assert [int(row["episodes"]) for row in rows(run)] == [0, 4, 4, 8]  # episodes restart at frame 64
    content = yaml.safe_load((run / "config.yaml").read_text())
    assert (content["config"]["steps"], len(content["provenance"])) == (4 * FRAMES, 2)
    seconds = [float(row["seconds"]) for row in rows(run)]
    assert seconds == sorted(seconds)


def test_the_inline_engine_gives_the_same_run_for_the_same_seed(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert main(tiny(tmp_path / name, "Rooms-K3-v0", "impala", f"SEED={seed}")) == 0
    a, b, c = (CheckpointStore(tmp_path / name / "checkpoints").load_latest().state["learner"] for name in "abc")
    for key in a["policy"]:
        assert torch.equal(a["policy"][key], b["policy"][key])
    assert any(not torch.equal(a["policy"][key], c["policy"][key]) for key in a["policy"])


@pytest.mark.parametrize("agent", ["impala", "ppo"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_says_how_to_resume(agent, number, tmp_path, capsys):
    run = tmp_path / "run"

    def send_when_it_trains():
        deadline = time.monotonic() + 60
        while not (run / "progress.csv").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(os.getpid(), number)

    sender = threading.Thread(target=send_when_it_trains)
    sender.start()
    code = main(tiny(run, "Rooms-K3-v0", agent, steps=10_000_000))
    sender.join()
    assert code == 128 + number
    output = capsys.readouterr().out
    frames = int(rows(run)[-1]["frames"])
    assert f"saved at frame {frames:,}; to resume: make train RUN={run} RESUME=1" in output
    assert main([f"RUN={run}", "RESUME=1", f"STEPS={frames + FRAMES}"]) == 0
    assert f"resuming at frame {frames:,}" in capsys.readouterr().out
    assert int(rows(run)[-1]["frames"]) == frames + FRAMES


def test_a_second_ctrl_c_ends_at_once(tmp_path, capsys, monkeypatch):
    def impatient(self):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("agents.impala.learner.Learner.learn", lambda self, rollout: impatient(self))
    assert main(tiny(tmp_path / "run")) == 128 + signal.SIGINT
    assert "not saved; there is no checkpoint after frame 0 yet" in capsys.readouterr().err


TRAINER = """
import sys
from experiments.runs import RunFolder
RunFolder.existing(sys.argv[1]).hold()
print("held", flush=True)
input()
"""


def test_two_processes_do_not_train_in_one_folder(tmp_path, capsys):
    run = tmp_path / "run"
    assert main(tiny(run, steps=FRAMES)) == 0
    again = [f"RUN={run}", "RESUME=1", f"STEPS={2 * FRAMES}"]
    command = [sys.executable, "-c", TRAINER, str(run)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        assert main(again) == 2
        assert f"process {other.pid} is training in {run}; wait until it has ended" in capsys.readouterr().err
        other.communicate("\n")
    assert main(again) == 0
    assert int(rows(run)[-1]["frames"]) == 2 * FRAMES


@pytest.mark.slow
def test_a_killed_run_resumes_from_its_last_checkpoint(tmp_path, capsys):
    run = tmp_path / "run"
    options = tiny(run, "Rooms-K3-v0", "impala", "checkpoint_minutes=1e-4", steps=10_000_000)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-m", "experiments.train", *options], cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL
    )
    store = CheckpointStore(run / "checkpoints")
    deadline = time.monotonic() + 60
    while len(store.paths()) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.kill()
    process.wait()
    saved = store.load_latest().frames
    assert main([f"RUN={run}", "RESUME=1", f"STEPS={saved + FRAMES}"]) == 0
    assert f"resuming at frame {saved:,}" in capsys.readouterr().out
    assert [int(row["frames"]) for row in rows(run)] == list(range(FRAMES, saved + 2 * FRAMES, FRAMES))


@pytest.mark.parametrize("agent", TINY)
def test_nan_stops_the_run_and_names_its_source_and_the_intact_checkpoint(agent, fickle, tmp_path, capsys):
    run = tmp_path / "run"
    assert main(tiny(run, fickle, agent, "checkpoint_minutes=1e-9", steps=1000)) == 1
    error = capsys.readouterr().err
    assert "the reward" in error
    assert "NaN" in error
    assert "the checkpoint of frame 128 is intact" in error
    assert f"make train RUN={run} RESUME=1" in error
    assert main([f"RUN={run}", "RESUME=1", "STEPS=129"]) == 0


def test_a_crash_names_the_checkpoint(tmp_path, capsys, monkeypatch):
    def broken(self, action):
        raise OSError("the simulator is gone")

    monkeypatch.setattr("gymnasium.envs.classic_control.CartPoleEnv.step", broken)
    with pytest.raises(OSError, match="gone"):
        main(tiny(tmp_path / "run", "CartPole-v1", "ppo"))
    assert "there is no checkpoint after frame 0 yet" in capsys.readouterr().err


def test_the_line_has_what_is_known_and_leaves_out_the_rest():
    episodes = {"return": 0.25, "length": 88.2, "success": 0.25}
    stats = {"bonus": 0.1234, "inverse_accuracy": 0.7}
    line = progress_line(1_234_567, 10_000_000, 3000.0, episodes, stats)
    assert line == (
        "1.23M/10.00M frames  3,000/s  48m42s left  return 0.25  length 88  success 0.25  bonus 0.123  inverse 0.70"
    )
    assert fitted(line, 120) == line
    assert fitted(line, 79).endswith("inv 0.70")  # nothing is lost in 80 columns
    assert len(fitted(line, 10)) == 10
    assert progress_line(10, 20, 0.0, {}, {}) == "10/20 frames  0/s  ? left"
    assert [duration(s) for s in (5, 75, 7500)] == ["5s", "1m15s", "2h05m"]
    assert [short(n) for n in (999, 5120, 123_456, 12_345_678)] == ["999", "5.12k", "123k", "12.35M"]


def test_the_score_of_a_checkpoint_needs_a_full_window_and_prefers_success(tmp_path):
    from agents.protocols import Episodes

    window = EpisodeWindow(4)
    one = Episodes(np.array([2.0, 4.0], np.float32), np.array([5, 6]), np.array([1.0, 0.0], np.float32))
    window.add(one)
    assert window.score is None
    window.add(one)
    assert window.score == 0.5
    blind = EpisodeWindow(2)
    blind.add(Episodes(one.returns, one.lengths, np.full(2, np.nan, np.float32)))
    assert blind.score == 3.0
    assert blind.means() == {"return": 3.0, "length": 5.5}
    progress = Progress(tmp_path, 10)
    assert progress.state_dict()["episodes"]["count"] == 0
    progress.finish(0, {})
