"""Where is the bonus high? One episode of a run on its map, next to an episodic count of whole observations.

    make train ENV=Rooms-K5-v0 AGENT=ppo env.clock=true STEPS=300k RUN=runs/heatmap
    python -m experiments.heatmap RUN=runs/heatmap [EPISODES=20] [SEED=0] [OUT=docs/images/heatmap.png]

Plays some episodes and draws the one that visits most cells: the bonus of a visit to each cell, and the bonus step by
step, relative to the average step. The count gets the same steps. With a clock no two observations are equal, so
it is 1 at every step.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from agents.networks import env_options_for
from agents.protocols import Player
from e3b_gym.bonuses import Bonus, make_bonus
from e3b_gym.command import answer
from e3b_gym.envs import rooms
from e3b_gym.envs.registry import suite_of
from e3b_gym.gymnasium import E3BReward
from e3b_gym.unroll import tree_map
from experiments.command import options_and_seed, positive
from experiments.players import fresh_seeds, load_player
from experiments.runs import RunFolder

OPTIONS = ("RUN", "EPISODES", "OUT")
CLOSED_DOOR = "#3f8f93"
TILES = ListedColormap(["white", "#efece6", "#8d8a86", CLOSED_DOOR, "#a8d3d5", "#a9dcb5"])  # in the order of rooms.py


@dataclass(frozen=True)
class Episode:
    """An episode: the map at its end, the cells (x, y) from its start [T+1, 2], and the bonus of each step [T]."""

    layout: rooms.Layout
    cells: NDArray[np.int64]
    bonus: NDArray[np.float64]

    @property
    def new_cell(self) -> NDArray[np.bool_]:
        """[T]: the step arrived in a cell that the episode had not visited."""
        first_visits = np.unique(self.cells, axis=0, return_index=True)[1]
        return np.isin(np.arange(1, len(self.cells)), first_visits)

    @property
    def relative(self) -> NDArray[Any]:
        """[T]: the bonus as multiples of the episode's average."""
        return np.asarray(self.bonus / self.bonus.mean())

    def per_visit(self) -> NDArray[Any]:
        """[side, side], indexed [y, x]: bonus of an arrival in a cell on average; NaN where there was none."""
        bonus_sum, visits = np.zeros((2, *self.layout.tiles.shape))
        x, y = self.cells[1:].T
        np.add.at(bonus_sum, (y, x), self.relative)
        np.add.at(visits, (y, x), 1)
        return np.asarray(np.divide(bonus_sum, visits, out=np.full_like(bonus_sum, np.nan), where=visits > 0))


def play(
    env: str,
    options: Mapping[str, Any],
    bonus: Bonus,
    seed: int,
    player: Player | None = None,
    actions: Sequence[int] = (),
) -> tuple[Episode, list[int]]:
    """One episode, by the player or by the given actions; returns it with its actions."""
    plain = rooms.make(env, **options)
    rewarded = E3BReward(plain, bonus, beta=1.0, normaliser="none")  # so that intrinsic_reward is the bonus itself
    obs, _ = rewarded.reset(seed=seed)
    cells, bonuses, ended = [plain.layout().agent], [], False
    taken: list[int] = []
    while not ended:
        if player is None:
            action = actions[len(taken)]
        else:
            rows = tree_map(lambda leaf: np.asarray(leaf)[None], obs)
            action = int(player.act(rows, np.array([not taken]))[0])
        obs, _, terminated, truncated, info = rewarded.step(action)
        cells.append(plain.layout().agent)
        bonuses.append(info["intrinsic_reward"])
        taken.append(action)
        ended = terminated or truncated
    return Episode(plain.layout(), np.array(cells), np.array(bonuses)), taken


