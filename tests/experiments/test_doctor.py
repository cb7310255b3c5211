"""make doctor: a run of each agent is examined, and mistakes are answered in one line."""

import json
from pathlib import Path

import pytest
from tiny_runs import tiny

from experiments.doctor import examine, main
from experiments.runs import RunFolder
from experiments.train import main as train


def test_every_agents_run_is_examined(trained: Path, capsys):
    assert main([f"RUN={trained}", "EPISODES=6", "SEED=3"]) == 0
    printed = capsys.readouterr().out
    read = json.loads((trained / "doctor-latest-seed3.json").read_text())
    assert (trained / "doctor-latest-seed3.png").read_bytes().startswith(b"\x89PNG")
    assert printed.startswith(f"Rooms-K3-v0: e3b with {trained.name} after 64 steps\n6 episodes: ")
    assert len(printed.splitlines()) <= 40
    assert read["episodes"] == 6
    assert {"inverse_skill", "phi_rank", "bonus_to_goal", "explained_variance", "entropy"} <= {
        finding["name"] for finding in read["findings"]
    }
    assert {"ent_coef", "vf_coef", "encoder_learning_rate", "beta", "ridge"} <= set(read["options"])
    assert read["conclusion"] in " ".join(printed.split())


def test_the_same_seed_plays_the_same_episodes(trained: Path):
    one, two, other = (examine(RunFolder.existing(str(trained)), 4, seed) for seed in (0, 0, 1))
    assert one.as_dict() == two.as_dict()
    assert one.as_dict() != other.as_dict()


def test_two_value_heads_are_judged_one_by_one(tmp_path):
    run = tmp_path / "two"
    assert train(tiny(run, "Rooms-K3-v0", "impala", "value_heads=2", "intrinsic_gamma=0.9", "env.max_steps=10")) == 0
    diagnosis = examine(RunFolder.existing(str(run)), 2)
    labels = [finding.label for finding in diagnosis.findings if finding.name == "explained_variance"]
    assert [label[-6:] for label in labels] == ["head 0", "head 1"]
    assert diagnosis.setup.gammas == (0.99, 0.9)


@pytest.mark.parametrize("bootstrap", [True, False])
def test_returns_continue_behind_a_time_limit_where_the_learner_does_so(tmp_path, bootstrap):
    run = tmp_path / "run"
    option = f"bootstrap_truncated={str(bootstrap).lower()}"
    assert train(tiny(run, "Rooms-K3-v0", "impala", option, "env.max_steps=10")) == 0
    played = examine(RunFolder.existing(str(run)), 2).episodes
    assert all(episode.ending == "time limit" for episode in played)
    assert all((episode.bootstrap is not None) == bootstrap for episode in played)


def test_without_a_bonus_the_rest_is_reported(tmp_path):
    run = tmp_path / "none"
    assert train(tiny(run, "Rooms-K3-v0", "impala", "METHOD=none", "env.max_steps=10")) == 0
    diagnosis = examine(RunFolder.existing(str(run)), 2)
    assert "bonus_first" not in diagnosis
    assert "entropy" in diagnosis


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["RUN=nowhere"], "nowhere is not the folder of a run"),
        ([], None),
        (["EPISODES=3"], "RUN="),
    ],
)
def test_mistakes_are_answered_in_one_line(arguments, message, capsys):
    code = main(arguments)
    out, err = capsys.readouterr()
    if message is None:
        assert code == 0
        assert "make doctor RUN=" in out
    else:
        assert code == 2
        assert message in err
        assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize("wrong", ["EPISODES=0", "EPISODES=many", "CHECKPOINT=first", "GREEDY=1", "SEED=-1"])
def test_wrong_options_are_refused(trained: Path, wrong, capsys):
    assert main([f"RUN={trained}", wrong]) == 2
    assert wrong.split("=")[0].lower() in capsys.readouterr().err.lower()
