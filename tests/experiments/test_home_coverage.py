"""Coverage of unseen homes: the same homes for all, honest intervals, pictures; and the presets that lead there."""

import json
import shutil

import numpy as np
import pytest
import yaml
from tiny_runs import tiny

from agents.registry import AGENTS
from e3b_gym.bonuses import METHODS
from e3b_gym.envs import make
from experiments.coverage import cover, main, read_runs
from experiments.coverage_pictures import Sight, bar_kinds, draw_trajectories
from experiments.coverage_play import play, spread
from experiments.intervals import bootstrap
from experiments.presets import presets_of
from experiments.settings import resolve
from experiments.train import main as train
from experiments.watch import main as watch

HOMES = "Habitat-FloorPlan-v0"
RUNS = {"impala": "e3b", "recurrent_ppo": "noveld-subsampled"}
ENV_OPTIONS = ("env.size=32", "env.max_steps=12")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A tiny run of E3B with IMPALA, one of NovelD with recurrent PPO, and a random one."""
    folder = tmp_path_factory.mktemp("homes")
    paths = {}
    for agent, method in RUNS.items():
        paths[agent] = folder / agent
        assert train(tiny(folder / agent, HOMES, agent, f"METHOD={method}", *ENV_OPTIONS)) == 0
    paths["random"] = folder / "random"
    assert train([f"ENV={HOMES}", "AGENT=random", f"RUN={paths['random']}", *ENV_OPTIONS]) == 0
    return paths


@pytest.fixture(scope="module")
def report(runs, tmp_path_factory):
    """What coverage writes about the runs."""
    out = tmp_path_factory.mktemp("report")
    arguments = ["RUNS=" + " ".join(map(str, runs.values())), "EPISODES=3", "MAX_STEPS=20", f"OUT={out}"]
    assert main(arguments) == 0
    return out


def paper(method):
    return resolve("recurrent_ppo", "paper", {"env": HOMES, "method": method}).config


@pytest.mark.parametrize("method", ["e3b", "icm", "rnd", "noveld-subsampled"])
def test_the_papers_common_table(method):
    table = {
        "clip_range": 0.2,
        "n_epochs": 2,
        "batch_size": 256,
        "vf_coef": 0.5,
        "ent_coef": 0.00005,
        "learning_rate": 0.00025,
        "max_grad_norm": 0.2,
        "n_steps": 128,
        "gamma": 0.99,
        "gae_lambda": 0.95,
        "normalize_advantage": False,
        "hidden": 0,  # the table's 512 is the LSTM's
        "steps": 225_000_000,
        "net": "paper",
        "encoder_epochs": 3,
        "encoder_learning_rate": 0.00025,
    }
    config = paper(method)
    assert {name: getattr(config, name) for name in table} == table
    assert config.encoder_batch_size == config.n_envs * config.n_steps  # an update sees the whole rollout
    assert (config.bonus.beta, config.bonus.extrinsic) == (0.1, 0.0)


@pytest.mark.parametrize(
    ("method", "options"),
    [("e3b", {"ridge": 0.1}), ("noveld-subsampled", {"alpha": 0.1}), ("icm", {"forward_coef": 1.0}), ("rnd", {})],
)
def test_the_papers_table_of_each_method(method, options):
    bonus = paper(method).bonus.options
    assert {name: bonus[name] for name in options} == options


def test_every_preset_is_reward_free_for_every_agent_and_method():
    for preset, agents in presets_of(HOMES).items():
        assert preset == "paper" or set(agents) == {name for name, agent in AGENTS.items() if agent.trainer is not None}
        for agent in agents:
            for method in METHODS:
                assert resolve(agent, preset, {"env": HOMES, "method": method}).config.bonus.extrinsic == 0


@pytest.mark.parametrize("agent", ["random", "random-forward"])
def test_random_agents_are_not_offered_to_stop_unless_asked_for(agent):
    given = {"env": HOMES}
    assert resolve(agent, "home", given).config.env_options["allow_stop"] is False
    assert resolve(agent, "home", {**given, "env.allow_stop": "true"}).config.env_options["allow_stop"]


def test_a_random_agent_is_the_same_as_a_run_and_next_to_one(runs, tmp_path, capsys):
    forward = tmp_path / "forward"
    assert train([f"ENV={HOMES}", "AGENT=random-forward", f"RUN={forward}", "env.size=16"]) == 0
    assert f"next: make homes RUNS={forward}" in capsys.readouterr().out
    chosen_runs, both = (
        cover([str(path) for path in paths], 2, "val", 0, tmp_path / "out", max_steps=15, pictures=0)["agents"]
        for paths in ([runs["impala"]], [runs["random"], forward])
    )
    assert [agent["agent"] for agent in chosen_runs] == ["E3B", "Random", "Random, forward 0.8"]
    assert [agent["agent"] for agent in both] == ["Random", "Random, forward 0.8"]  # once, although always there
    assert [agent["played"] for agent in both] == [agent["played"] for agent in chosen_runs[1:]]
    assert [agent["method"] for agent in both] == ["random", "random-forward"]


def test_a_run_is_watched_with_the_actions_that_it_has(runs, capsys):
    assert watch([f"RUN={runs['random']}", "EPISODES=1"]) == 0
    shown = capsys.readouterr().out
    assert "move_forwa" in shown  # the column is ten characters wide
    assert "stop" not in shown


class Script:
    """Environment i does the i-th list of actions, from the start of its episode."""

    def __init__(self, *actions):
        self._actions, self._step = actions, 0

    def act(self, obs, starts):
        self._step = 0 if starts.all() else self._step + 1
        return np.array([actions[min(self._step, len(actions) - 1)] for actions in self._actions])


def test_an_episode_that_stops_early_ends_there_and_the_others_continue():
    envs = [make(HOMES, size=32, split="val", max_steps=6, coverage=True) for _ in range(2)]
    stop, left = 0, 2
    played = list(play(envs, Script([left, stop], [left]), episodes=[0, 1, 2], pictures=1))
    assert [episode.length for episode in played] == [2, 6, 2]
    assert [episode.home.split("-")[-1] for episode in played] == ["0800", "0801", "0802"]  # different homes
    assert [episode.sight is not None for episode in played] == [True, False, False]
    assert all(0 < episode.coverage < 1 for episode in played)
    sight = played[0].sight
    assert sight.path.shape == (3, 2)
    assert np.count_nonzero(sight.areas == 2) / np.count_nonzero(sight.areas) == pytest.approx(sight.coverage)


def test_episodes_are_spread_over_homes_however_the_split_is_ordered():
    assert spread(["a", "a", "a", "b", "b", "c"], 6) == [0, 3, 5, 1, 4, 2]
    assert spread(["a", "a", "a", "b", "b", "c"], 4) == [0, 3, 5, 1]
    assert spread(make(HOMES, size=32, split="val").scenes, 150) == list(range(150))  # generated homes take turns


def test_the_report_has_every_agent_in_the_same_homes_with_its_interval(report, runs):
    found = json.loads((report / "coverage.json").read_text())
    assert [agent["agent"] for agent in found["agents"]] == ["E3B", "NovelD", "Random", "Random, forward 0.8"]
    homes = [[home for home, _, _ in agent["played"]] for agent in found["agents"]]
    assert len(set(homes[0])) == 3
    assert all(others == homes[0] for others in homes)
    for agent in found["agents"]:
        values = [share for _, share, _ in agent["played"]]
        assert agent["coverage"]["mean"] == pytest.approx(np.mean(values))
        assert (agent["coverage"]["low"], agent["coverage"]["high"]) == pytest.approx(bootstrap(values))
        assert agent["mean_length"] == 20  # the same for all, whatever a run was trained with
    for agent, path in zip(found["agents"], runs.values(), strict=False):
        saved = yaml.safe_load((path / "config.yaml").read_text())
        assert agent["config"] == saved["config"]
        assert agent["commits"] == [part["commit"] for part in saved["provenance"]]
        frames = 0 if agent["method"] == "random" else 64
        assert (agent["run"], agent["frames"], agent["seed"]) == (str(path), frames, 0)


def test_the_report_comes_with_pictures(report):
    for name in ("coverage.png", "trajectories.png"):
        assert (report / name).read_bytes().startswith(b"\x89PNG")


def test_a_random_run_is_not_counted_as_trained(report):
    agents = json.loads((report / "coverage.json").read_text())["agents"]
    assert "run" in agents[2]
    assert [kind.get_label() for kind in bar_kinds(agents)] == ["trained without reward, 64 frames", "random actions"]
    assert [kind.get_label() for kind in bar_kinds(agents[2:])] == ["random actions"]


def test_a_measurement_can_be_repeated_and_the_seed_draws_other_actions(runs, tmp_path, capsys):
    def shares(seed):
        capsys.readouterr()
        found = cover([str(runs["impala"])], 2, "val", seed, tmp_path, max_steps=15, pictures=0)
        return [agent["played"] for agent in found["agents"]]

    first, again, other = shares(0), shares(0), shares(1)
    assert first == again
    assert first != other
    assert not (tmp_path / "trajectories.png").exists()
    assert "trajectories.png" not in capsys.readouterr().out


def test_runs_of_one_method_are_distinguished(runs, tmp_path):
    other, twin = tmp_path / "other", tmp_path / "twin"
    shutil.copytree(runs["impala"], other)
    shutil.copytree(runs["impala"], twin)
    config = (other / "config.yaml").read_text()
    (other / "config.yaml").write_text(config.replace("  seed: 0", "  seed: 7"))

    def titles(*paths):
        return [agent.title for agent in read_runs([str(path) for path in paths])]

    assert titles(runs["impala"], runs["recurrent_ppo"]) == ["E3B", "NovelD"]
    assert titles(runs["impala"], other) == ["E3B, impala, seed 0", "E3B, impala, seed 7"]
    assert titles(twin, runs["impala"])[0] == f"E3B, impala, seed 0, {twin}"
    with pytest.raises(ValueError, match="twice"):
        titles(twin, twin)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["SPLIT=attic"], "unknown split 'attic'; choose from train, val, test"),
        (["EPISODES=0"], "EPISODES must be a whole number of at least 1"),
        (["EPISODES=100000"], "val has 500 episodes"),
        (["MAX_STEPS=0"], "MAX_STEPS must be a whole number of at least 1"),
        (["SEED=-1"], "SEED must be a whole number from 0"),
        (["PICTURES=-1"], "PICTURES must be a whole number, 0 or more"),
    ],
)
def test_mistakes_are_answered_in_one_line(options, reason, runs, tmp_path, capsys):
    assert main([f"RUNS={runs['impala']}", f"OUT={tmp_path}", *options]) == 2
    assert reason in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


def test_a_file_in_place_of_the_folder_is_noticed_before_anything_is_played(runs, tmp_path, capsys):
    (tmp_path / "out").write_text("")
    assert main([f"RUNS={runs['impala']}", f"OUT={tmp_path / 'out'}"]) == 2
    said = capsys.readouterr()
    assert "OUT must be a folder" in said.err
    assert not said.out


def test_what_is_no_run_in_habitat_is_refused(runs, tmp_path, capsys):
    assert main([f"RUNS={tmp_path / 'nowhere'}"]) == 2
    assert "not the folder of a run" in capsys.readouterr().err
    assert train(tiny(tmp_path / "rooms")) == 0
    assert main([f"RUNS={runs['impala']} {tmp_path / 'rooms'}"]) == 2
    assert "is a run in Rooms-K3-v0; coverage is measured in Habitat" in capsys.readouterr().err
    assert main([f"RUNS={runs['impala']}", "CHECKPOINT=first", "EPISODES=1", f"OUT={tmp_path}"]) == 2
    assert "CHECKPOINT must be latest or best; got 'first'" in capsys.readouterr().err
    assert main(["EPISODES=1"]) == 2
    assert "RUNS= is missing" in capsys.readouterr().err


def test_one_run_can_be_measured_without_the_random_agents(runs, tmp_path):
    assert main([f"RUNS={runs['impala']}", "RANDOM=0", "EPISODES=1", "MAX_STEPS=5", f"OUT={tmp_path}"]) == 0
    (agent,) = json.loads((tmp_path / "coverage.json").read_text())["agents"]
    assert agent["method"] == "e3b"


def test_a_home_is_drawn_with_its_path(tmp_path):
    areas = np.zeros((20, 30), np.uint8)
    areas[5:15, 5:25] = 1
    areas[5:10, 5:15] = 2
    sight = Sight("home", areas, np.array([[6.0, 6.0], [8.0, 12.0]]), 0.25)
    draw_trajectories({"one": [sight], "other": [sight]}, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 1000


@pytest.mark.slow
@pytest.mark.parametrize("method", ["e3b", "icm", "rnd", "noveld-subsampled"])
@pytest.mark.parametrize("agent", AGENTS)
def test_every_method_trains_with_every_agent(method, agent, tmp_path):
    assert train(tiny(tmp_path / "run", HOMES, agent, f"METHOD={method}", *ENV_OPTIONS)) == 0


@pytest.mark.slow
def test_the_papers_preset_trains(tmp_path):
    small = [
        "n_envs=2",
        "n_steps=8",
        "batch_size=8",
        "encoder_batch_size=16",
        "STEPS=32",
        "env.size=64",
        "env.max_steps=12",
    ]
    options = [f"ENV={HOMES}", "AGENT=recurrent_ppo", "PRESET=paper", f"RUN={tmp_path / 'run'}", *small]
    assert train(options) == 0