def draw(env: str, panels: dict[str, Episode], path: Path) -> None:
    """A map for each bonus, all on one colour scale, and below them the bonus of every step."""
    figure = Figure(figsize=(5.6 * len(panels), 6.4), layout="constrained")
    axes = figure.subplots(2, len(panels), height_ratios=(2.4, 1), sharey="row", squeeze=False)
    for (title, episode), above, below in zip(panels.items(), *axes, strict=True):
        heat = _draw_map(above, episode)
        above.set_title(title)
        _draw_steps(below, episode)
    axes[0, -1].legend(handles=[Patch(color=CLOSED_DOOR, label="closed door")], frameon=False, loc="lower right")
    axes[1, 0].set_ylabel("bonus, average = 1")
    axes[1, -1].legend(frameon=False)
    bar = figure.colorbar(heat, ax=axes[0], shrink=0.85, ticks=[0.1, 1, 10], format="%g", extend="both")
    bar.set_label("bonus of a visit to the cell,\naverage step = 1")
    figure.suptitle(f"The bonus of one episode of {env}, the same steps twice", weight="bold")
    path.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure)
    figure.savefig(path, dpi=110)


def _draw_map(axis: Any, episode: Episode) -> Any:
    tiles = episode.layout.tiles
    axis.imshow(tiles, cmap=TILES, vmin=0, vmax=TILES.N - 1)
    heat = axis.imshow(episode.per_visit(), cmap="magma_r", norm=LogNorm(0.1, 10))
    for (x, y), text, marker in ((episode.cells[0], "start", "o"), (episode.layout.goal, "goal", "*")):
        axis.plot(x, y, marker, color="#1b5fc1", markersize=11, markeredgecolor="white")
        outline = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.8}
        axis.annotate(text, (x, y), (0, 10), textcoords="offset points", ha="center", fontsize=9, bbox=outline)
    y, x = np.nonzero(tiles)
    axis.set(xlim=(x.min() - 0.6, x.max() + 0.6), ylim=(y.max() + 0.6, y.min() - 0.6), xticks=[], yticks=[])
    axis.spines[:].set_visible(False)
    return heat


def _draw_steps(axis: Any, episode: Episode) -> None:
    steps, new, bonus = np.arange(1, len(episode.bonus) + 1), episode.new_cell, episode.relative
    axis.bar(steps, bonus, width=1.0, color="#b9b5ae", label="step within cells seen before")
    axis.bar(steps[new], bonus[new], width=1.0, color="#c22f4b", label="step into a new cell")
    share = bonus[new].sum() / bonus.sum()
    axis.set(xlabel="step of the episode", xlim=(0.5, len(steps) + 0.5))
    axis.set_title(f"{new.mean():.0%} of the steps enter a new cell; they get {share:.0%} of the bonus", fontsize=10)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit code."""
    return answer(arguments, __doc__, _run)


def _run(given: list[str]) -> int:
    chosen, seed = options_and_seed(given, OPTIONS, "heatmap")
    episodes = positive(chosen, "EPISODES", "20")
    folder = RunFolder.existing(chosen.get("RUN"))
    settings, _ = folder.load()
    config = settings.config
    suite = suite_of(config.env)
    if suite is None or suite.load() is not rooms:
        raise ValueError(f"{folder.path} is a run in {config.env}; heat maps are drawn for Rooms only")
    torch.set_num_threads(1)
    options, out = env_options_for(config), Path(chosen.get("OUT", "docs/images/heatmap.png"))
    env = rooms.make(config.env, **options)
    spaces = env.observation_space, env.action_space
    player = load_player(folder, settings, "latest", spaces, seed=seed)
    learned = player.bonus_explorer().bonus
    played = [
        (*play(config.env, options, learned, number, player), number) for number in fresh_seeds(config, episodes, seed)
    ]
    episode, actions, number = max(played, key=lambda one: one[0].new_cell.sum())
    count, _ = play(config.env, options, make_bonus("first-visit", *spaces, 1), number, actions=actions)
    draw(config.env, {config.method: episode, "Episodic count, full observation": count}, out)
    print(f"picture: {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
