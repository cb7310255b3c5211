"""What a user can type, edit or damage is answered in one line, and nothing that was there is changed."""

import configparser
import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import stable_baselines3  # noqa: F401  # its import prints a notice about gym, before a test reads what is printed
import yaml
from tiny_runs import FRAMES, TINY, tiny

from e3b_gym.command import answer, plain_warnings
from experiments import heatmap
from experiments.doctor import main as doctor
from experiments.evaluate import main as evaluate
from experiments.provenance import commit
from experiments.report import main as report
from experiments.reproduce import main as reproduce
from experiments.train import main as train
from experiments.watch import main as watch

ROOT = Path(__file__).parents[2]


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, but for the lock, which holds the number of the last process."""
    files = (file for file in folder.rglob("*") if file.is_file() and file.name != ".lock")
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def refused(capsys, code: int) -> str:
    """The one line of a command that refused."""
    said = capsys.readouterr().err
    assert code == 2
    assert said.count("\n") == 1
    assert said.startswith("error: ")
    return said


def test_warnings_of_a_command_are_one_line():
    with plain_warnings():
        assert warnings.formatwarning("two\n lines", UserWarning, "file.py", 3) == "warning: two lines\n"
    assert "file.py" in warnings.formatwarning("text", UserWarning, "file.py", 3)


def test_a_mistake_of_ours_keeps_its_traceback():
    def broken(given):
        raise KeyError("a bug")

    with pytest.raises(KeyError, match="a bug"):
        answer(["x"], "help", broken)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("batch must be\n  2"), "error: batch must be 2\n"),
        (
            PermissionError(13, "Permission denied", "/x"),
            "error: cannot use /x: permission denied; choose one that you",
        ),
        (MemoryError("40 GB"), "error: not enough memory: 40 GB; choose smaller networks"),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate"),
            "error: not enough memory: [enforce fail]",
        ),
    ],
)
def test_every_error_of_a_user_is_one_line(error, line, capsys):
    def wrong(given):
        raise error

    assert line in refused(capsys, answer(["x"], "help", wrong)) + "\n"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["ENV=Rooms K3 v0"], "unknown environment id 'Rooms K3 v0'"),
        (["ENV=../../etc/passwd"], "unknown environment id '../../etc/passwd'"),
        (["ENV=Blackjack-v1", "AGENT=ppo", *TINY["ppo"].split()], "PPO cannot learn in Blackjack-v1"),
        (["RUN="], "RUN= is empty"),
        (["ENV=Rooms-\udcff"], "options must be UTF-8"),
    ],
)
def test_a_mistake_is_answered_in_one_line(options, reason, tmp_path, capsys):
    agent = next((option for option in options if option.startswith("AGENT=")), "")
    given = [*([f"RUN={tmp_path / 'run'}", "STEPS=8"] if agent else tiny(tmp_path / "run")), *options]
    assert reason in refused(capsys, train(given))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("place", ["file", "file/below", "dangling", "x" * 300, "closed/run"])
def test_a_folder_that_cannot_be_made_is_answered_in_one_line(place, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere" / "deep")
    (tmp_path / "closed").mkdir(mode=0o500)
    if place == "closed/run" and os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    for command in (train, evaluate, watch):
        given = tiny(tmp_path / place) if command is train else [f"RUN={tmp_path / place}"]
        assert str(tmp_path)[:20] in refused(capsys, command(given))


def test_a_folder_with_hidden_files_takes_a_run_and_one_with_others_does_not(tmp_path, capsys):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ".gitignore").write_text("*")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "notes.txt").write_text("mine")
    assert train(tiny(tmp_path / "a", steps=FRAMES)) == 0
    capsys.readouterr()
    assert "b is not empty; choose another RUN=" in refused(capsys, train(tiny(tmp_path / "b")))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[1, 2", "is not YAML"),
        ("\x00", "is not YAML"),
        ("just text", "is not the config of a run"),
        ("agent: impala\n", "was not written by this version of train, or was edited: KeyError('config')"),
        ("!!python/object/apply:os.system ['touch hacked']", "is not YAML"),
    ],
)
def test_a_config_that_was_edited_is_answered_in_one_line(content, reason, tmp_path, capsys):
    run = tmp_path / "run"
    assert train(tiny(run, steps=FRAMES)) == 0
    (run / "config.yaml").write_text(content)
    before = snapshot(run)
    capsys.readouterr()
    for command in (train, evaluate, watch):
        assert reason in refused(capsys, command([f"RUN={run}", *(["RESUME=1"] if command is train else [])]))
    assert snapshot(run) == before
    assert not Path("hacked").exists()


@pytest.mark.parametrize("agent", TINY)
def test_weights_that_do_not_fit_the_config_are_answered_in_one_line(agent, tmp_path, capsys):
    run = tmp_path / "run"
    assert train(tiny(run, agent=agent, steps=FRAMES)) == 0
    content = yaml.safe_load((run / "config.yaml").read_text())
    content["config"]["lstm" if agent == "impala" else "hidden"] = 16
    content["config"]["steps"] *= 4
    (run / "config.yaml").write_text(yaml.safe_dump(content))
    before = snapshot(run)
    capsys.readouterr()
    for command in (train, evaluate, watch):
        said = refused(capsys, command([f"RUN={run}", *(["RESUME=1"] if command is train else [])]))
        assert "does not fit the run's config.yaml" in said
    assert snapshot(run) == before


def test_a_seed_out_of_range_is_named(tmp_path, capsys):
    assert "seed must be" in refused(capsys, train(tiny(tmp_path / "run", "Rooms-K3-v0", "impala", f"SEED={2**70}")))
    assert "SEED must be" in refused(capsys, evaluate([f"RUN={tmp_path}", f"SEED={2**70}"]))


def test_fewer_steps_than_were_trained_are_refused(tmp_path, capsys):
    run = tmp_path / "run"
    assert train(tiny(run)) == 0
    capsys.readouterr()
    said = refused(capsys, train([f"RUN={run}", "RESUME=1", "STEPS=32"]))
    assert "is at frame 64, and STEPS is 32; to continue training, raise it: " in said


@pytest.mark.parametrize(
    ("command", "arguments", "reason"),
    [
        (reproduce, ["FIGURE=demo", "SEEDS=0"], "SEEDS must be a whole number of at least 1; got '0'"),
        (reproduce, ["FIGURE=demo", "CORES=x"], "CORES must be a whole number of at least 1; got 'x'"),
        (reproduce, ["FIGURE=nothing"], "unknown FIGURE=nothing; choose from all, counts"),
        (reproduce, ["SCALE=home"], "unknown FIGURE="),
        (reproduce, ["FIGURE=demo", "SCALE=paper"], "demo has no SCALE=paper; choose from home, smoke"),
        (reproduce, ["FIGURE=demo", "beta=3"], "not beta"),
        (reproduce, ["stray"], "expected NAME=value, got 'stray'"),
        (report, ["FIGURE=minihack", "SCALE=x"], "SCALE must be paper, home or smoke; got 'x'"),
        (heatmap.main, ["RUN=nowhere", "EPISODES=-5"], "EPISODES must be a whole number of at least 1; got '-5'"),
        (heatmap.main, ["RUN=nowhere", "SEED=-1"], "SEED must be a whole number from 0"),
    ],
)
def test_the_studies_answer_mistakes_in_one_line(command, arguments, reason, capsys):
    assert reason in refused(capsys, command(arguments))


@pytest.mark.parametrize(
    "value", ["my run", "a$x", "it's", 'say "no"', "back\\slash", "semi;colon", "$(HOME)", "[a, b]"]
)
def test_make_passes_options_on_as_they_were_typed(value, tmp_path):
    makefile = (ROOT / "Makefile").read_text().replace("@$(BIN)/python -m experiments.train", "@printf '<%s>'")
    (tmp_path / "Makefile").write_text(makefile.replace("train: $(STAMP)", "train:"))
    given = [f"RUN={value}", f"bonus.sees={value}", "PYTHON=x"]
    done = subprocess.run(["make", "-s", "-C", tmp_path, "train", *given], capture_output=True, text=True, check=True)
    assert sorted(done.stdout.strip("<>").split("><")) == sorted(given[:2])


@pytest.mark.parametrize(
    ("given", "needed"),
    [
        (["demo"], False),
        (["train", "ENV=Rooms-K4-v0", "engine=process", "learners=2"], False),
        (["reproduce", "FIGURE=demo"], False),
        (["train", "ENV=Rooms-K4-v0", "engine=ray"], True),
        (["train", "ENV=Rooms-K4-v0", "learners=2", "ray_address=head:6379"], True),
        (["reproduce", "FIGURE=demo", "CLUSTER=ray"], True),
        (["test"], True),  # of the engines
    ],
)
def test_make_installs_ray_only_where_it_is_asked_for(given, needed, tmp_path):
    for file in ("Makefile", "setup.cfg", "constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / file, tmp_path)
    plan = subprocess.run(["make", "-n", "-C", tmp_path, *given], capture_output=True, text=True, check=True).stdout
    assert "'.[all]'" in plan
    assert ("'.[ray]'" in plan) == needed
    extras = configparser.ConfigParser()
    extras.read(ROOT / "setup.cfg")
    assert "ray" not in re.split(r"[\[\],]", extras["options.extras_require"]["all"])


def test_the_commit_is_that_of_this_library_and_not_of_a_repository_around_it(tmp_path):
    """An installed copy inside a git repository of the user's."""
    copy = tmp_path / "project" / "venv" / "experiments"
    copy.mkdir(parents=True)
    (copy / "provenance.py").write_text((ROOT / "experiments" / "provenance.py").read_text())
    git = ["git", "-C", tmp_path / "project", "-c", "user.name=me", "-c", "user.email=me@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "mine"], check=True)
    script = "import sys; sys.path.insert(0, sys.argv[1]); import provenance; print(provenance.commit())"
    command = [sys.executable, "-c", script, str(copy)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "unknown"
    assert commit() != "unknown"


class Payload:
    """Runs code when a pickle that holds it is loaded."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self):
        return os.mkdir, (str(self._file),)


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (evaluate, "CHECKPOINT, EPISODES, GREEDY, RUN, SEED"),
        (watch, "CHECKPOINT, ENV, EPISODES, FPS, GREEDY, RECORD, RUN, SEED, STEPS"),
        (doctor, "CHECKPOINT, EPISODES, RUN, SEED"),
        (reproduce, "CLUSTER, CORES, DRY, FIGURE, METHODS, RAY_ADDRESS, RUNS, SCALE, SEEDS, TASKS"),
        (report, "FIGURE, KEEP, OUT, RUNS, SCALE"),
        (train, "AGENT, ENV, METHOD, NET, PRESET, RESUME, RUN, SEED, STEPS"),
    ],
)
def test_an_unknown_option_is_answered_with_those_that_the_command_takes(command, options, capsys):
    assert refused(capsys, command(["XYZQ=1"])) == f"error: unknown option XYZQ=1; choose from {options}.\n"


def test_two_spellings_of_one_option_are_refused(tmp_path, capsys):
    said = refused(capsys, train([*tiny(tmp_path / "run"), "beta=0.1", "bonus.beta=0.2"]))
    assert said == "error: beta and bonus.beta are the same option; write one of them\n"
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("agent", ["impala", "ppo"])
def test_a_checkpoint_whose_parts_do_not_fit_is_refused_before_training(agent, tmp_path, capsys):
    """Without the checksum, as files of earlier versions are; moments of another shape crashed the interpreter."""
    import torch

    run = tmp_path / "run"
    assert train(tiny(run, agent=agent, steps=FRAMES)) == 0
    *_, newest = sorted((run / "checkpoints").glob("checkpoint-*.pt"))
    saved = newest.read_bytes()
    learner = ("learner",) if agent == "impala" else ()
    explorer = (*learner, "explorer") if agent == "impala" else ("bonus",)
    optimizer = (*learner, "policy_optimizer") if agent == "impala" else ("model", "policy.optimizer")
    places = [(*learner, "updates"), (*explorer, "memory"), (*explorer, "memory", "count"), (*explorer, "mixer")]
    places += [(*optimizer, "state", 0, "step"), (*optimizer, "param_groups", 0, "lr"), (*explorer, "optimizer")]
    places += [("engine", "starts") if agent == "impala" else ("starts",), (*optimizer, "state", 0)]
    for *place, last in places:
        for value in ("abc", {}, {"square_avg": torch.zeros(3), "exp_avg": torch.zeros(3)}):
            newest.write_bytes(saved)
            content = torch.load(newest, weights_only=True)
            del content["checksum"]
            part = content["state"]
            for name in place:
                part = part[name]
            if last == 0 and not value:
                continue  # a weight that was never updated has no moments
            part[last] = value
            torch.save(content, newest)
            capsys.readouterr()
            assert newest.name in refused(capsys, train([f"RUN={run}", "RESUME=1", f"STEPS={2 * FRAMES}"])), (
                place,
                last,
            )


@pytest.mark.parametrize("agent", TINY)
def test_no_file_of_a_run_can_run_code(agent, tmp_path, capsys):
    import torch

    run, hacked = tmp_path / "run", tmp_path / "hacked"
    assert train(tiny(run, agent=agent, steps=FRAMES)) == 0
    for file in (run / "checkpoints").iterdir():
        content = torch.load(file, weights_only=True)
        content["state"]["extra"] = Payload(hacked)
        torch.save(content, file)
    capsys.readouterr()
    for command in (train, evaluate, watch):
        given = [f"RUN={run}", *(["RESUME=1", "STEPS=64"] if command is train else [])]
        assert "no checkpoint in" in refused(capsys, command(given))
    assert not hacked.exists()
    files = {file.name for file in run.rglob("*") if file.is_file() and not file.name.startswith("events.")}
    assert {Path(file).suffix for file in files} == {".pt", ".yaml", ".csv", ""}


@pytest.mark.parametrize("agent", TINY)
def test_a_resumed_agent_has_the_weights_and_the_bonus_of_its_checkpoint(agent, tmp_path):
    from experiments.runs import RunFolder
    from experiments.train import make_trainee

    run = tmp_path / "run"
    assert train(tiny(run, "Rooms-K3-v0", agent, "METHOD=e3b-x-rnd")) == 0
    folder = RunFolder(run)
    settings, _ = folder.load()
    first = make_trainee(settings, folder.checkpoints)
    first.save_into(tmp_path / "again")
    first.save(None, first.extra)
    second = make_trainee(settings, tmp_path / "again")
    states = [trainee_state(trainee) for trainee in (first, second)]
    assert first.frames == second.frames == 2 * FRAMES
    assert states[0].keys() == states[1].keys()
    for name, value in states[0].items():
        np.testing.assert_array_equal(value, states[1][name], err_msg=name)
    first.close()
    second.close()


def trainee_state(trainee) -> dict[str, np.ndarray]:
    """Weights of policy and bonus."""
    if hasattr(trainee.model, "learner"):
        learner = trainee.model.learner
        modules = {"policy": learner.policy, "bonus": learner.explorer.bonus}
    else:
        modules = {"policy": trainee.model.policy, "bonus": trainee.model.env.bonus}
    return {f"{name}.{key}": v.numpy() for name, part in modules.items() for key, v in part.state_dict().items()}


@pytest.mark.parametrize("agent", ["impala", "ppo"])
def test_a_bonus_that_needs_too_much_memory_is_refused_before_anything_is_written(agent, tmp_path, capsys):
    """5 TB of ellipses, which were allocated at the first step."""
    large = ["dim=200000", "n_envs=64", "bonus.hidden=1"]
    said = refused(capsys, train(tiny(tmp_path / "run", "Rooms-K3-v0", agent, *large)))
    assert "not enough memory" in said
    assert not (tmp_path / "run").exists()


def test_memory_that_runs_out_in_training_is_one_line_with_the_intact_checkpoint(tmp_path, capsys, monkeypatch):
    def exhausted(self, action):
        raise MemoryError("40 GB")

    monkeypatch.setattr("gymnasium.envs.classic_control.CartPoleEnv.step", exhausted)
    assert train(tiny(tmp_path / "run", "CartPole-v1", "ppo")) == 1
    said = capsys.readouterr().err
    assert "stopped at frame 0: not enough memory: 40 GB; choose smaller networks" in said
    assert "there is no checkpoint after frame 0 yet" in said
