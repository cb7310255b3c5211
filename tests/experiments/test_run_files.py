"""What a command reads back of a run: a file that is damaged or edited is one line with its name, and runs no code."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from made_runs import make_folder
from test_commands import Payload, refused, snapshot
from tiny_runs import tiny

from agents.exported import read_exported
from e3b_gym.errors import DamagedFileError
from experiments.catalogue import STUDIES
from experiments.doctor import main as doctor
from experiments.evaluate import main as evaluate
from experiments.expected import expected
from experiments.export import main as export
from experiments.report import main as report
from experiments.reproduce import main as reproduce
from experiments.run_files import read_coverage, read_evaluation
from experiments.settings import resolve
from experiments.train import main as train
from experiments.trained import main as agents
from experiments.watch import main as watch

EVALUATION = "evaluation-latest-seed0.json"
BYTES = [b"", b'{"a":', b"\0" * 9, b"[]", b"3", b"\xff\xfe", b"[" * 100_000, b"!!python/object/apply:os.mkdir [hacked]"]
ESTIMATE = {"mean": 0.5, "low": 0.4, "high": 0.6}
EDITS = [{"success": "x"}, {"success": {"mean": 0.5}}, {"success": {**ESTIMATE, "mean": float("nan")}}]
EDITS += [{"frames": "x"}, {"frames": 10**30}, {"frames": None}, {"episodes": -1}, {"return": 3}]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """Two runs of a study with an evaluation."""
    root = tmp_path_factory.mktemp("made")
    for run in STUDIES["minihack"].runs("home"):
        if run.task.env == "MiniHack-MultiRoom-N6-Lava-v0" and run.method.method in ("e3b", "none"):
            make_folder(root, run, 0.5)
    return root


@pytest.fixture
def runs(made, tmp_path) -> Path:
    shutil.copytree(made, tmp_path / "runs")
    return tmp_path / "runs"


def reported(runs: Path, capsys) -> str:
    """The line of `make report`, which has changed nothing."""
    before = snapshot(runs.parent)
    said = refused(capsys, report(["FIGURE=minihack", f"RUNS={runs}", f"OUT={runs.parent / 'out'}"]))
    assert snapshot(runs.parent) == before
    assert not Path("hacked").exists()
    return said


@pytest.mark.parametrize("content", BYTES)
@pytest.mark.parametrize("name", [EVALUATION, "config.yaml"])
def test_a_report_names_the_file_that_is_damaged(name, content, runs, capsys):
    file = next(runs.rglob(name))
    file.write_bytes(content)
    assert f"error: {file} " in reported(runs, capsys)


@pytest.mark.parametrize("edit", EDITS)
def test_a_report_names_the_evaluation_that_was_edited(edit, runs, capsys):
    file = next(runs.rglob(EVALUATION))
    file.write_text(json.dumps(json.loads(file.read_text()) | edit))
    assert f"error: {file} was not written by `make evaluate`, or was edited; remove it" in reported(runs, capsys)


@pytest.mark.parametrize("parts", [None, 3, "x", [3], [{}]])
def test_a_report_names_the_config_whose_origin_was_edited(parts, runs, capsys):
    file = next(runs.rglob("config.yaml"))
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), "provenance": parts}))
    assert f"error: {file}: provenance must list parts" in reported(runs, capsys)


def test_a_file_that_is_a_folder_is_one_line(runs, capsys):
    file = next(runs.rglob(EVALUATION))
    file.unlink()
    file.mkdir()
    assert "is a directory" in reported(runs, capsys)


@pytest.mark.parametrize("command", [report, reproduce])
@pytest.mark.parametrize("option", ["RUNS=", "OUT="])
def test_an_empty_folder_is_not_the_working_directory(command, option, capsys):
    if command is report or option == "RUNS=":
        assert f"{option} is empty; give a folder" in refused(capsys, command(["FIGURE=demo", option]))


@pytest.mark.parametrize(
    "content", [*BYTES, b"{}", b'{"episodes": 3, "agents": []}', b'{"episodes": 3, "agents": [{}]}']
)
@pytest.mark.parametrize("read", [read_coverage, read_evaluation])
def test_measurements_are_checked(read, content, tmp_path):
    file = tmp_path / "file.json"
    file.write_bytes(content)
    with pytest.raises(DamagedFileError, match="remove it"):
        read(file)


@pytest.mark.parametrize("content", [b"{", b"[]", json.dumps({"frames": 1, "episodes": 1, "success": 7}).encode()])
def test_training_starts_next_to_a_stored_evaluation_that_is_damaged(content, tmp_path):
    settings = resolve("ppo", "home", {"env": "Rooms-K3-v0"})
    folder = tmp_path / "home" / "Rooms-K3-v0" / "e3b-seed0"
    assert train(tiny(folder, "Rooms-K3-v0", "ppo", steps=32)) == 0
    (folder / EVALUATION).write_bytes(content)
    assert expected(settings, tmp_path) is None


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> Path:
    """An exported agent of a tiny run, in a folder of agents."""
    folder = tmp_path_factory.mktemp("exported")
    assert train(tiny(folder / "run", "Rooms-K3-v0", "ppo", "env.max_steps=5", steps=32)) == 0
    assert export([f"RUN={folder / 'run'}", f"OUT={folder / 'agents' / 'Rooms-K3-v0'}", "EPISODES=1"]) == 0
    return folder / "agents"


@pytest.fixture
def agent(exported, tmp_path, monkeypatch) -> Path:
    shutil.copytree(exported, tmp_path / "agents")
    monkeypatch.setattr("experiments.trained.TRAINED", tmp_path / "agents")
    return tmp_path / "agents" / "Rooms-K3-v0"


@pytest.mark.parametrize("content", BYTES)
@pytest.mark.parametrize("name", ["agent.json", "config.yaml", EVALUATION])
def test_the_list_of_agents_names_the_file_that_is_damaged(name, content, agent, capsys):
    (agent / name).write_bytes(content)
    assert name in refused(capsys, agents([]))
    assert not Path("hacked").exists()


def test_the_list_of_agents_takes_no_options(agent, capsys):
    assert agents([]) == 0
    assert "Rooms-K3-v0" in capsys.readouterr().out
    assert "unknown option ENV=x" in refused(capsys, agents(["ENV=x"]))
    (agent / EVALUATION).unlink()
    assert EVALUATION in refused(capsys, agents([]))


@pytest.mark.parametrize(
    "edit", [{"frames": "x"}, {"frames": 10**30}, {"scale": 3}, {"scale": {"count": float("inf")}}, {"kind": None}]
)
@pytest.mark.parametrize("command", [evaluate, watch, doctor])
def test_an_exported_agent_that_was_edited_is_one_line(command, edit, agent, capsys):
    about = json.loads((agent / "agent.json").read_text())
    (agent / "agent.json").write_text(json.dumps(about | edit))
    assert str(agent) in refused(capsys, command([f"RUN={agent}", "EPISODES=1"]))


@pytest.mark.parametrize("name", ["policy", "bonus"])
def test_an_exported_agent_can_run_no_code(name, agent, tmp_path, capsys):
    np.savez(agent / f"{name}.npz", weights=np.array(Payload(tmp_path / "hacked"), dtype=object))
    for command in (evaluate, watch, doctor):
        said = refused(capsys, command([f"RUN={agent}", "EPISODES=1"]))
        assert f"{name}.npz is damaged, or was not written by `make export`" in said
    with pytest.raises(DamagedFileError):
        read_exported(agent, "PPO")
    assert not (tmp_path / "hacked").exists()


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        (f"STEPS={10**400}", "steps must be a whole number of at least 1, below 2**63"),
        ("STEPS=1e300", "below 2**63"),
        (f"beta={10**400}", "beta must be a number, 0 or more"),
        (f"keep={10**30}", "keep must be a whole number of at least 1, below 2**63"),
        ("n_envs=1e9", "n_envs must be a whole number from 1 to 65536"),
        (f"n_envs={10**30}", "n_envs must be a whole number from 1 to 65536"),
        ("n_steps=1e8", "n_steps * n_envs must be at most 67,108,864; got 100,000,000 * 4"),
        ("threads=99999999999", "threads must be a whole number from 1 to 4096"),
        (f"dim={2**62}", "dim must be a whole number from 1 to 2**24 or None"),
        (f"bonus.hidden={2**62}", "hidden must be a whole number from 1 to 2**24"),
    ],
)
@pytest.mark.parametrize("agent", ["impala", "ppo"])
def test_a_number_that_is_far_too_large_is_named(agent, option, reason, tmp_path, capsys):
    assert reason in refused(capsys, train(tiny(tmp_path / "run", "Rooms-K3-v0", agent, option)))
    assert not (tmp_path / "run").exists()
