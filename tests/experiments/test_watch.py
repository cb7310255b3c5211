"""Watching: the agent's environment with its bonus, as text or as a video."""

import subprocess

import imageio.v3 as imageio
import numpy as np
import pytest
import torch
from imageio_ffmpeg import get_ffmpeg_exe
from tiny_runs import FRAMES, TINY, tiny

from agents.checkpoint import CheckpointStore
from e3b_gym.envs.play import CLEAR
from experiments.players import load_player
from experiments.runs import RunFolder
from experiments.train import main as train
from experiments.watch import STRIP, Scene, Step, Viewer, arranged, main, panel, side_by_side, with_strip

SUITES = {
    "minihack": ("MiniHack-LavaCross-Restricted-v0", "impala", "e3b"),
    "minigrid": ("MiniGrid-MultiRoom-N2-S4-v0", "recurrent_ppo", "e3b-policy"),
    "vizdoom": ("VizdoomMyWayHomeSparse-v0", "impala", "agac"),
}


@pytest.fixture(scope="module")
def suites(tmp_path_factory):
    """A tiny run in each suite, made when first asked for."""
    folder, made = tmp_path_factory.mktemp("suites"), {}

    def run(suite):
        if suite not in made:
            env, agent, method = SUITES[suite]
            options = [f"METHOD={method}", "n_envs=2", "env.max_steps=6", "batch_size=8"]
            assert train(tiny(folder / suite, env, agent, *options, steps=FRAMES)) == 0
            made[suite] = folder / suite
        return made[suite]

    return run


def test_every_agent_is_shown_with_its_bonus(trained, capsys):
    assert main([f"RUN={trained}", "EPISODES=2"]) == 0
    out = capsys.readouterr().out
    assert "episode 2" in out
    assert out.count("time limit") == 2
    assert "@" in out  # the agent on Rooms' map
    assert "█" in out
    assert "after 64 frames" in out


