"""The heat map's arithmetic on an episode made by hand, and a whole picture from a policy that has hardly learned."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from e3b_gym.envs.rooms import Layout
from experiments import heatmap


def test_what_a_visit_paid_is_relative_to_the_average_step() -> None:
    cells = np.array([[1, 1], [2, 1], [1, 1], [2, 1], [2, 2]])  # x, y
    episode = heatmap.Episode(Layout(np.ones((4, 4)), (2, 2), (3, 3)), cells, np.array([4.0, 1.0, 1.0, 2.0]))
    assert episode.new_cell.tolist() == [True, False, False, True]
    paid = episode.per_visit()  # [y, x]; the average step paid 2
    assert paid[1, 2] == pytest.approx((4 + 1) / 2 / 2)
    assert (paid[1, 1], paid[2, 2]) == pytest.approx((0.5, 1.0))
    assert np.isnan(paid).sum() == 16 - 3


def test_the_command_draws_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "pictures" / "heat.png"
    command = ["heatmap", "--env", "Rooms-K3-v0", "--steps", "1", "--episodes", "2", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", command)
    heatmap.main()
    assert out.read_bytes().startswith(b"\x89PNG")


def test_under_a_clock_the_count_pays_every_step() -> None:
    from e3b_gym.bonuses import make_bonus
    from e3b_gym.envs import rooms

    world = rooms.make("Rooms-K3-v0", **heatmap.WORLD)
    count = make_bonus("first-visit", world.observation_space, world.action_space, 1)
    episode, _ = heatmap.play("Rooms-K3-v0", count, seed=0, actions=[0] * 50)
    assert episode.bonus.tolist() == [1.0] * 50
