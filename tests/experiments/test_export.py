"""Exported agents: small, safe, the same policy; and those that come with the repository."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_runs import FRAMES, tiny

from agents import IMPALA, exported
from agents.checkpoint import CheckpointError, load_checkpoint
from agents.exported import TRAINED, is_exported, read_exported
from agents.networks import env_options_for
from agents.registry import AGENTS
from e3b_gym.envs import make_vec
from e3b_gym.envs.registry import suite_of
from e3b_gym.tensor_files import load_tensors, save_tensors
from experiments import trained as trained_module
from experiments.evaluate import main as evaluate
from experiments.export import forget_folders, kind_of, main
from experiments.players import load_player
from experiments.runs import RunFolder
from experiments.train import main as train
from experiments.trained import main as list_agents
from experiments.watch import main as watch

LIMIT = 3_000_000
"""Bytes of a file of weights in the repository, and five times that for all."""
SHIPPED = sorted(path.name for path in TRAINED.glob("*") if is_exported(path))


@pytest.fixture(scope="session")
def out(trained, tmp_path_factory) -> Path:
    """The exported agent of each tiny run."""
    folder = tmp_path_factory.mktemp("exported") / "Rooms-K3-v0"
    assert main([f"RUN={trained}", f"OUT={folder}", "EPISODES=4"]) == 0
    return folder


@pytest.fixture
def as_shipped(out, monkeypatch) -> Path:
    """The exported agent in the place of those that come with the repository."""
    monkeypatch.setattr(trained_module, "TRAINED", out.parent)
    return out


def test_the_exported_weights_are_those_of_the_run_in_float16(trained, out):
    settings, _ = RunFolder(trained).load()
    kind = kind_of(settings)
    whole, small = (load_checkpoint(path, kind, "latest").state for path in (trained / "checkpoints", out))
    places = [("learner", "policy"), ("learner", "explorer", "bonus")]
    if kind != "IMPALA":
        places = [("model", "policy"), ("bonus", "bonus")]
    for place in places:
        ours, theirs = whole, small
        for name in place:
            ours, theirs = ours[name], theirs[name]
        assert ours.keys() == theirs.keys()
        for name, weight in ours.items():
            close = torch.isclose(theirs[name], weight, rtol=1e-3, atol=1e-6)
            if "table" in name:  # of symbols, some of which never occurred
                close |= (theirs[name] == 0).all(-1, keepdim=True)
            assert bool(close.all()), name


def test_the_exported_agent_acts_as_the_run_does(trained, out):
    settings, _ = RunFolder(trained).load()
    envs = make_vec("Rooms-K3-v0", 16, **settings.config.env_options)
    spaces = envs.single_observation_space, envs.single_action_space
    obs, _ = envs.reset(seed=3)
    whole, small = (load_player(RunFolder(path), settings, "latest", spaces, greedy=True) for path in (trained, out))
    for _ in range(5):
        starts = np.zeros(16, np.bool_)
        whole.act(obs, starts), small.act(obs, starts)
        assert torch.allclose(whole.logits, small.logits, atol=2e-3)
        obs = envs.step(np.asarray(small.logits.argmax(1)))[0]
    envs.close()


def test_it_is_measured_with_what_is_on_disk(out, capsys):
    found = json.loads((out / "evaluation-latest-seed0.json").read_text())
    assert found["episodes"] == 4
    assert found["frames"] == 2 * FRAMES
    assert evaluate([f"RUN={out}", "EPISODES=4"]) == 0
    again = json.loads((out / "evaluation-latest-seed0.json").read_text())
    assert again["played"] == found["played"]


def test_recorded_commands_name_no_folder_of_this_machine(tmp_path):
    (tmp_path / "config.yaml").write_text("command: train RUN=/somewhere/else/run1 ENV=Rooms-K3-v0 OUT=runs/kept\n")
    forget_folders(tmp_path)
    assert (tmp_path / "config.yaml").read_text() == "command: train RUN=run1 ENV=Rooms-K3-v0 OUT=runs/kept\n"


def test_watch_plays_the_agent_of_an_id(as_shipped, capsys):
    assert watch(["ENV=Rooms-K3-v0", "EPISODES=1"]) == 0
    assert "after 64 frames" in capsys.readouterr().out


def test_an_id_without_an_agent_is_one_line_with_the_list(as_shipped, capsys):
    assert watch(["ENV=Rooms-K9-v0"]) == 2
    error = capsys.readouterr().err
    assert "no trained agent for ENV=Rooms-K9-v0" in error
    assert "only for Rooms-K3-v0" in error
    assert error.count("\n") == 1


def test_run_and_env_together_are_refused(as_shipped, capsys):
    assert watch([f"RUN={as_shipped}", "ENV=Rooms-K3-v0"]) == 2
    assert "leave out ENV=" in capsys.readouterr().err


def test_the_list_shows_what_was_measured(as_shipped, capsys):
    assert list_agents([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("Rooms-K3-v0")
    assert "success 0.000 [0.000, 0.490], 4 episodes" in lines[1]


def test_impala_loads_it_and_learns_on(out):
    if json.loads((out / "agent.json").read_text())["kind"] != "IMPALA":
        with pytest.raises(ValueError, match=r"holds a .*PPO agent, not IMPALA"):
            IMPALA.load(out)
        return
    model = IMPALA.load(out)
    assert model.num_timesteps == 2 * FRAMES
    weights = read_exported(out, "IMPALA")[0]["learner"]["policy"]
    assert all(torch.equal(value, weights[name]) for name, value in model.policy.state_dict().items())
    model.learn(FRAMES, reset_num_timesteps=False)
    assert model.num_timesteps == 3 * FRAMES
    assert not all(torch.equal(value, weights[name]) for name, value in model.policy.state_dict().items())


def test_an_exported_agent_does_not_resume(out, capsys):
    assert train([f"RUN={out}", "RESUME=1", "STEPS=1000"]) == 2
    assert "exported agent, without optimisers" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["policy.npz", "bonus.npz", "agent.json"])
def test_damage_is_one_line(name, out, tmp_path, capsys):
    folder = tmp_path / "copy"
    shutil.copytree(out, folder)
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2 :] = b""
    (folder / name).write_bytes(content)
    assert watch([f"RUN={folder}"]) == 2
    error = capsys.readouterr().err
    assert "is damaged, or was not written by `make export`" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("part", ["policy", "bonus", "weight"])
def test_a_checkpoint_with_odd_parts_is_not_exported(part, trained, tmp_path, capsys):
    run, new = tmp_path / "run", tmp_path / "new"
    shutil.copytree(trained, run)
    kind = kind_of(RunFolder(run).load()[0])
    for file in (run / "checkpoints").glob("*.pt"):
        content = load_tensors(file)
        policy, explorer = (exported._at(content["state"], place) for place in exported._PLACES[kind])
        if part == "policy":
            policy.clear()
        elif part == "bonus":
            del explorer["bonus"]
        else:
            policy[next(iter(policy))] = True
        save_tensors(file, content)
    assert main([f"RUN={run}", f"OUT={new}", "EPISODES=1"]) == 2
    error = capsys.readouterr().err
    assert "does not fit the run's config.yaml" in error
    assert error.count("\n") == 1
    assert not new.exists()


def test_files_that_would_run_code_are_refused(out, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(out, folder)
    np.savez(folder / "bonus.npz", weight=np.array([print], dtype=object))
    kind = json.loads((folder / "agent.json").read_text())["kind"]
    with pytest.raises(CheckpointError, match="allow_pickle"):
        load_checkpoint(folder, kind, "latest")


def test_symbols_that_never_occurred_take_no_space(tmp_path):
    run, small = tmp_path / "run", tmp_path / "small"
    options = ("NET=fast", "n_envs=2", "batch_size=8", "env.max_steps=6")
    assert train(tiny(run, "MiniHack-MultiRoom-N6-v0", "impala", *options)) == 0
    assert main([f"RUN={run}", f"OUT={small}", "EPISODES=2"]) == 0
    glyphs = read_exported(small, "IMPALA")[0]["learner"]["policy"]["trunk.glyphs.weight"]
    seen = glyphs.abs().sum(1) > 0
    assert 0 < int(seen.sum()) < 500
    whole = load_checkpoint(run / "checkpoints", "IMPALA", "latest").state["learner"]["policy"]["trunk.glyphs.weight"]
    before = AGENTS["impala"].initial_tables(RunFolder(run).load()[0].config)["policy"]["trunk.glyphs.weight"]
    assert torch.equal(seen, (whole != before).any(1))
    assert (small / "policy.npz").stat().st_size < LIMIT


def test_export_refuses_what_it_cannot_do(trained, out, tmp_path, capsys):
    assert main([f"RUN={trained}", f"OUT={out}"]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main([f"RUN={out}", f"OUT={tmp_path}/new"]) == 2
    assert "exported agent already" in capsys.readouterr().err
    assert train(["ENV=Rooms-K3-v0", "AGENT=random", f"RUN={tmp_path}/random"]) == 0
    assert main([f"RUN={tmp_path}/random", f"OUT={tmp_path}/new"]) == 2
    assert "AGENT=random cannot be exported" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_values_beyond_float16_stay_as_they_are():
    wide = torch.tensor([1e6, 1.0])
    assert exported._small(wide, None).dtype == np.float32
    assert exported._small(torch.ones(2), None).dtype == np.float16


@pytest.mark.parametrize("env", SHIPPED)
def test_an_agent_of_the_repository_is_small_measured_and_loads(env):
    folder = RunFolder(TRAINED / env)
    settings, parts = folder.load()
    assert settings.config.env == env
    assert re.fullmatch(r"[0-9a-f]{7,}", parts[-1]["commit"])
    assert all(file.stat().st_size <= LIMIT for file in folder.path.glob("*.npz"))
    _, value, episodes = trained_module.measured(folder)
    assert episodes >= 100
    assert value["low"] <= value["mean"] <= value["high"]
    load_checkpoint(folder.checkpoints, kind_of(settings), "latest")


@pytest.mark.parametrize("env", SHIPPED)
def test_an_agent_of_the_repository_plays(env):
    folder = RunFolder(TRAINED / env)
    settings, _ = folder.load()
    envs = make_vec(env, 2, **env_options_for(settings.config))
    spaces = envs.single_observation_space, envs.single_action_space
    player = load_player(folder, settings, "latest", spaces, greedy=False)
    obs, _ = envs.reset(seed=0)
    starts = np.ones(2, np.bool_)
    for _ in range(5):
        actions = player.act(obs, starts)
        assert torch.isfinite(player.logits).all()
        obs, _, terminated, truncated, _ = envs.step(np.asarray(actions))
        starts = terminated | truncated
    envs.close()


def test_the_agents_of_the_repository_are_five_of_three_suites_in_15_mb():
    assert len(SHIPPED) >= 5
    assert len({suite_of(env).name for env in SHIPPED}) >= 3
    assert sum(file.stat().st_size for file in TRAINED.rglob("*") if file.is_file()) <= 5 * LIMIT
