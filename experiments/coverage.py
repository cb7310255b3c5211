"""Measures how much of unseen homes an agent reveals: the paper's measure for Habitat, with its pictures.

    make homes RUNS="runs/Habitat-FloorPlan-v0/e3b-... ..." [EPISODES=100] [SPLIT=val] [SEED=0] [MAX_STEPS=500]
        [CHECKPOINT=latest] [PICTURES=2] [RANDOM=1] [OUT=runs/homes]

Every run, and two random agents (RANDOM=0: not these), plays the same episodes: the first one of every home of the
split, then the second ones. Actions are drawn from the policy. Coverage is the navigable area that the line of sight
has revealed by the end of an episode, as a share of all of it (Henaff et al. 2022, appendix). Means come with a
bootstrap's 95 % interval over episodes.

    coverage.json      every episode, config, seed, frames and commits of every run
    coverage.png       the bars of the paper's figure
    trajectories.png   paths and revealed areas of the first few episodes, one column per agent
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from agents.networks import env_options_for
from agents.registry import AGENTS
from e3b_gym.command import answer
from e3b_gym.envs import make
from e3b_gym.envs.habitat import MAX_STEPS
from e3b_gym.envs.registry import suite_of
from e3b_gym.files import atomic_write
from e3b_gym.options import WholeNumber, parse
from experiments.command import folder, options_and_seed, positive
from experiments.coverage_pictures import draw_bars, draw_trajectories
from experiments.coverage_play import Played, play, spread
from experiments.intervals import bootstrap
from experiments.players import load_player
from experiments.provenance import provenance
from experiments.runs import RunFolder
from experiments.settings import Settings, is_set

if TYPE_CHECKING:  # it needs habitat-lab
    from e3b_gym.envs.habitat.environment import HabitatExploration

RANDOM_AGENTS = ("random", "random-forward")
TITLES = {
    "e3b": "E3B",
    "icm": "ICM",
    "rnd": "RND",
    "noveld-subsampled": "NovelD",
    "none": "no bonus",
    "random": "Random",
    "random-forward": "Random, forward 0.8",
}
MOST_ENVS = 20
OPTIONS = ("RUNS", "EPISODES", "SPLIT", "MAX_STEPS", "CHECKPOINT", "PICTURES", "RANDOM", "OUT")


@dataclass(frozen=True)
class Agent:
    """A run, or one of the random agents (`folder` None), and its environment."""

    title: str
    settings: Settings
    folder: RunFolder | None = None
    commits: tuple[str, ...] = ()


def read_runs(paths: Sequence[str]) -> list[Agent]:
    """The runs as agents; raises ValueError for a folder that is not a run in Habitat, or has another environment."""
    agents, names = [], []
    for path in paths:
        folder = RunFolder.existing(path)
        settings, parts = folder.load()
        config = settings.config
        suite = suite_of(config.env)
        if suite is None or not suite.reward_free:
            raise ValueError(f"{path} is a run in {config.env}; coverage is measured in Habitat's environments")
        names.append(
            (TITLES.get(config.method, config.method), settings.agent, f"seed {config.seed}", str(folder.path))
        )
        commits = tuple(str(part["commit"]) for part in parts)
        agents.append(Agent("", settings, folder, commits))
    if len(ids := sorted({agent.settings.config.env for agent in agents})) > 1:
        raise ValueError(f"only runs in one environment can be compared; these are in {' and '.join(ids)}")
    return [replace(agent, title=_title(name, names)) for agent, name in zip(agents, names, strict=True)]


def _title(name: tuple[str, ...], names: Sequence[tuple[str, ...]]) -> str:
    """The method; if it has several runs, with agent and seed, or with the run's folder."""
    for parts in (1, 3, 4):
        if sum(other[:parts] == name[:parts] for other in names) == 1:
            return ", ".join(name[:parts])
    raise ValueError(f"RUNS names {name[-1]} twice")


def with_random_agents(runs: Sequence[Agent]) -> list[Agent]:
    """The runs, and the missing random agents in the homes of the first run."""
    first = runs[0].settings
    options = {**env_options_for(first.config), "allow_stop": False}
    missing = [name for name in RANDOM_AGENTS if all(name != run.settings.agent for run in runs)]
    configs = {name: AGENTS[name].config(first.config.env, options) for name in missing}
    return [*runs, *(Agent(TITLES[name], Settings(name, first.preset, config)) for name, config in configs.items())]


