"""Homes are worth exploring: random walks reveal a part, one that looks for the unseen reveals most."""

import math
from typing import Any

import numpy as np
import pytest

from benchmarks import habitat as benchmark
from e3b_gym.envs import make
from e3b_gym.envs.habitat.navigation import SQUARE

ID = "Habitat-FloorPlan-v0"
FORWARD, LEFT, RIGHT = range(3)
EPISODES = 6


class Explorer:
    """Walks to the nearest place it has not seen, on the true map: an upper bound for what agents can learn."""

    def __init__(self, env: Any) -> None:
        self.env = env
        self.goal: np.ndarray | None = None
        self.patience = 0

    def act(self) -> int:
        sim = self.env.habitat.sim
        state = sim.get_agent_state()
        self.patience -= 1
        if self.goal is None or self.patience < 0 or not self._is_worth_it(self.goal):
            self.goal, self.patience = self._nearest(state.position), 60
        path = sim.pathfinder.find_path(state.position, self.goal)
        corners = [corner for corner in path if math.dist(corner, state.position) > 0.05]
        if not corners:
            return LEFT
        ahead = corners[0] - state.position
        wanted = math.atan2(-ahead[0], -ahead[2])
        turn = math.remainder(wanted - 2 * math.atan2(state.rotation.y, state.rotation.w), math.tau)
        return FORWARD if abs(turn) < math.radians(6) else LEFT if turn > 0 else RIGHT

    def _unseen(self) -> np.ndarray:
        return self.env.exploration.navigable & ~self.env.exploration.seen

    def _is_worth_it(self, goal: np.ndarray) -> bool:
        row, column = int(goal[2] / SQUARE), int(goal[0] / SQUARE)
        return int(self._unseen()[max(row - 6, 0) : row + 7, max(column - 6, 0) : column + 7].sum()) > 30

    def _nearest(self, position: np.ndarray) -> np.ndarray:
        sim = self.env.habitat.sim
        candidates = (np.argwhere(self._unseen())[::41, ::-1] + 0.5) * SQUARE  # [N, 2] x, z
        points = [np.array([x, 0.0, z]) for x, z in candidates]
        points = [point for point in points if self._is_worth_it(point)] or [position]
        # All distances are from here, so that the path finder looks for ways once.
        return min(points, key=lambda point: sim.geodesic_distance(point, position))


def covered(env: Any, choose: Any, episode: int) -> float:
    env.reset(options={"episode": episode})
    for _ in range(500):
        *_, info = env.step(choose())
    return float(info["coverage"])


@pytest.mark.slow
def test_random_walks_reveal_a_part_and_a_good_explorer_most() -> None:
    env = make(ID, split="val", size=4, coverage=True, allow_stop=False)
    rng = np.random.default_rng(0)
    uniform = [covered(env, lambda: rng.integers(3), n) for n in range(EPISODES)]
    straight = [covered(env, lambda: rng.choice(3, p=(0.8, 0.1, 0.1)), n) for n in range(EPISODES)]
    explorer = [covered(env, Explorer(env).act, n) for n in range(EPISODES)]
    assert 0.1 < np.mean(uniform) < 0.5
    assert 0.05 < np.mean(straight) < 0.5
    assert np.mean(explorer) > 0.8


@pytest.mark.slow
def test_it_is_as_fast_as_promised() -> None:
    assert benchmark.main(["QUICK=1"]) == 0