def test_a_terminal_says_what_it_waits_for(trained, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main([f"RUN={trained}", "EPISODES=1", "FPS=1000"]) == 0
    before, *scenes = capsys.readouterr().out.split(CLEAR)
    assert before.startswith(f"loading {trained}")
    assert len(scenes) > 1


@pytest.mark.parametrize("suite", ["minihack", "minigrid"])
def test_environments_that_render_text_are_shown_with_the_bonus(suite, suites, capsys):
    assert main([f"RUN={suites(suite)}", "EPISODES=1"]) == 0
    out = capsys.readouterr().out
    assert "step  action" in out
    assert "█" in out


def test_pictures_become_half_blocks(suites, capsys):
    assert main([f"RUN={suites('vizdoom')}", "EPISODES=1"]) == 0
    assert "▀" in capsys.readouterr().out


@pytest.mark.parametrize(("suite", "ending"), [("vizdoom", "gif"), ("minihack", "mp4"), ("minigrid", "gif")])
def test_any_suite_can_be_filmed(suite, ending, suites, tmp_path, capsys):
    film, run = tmp_path / f"film.{ending}", suites(suite)
    capsys.readouterr()  # what training said, if this test is the first to need the run
    assert main([f"RUN={run}", "EPISODES=1", f"RECORD={film}"]) == 0
    count = int(capsys.readouterr().out.split()[0])
    if ending == "gif":
        assert 0 < len(imageio.imread(film)) <= count  # a GIF merges pictures that are alike
    else:
        decode = [get_ffmpeg_exe(), "-v", "error", "-i", str(film), "-f", "framemd5", "-"]
        frames_found = subprocess.run(decode, capture_output=True, check=True, text=True).stdout
        assert len([line for line in frames_found.splitlines() if not line.startswith("#")]) == count


def test_an_episode_is_shown_up_to_a_step(trained, tmp_path, capsys):
    assert main([f"RUN={trained}", "EPISODES=2", "STEPS=2"]) == 0
    assert capsys.readouterr().out.count("after 64 frames") == 2 * 3  # a reset and two steps
    assert main([f"RUN={trained}", "STEPS=0"]) == 2
    assert "STEPS" in capsys.readouterr().err


def test_a_films_ending_must_be_known(trained, capsys):
    assert main([f"RUN={trained}", "RECORD=film.avi"]) == 2
    assert ".gif or .mp4" in capsys.readouterr().err


def test_an_environment_of_another_package_is_shown_as_it_renders_itself(tmp_path, capsys):
    run = tmp_path / "run"
    assert train(tiny(run, "FrozenLake-v1", "ppo", steps=FRAMES)) == 0
    assert main([f"RUN={run}", "EPISODES=1"]) == 0
    assert "SFFF" in capsys.readouterr().out


def test_an_environment_that_cannot_be_recorded_is_refused(tmp_path, capsys, monkeypatch):
    run = tmp_path / "run"
    assert train(tiny(run, "FrozenLake-v1", "ppo", steps=FRAMES)) == 0
    monkeypatch.setattr("gymnasium.envs.toy_text.FrozenLakeEnv.metadata", {"render_modes": ["ansi"]})
    assert main([f"RUN={run}", f"RECORD={tmp_path}/film.gif"]) == 2
    assert "renders ansi; this needs rgb_array" in capsys.readouterr().err


def test_the_bonus_shown_is_the_learned_one(tmp_path):
    run = RunFolder(tmp_path / "run")
    assert train(tiny(run.path)) == 0
    learned = CheckpointStore(run.checkpoints).load_latest().state["learner"]["explorer"]
    viewer = Viewer(run, "latest", ("ansi",), greedy=False, seed=0)
    shown = viewer._explorer
    for name, weights in shown.bonus.state_dict().items():
        assert torch.equal(weights, learned["bonus"][name]), name
    assert shown.mixer.state_dict() == learned["mixer"]
    steps = list(viewer.scenes([5]))[-1].steps
    assert steps[0].bonus > steps[-1].bonus >= 0


@pytest.mark.parametrize("agent", TINY)
def test_the_same_seed_shows_the_same_episode(agent, tmp_path):
    run = RunFolder(tmp_path / "run")
    assert train(tiny(run.path, "Rooms-K3-v0", agent, "env.max_steps=10", steps=FRAMES)) == 0
    one, two = (list(Viewer(run, "latest", ("ansi",), False, 1).scenes([7]))[-1].steps for _ in range(2))
    assert one == two


def test_a_greedy_player_takes_the_most_probable_action(tmp_path):
    run = RunFolder(tmp_path / "run")
    assert train(tiny(run.path)) == 0
    settings, _ = run.load()
    viewer = Viewer(run, "latest", ("ansi",), greedy=True, seed=0)
    player = load_player(
        run, settings, "latest", (viewer._env.observation_space, viewer._env.action_space), greedy=True
    )
    obs, _ = viewer._env.reset(seed=0)
    action = player.act({name: np.array(value)[None] for name, value in obs.items()}, np.ones(1, bool))
    assert action[0] == player.logits[0].argmax()


def test_texts_stand_side_by_side_whatever_their_colours():
    left = "\x1b[31mab\nabcd"
    assert side_by_side(left, "1\n2\n3").split("\n") == ["\x1b[31mab\x1b[0m     1", "abcd   2", "       3"]


def test_in_a_narrow_terminal_the_panel_stands_below():
    scene = Scene("", 1, [Step("north", 0.0, 1.0)] * 30)
    wide, narrow = (arranged("x" * 60, scene, columns, 24) for columns in (130, 80))
    assert "step" in wide.split("\n")[0]
    assert narrow.split("\n")[0].startswith("x" * 60)
    assert "step" in narrow.split("\n")[1]
    assert len(narrow.split("\n")) == 22  # of 24 lines, with the title above


def test_the_panel_shows_the_latest_steps_and_their_share():
    steps = [Step("north", 0.0, float(b)) for b in range(30)] + [Step("east", 1.0, 40.0, "success")]
    lines = panel(Scene("", 1, steps), 10).split("\n")
    assert len(lines) == 10
    assert lines[-2].split() == ["31", "east", "1", "40", "█" * 16, "success"]
    assert lines[1].startswith("  24")
    assert lines[-1].split() == ["return", "1"]


def test_a_films_strip_grows_with_the_bonus():
    image = np.zeros((64, 64, 3), np.uint8)
    filmed = with_strip(image, [1.0, 2.0])
    assert filmed.shape == (64 + STRIP, 64, 3)
    low, high = ((filmed[64:, 4 * i] == (240, 160, 40)).all(-1).sum() for i in (0, 1))
    assert high == 2 * low > 0
    assert with_strip(image, []).shape == filmed.shape