def measure(
    agent: Agent, episodes: int, env_options: Mapping[str, Any], seed: int, which: str, pictures: int
) -> tuple[list[Played], int]:
    """Returns an agent's episodes and the number of frames that it has learned from.

    Args:
        agent: who plays.
        episodes: how many; they are spread over the homes.
        env_options: options for all agents (split, max_steps), over the agent's own.
        seed: seed of the drawn actions.
        which: checkpoint, "latest" or "best".
        pictures: how many of the first episodes keep the area that was seen.
    """
    config = agent.settings.config
    options = {**env_options_for(config), **env_options, "coverage": True, "coverage_ratio": "navigable"}
    made = [make(config.env, **options).unwrapped for _ in range(min(MOST_ENVS, episodes))]
    envs = cast("list[HabitatExploration]", made)
    try:
        if episodes > envs[0].num_episodes:
            raise ValueError(f"{env_options['split']} has {envs[0].num_episodes} episodes; got EPISODES={episodes}")
        spaces = envs[0].observation_space, envs[0].action_space
        torch.set_num_threads(config.threads)
        player = load_player(agent.folder, agent.settings, which, spaces, seed=seed)
        return list(play(envs, player, spread(envs[0].scenes, episodes), pictures)), player.frames
    finally:
        for env in envs:
            env.close()


def describe(agent: Agent, played: Sequence[Played], frames: int) -> dict[str, Any]:
    """The report on an agent."""
    coverage = [episode.coverage for episode in played]
    low, high = bootstrap(coverage)
    found: dict[str, Any] = {
        "agent": agent.title,
        "coverage": {"mean": float(np.mean(coverage)), "low": low, "high": high, "interval": "bootstrap, 95 %"},
        "mean_length": float(np.mean([episode.length for episode in played])),
        "frames": frames,
    }
    if agent.folder is not None:
        config = agent.settings.config
        found |= {
            "run": str(agent.folder.path),
            "method": config.method,
            "algorithm": agent.settings.agent,
            "preset": agent.settings.preset,
            "seed": config.seed,
            "commits": list(agent.commits),
            "config": config.as_dict(),
        }
    return {**found, "played": [[one.home, one.coverage, one.length] for one in played]}


def cover(
    paths: Sequence[str],
    episodes: int,
    split: str,
    seed: int,
    out: Path,
    *,
    max_steps: int = MAX_STEPS,
    which: str = "latest",
    pictures: int = 2,
    random: bool = True,
) -> dict[str, Any]:
    """Plays, prints, writes the report and its pictures into `out`; returns the report."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"OUT must be a folder; {out} is a file")
    agents = with_random_agents(read_runs(paths)) if random else read_runs(paths)
    env_options = {"split": split, "max_steps": max_steps}
    results, sights = [], {}
    env = agents[0].settings.config.env
    print(f"{env}, split {split}: {episodes} episodes of {max_steps} steps, actions drawn from the policy")
    for agent in agents:
        played, frames = measure(agent, episodes, env_options, seed, which, pictures)
        results.append(describe(agent, played, frames))
        sights[agent.title] = [episode.sight for episode in played if episode.sight is not None]
        text = "  {:28} coverage {mean:.3f}   95 % interval [{low:.3f}, {high:.3f}]   {:,} frames"
        print(text.format(agent.title, frames, **results[-1]["coverage"]), flush=True)
    report = {
        "env": env,
        "split": split,
        "episodes": episodes,
        "max_steps": max_steps,
        "seed": seed,
        "checkpoint": which,
        "actions": "drawn from the policy",
        "provenance": provenance(),
        "agents": results,
    }
    write(report, out)
    draw_bars(report, out / "coverage.png")
    draw_trajectories(sights, out / "trajectories.png")
    print(f"written to {out}: coverage.json, coverage.png{', trajectories.png' if pictures else ''}")
    return report


def write(report: Mapping[str, Any], out: Path) -> None:
    """coverage.json, one line per agent."""
    out.mkdir(parents=True, exist_ok=True)
    agents = ",\n".join("  " + json.dumps(agent) for agent in report["agents"])
    head = (f" {json.dumps(name)}: {json.dumps(value)}" for name, value in report.items() if name != "agents")
    with atomic_write(out / "coverage.json") as temporary:
        temporary.write_text("{\n" + ",\n".join(head) + ',\n "agents": [\n' + agents + "\n ]\n}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit code."""
    return answer(arguments, __doc__, _run)


def _run(given: list[str]) -> int:
    options, seed = options_and_seed(given, OPTIONS, "homes")
    if not (paths := options.get("RUNS", "").split()):
        raise ValueError('RUNS= is missing, e.g. RUNS="runs/Habitat-FloorPlan-v0/e3b-..."')
    pictures = parse("PICTURES", options.get("PICTURES", "2"), WholeNumber)
    cover(
        paths,
        positive(options, "EPISODES", "100"),
        options.get("SPLIT", "val"),
        seed,
        folder(options, "OUT", "runs/homes"),
        max_steps=positive(options, "MAX_STEPS", str(MAX_STEPS)),
        which=options.get("CHECKPOINT", "latest"),
        pictures=pictures,
        random=is_set({"RANDOM": "1", **options}, "RANDOM"),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
