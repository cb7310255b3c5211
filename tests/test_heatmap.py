"""The heat map's arithmetic on an episode made by hand, and a whole picture from a policy that has hardly learned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from e3b_gym.bonuses import make_bonus
from e3b_gym.envs import rooms
from e3b_gym.envs.rooms import Layout
from experiments import heatmap
from experiments.train import main as train


def test_the_bonus_of_a_visit_is_relative_to_the_mean_of_all_steps() -> None:
    cells = np.array([[1, 1], [2, 1], [1, 1], [2, 1], [2, 2]])  # x, y
    episode = heatmap.Episode(Layout(np.ones((4, 4)), (2, 2), (3, 3)), cells, np.array([4.0, 1.0, 1.0, 2.0]))
    assert episode.new_cell.tolist() == [True, False, False, True]
    per_cell = episode.per_visit()  # [y, x]; the mean bonus of a step is 2
    assert per_cell[1, 2] == pytest.approx((4 + 1) / 2 / 2)
    assert (per_cell[1, 1], per_cell[2, 2]) == pytest.approx((0.5, 1.0))
    assert np.isnan(per_cell).sum() == 16 - 3


def test_the_command_draws_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, out = tmp_path / "run", tmp_path / "pictures" / "heat.png"
    small = ["n_envs=4", "n_steps=8", "batch_size=16", "STEPS=32", "env.clock=true"]
    assert train([f"RUN={run}", "ENV=Rooms-K3-v0", "AGENT=ppo", *small]) == 0
    assert heatmap.main([f"RUN={run}", "EPISODES=2", f"OUT={out}"]) == 0
    assert out.read_bytes().startswith(b"\x89PNG")
    assert heatmap.main([f"RUN={run}", "EPISODES=0"]) == 2
    assert "EPISODES must be a whole number of at least 1" in capsys.readouterr().err


def test_under_a_clock_the_count_is_1_at_every_step() -> None:
    options = {"clock": True, "flat": True}
    rooms_env = rooms.make("Rooms-K3-v0", **options)
    count = make_bonus("first-visit", rooms_env.observation_space, rooms_env.action_space, 1)
    episode, _ = heatmap.play("Rooms-K3-v0", options, count, seed=0, actions=[0] * 50)
    assert episode.bonus.tolist() == [1.0] * 50
