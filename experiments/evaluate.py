"""Evaluates the agent of a run on seeds that training did not use, without the bonus.

    make evaluate RUN=runs/... [EPISODES=100] [SEED=0] [CHECKPOINT=latest|best] [GREEDY=1]

Success has Wilson's 95 % interval, return and length a bootstrap interval. Every environment runs the same number of
episodes, so that short ones are not over-represented. The result is printed and written to the run's folder as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv

from agents.networks import env_options_for
from agents.protocols import Player
from e3b_gym.command import answer
from e3b_gym.envs import make_vec
from e3b_gym.files import atomic_write
from experiments.command import options_and_seed, positive
from experiments.intervals import bootstrap, wilson
from experiments.players import fresh_seeds, load_player
from experiments.provenance import provenance
from experiments.runs import RunFolder
from experiments.settings import is_set

OPTIONS = ("RUN", "EPISODES", "CHECKPOINT", "GREEDY")
MOST_ENVS = 25


@dataclass(frozen=True)
class Played:
    """One evaluated episode."""

    seed: int
    """Seed of its environment."""
    ret: float
    """Return without the bonus."""
    length: int
    """Number of steps."""
    success: bool | None
    """Whether the goal was reached; None if the suite has no success criterion."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit code."""
    return answer(arguments, __doc__, _run)


def _run(given: list[str]) -> int:
    options, seed = options_and_seed(given, OPTIONS, "evaluate")
    which, greedy = options.get("CHECKPOINT", "latest"), is_set(options, "GREEDY")
    evaluate(RunFolder.existing(options.get("RUN")), positive(options, "EPISODES", "100"), seed, which, greedy)
    return 0


def evaluate(
    folder: RunFolder, episodes: int, seed: int = 0, which: str = "latest", greedy: bool = False
) -> dict[str, Any]:
    """Evaluates a run, prints the result and writes `evaluation-<checkpoint>[-greedy]-seed<k>.json`; returns it."""
    settings, _ = folder.load()
    config = settings.config
    torch.set_num_threads(config.threads)
    num_envs = min(MOST_ENVS, episodes)
    envs = make_vec(config.env, num_envs, **env_options_for(config))
    try:
        spaces = envs.single_observation_space, envs.single_action_space
        player = load_player(folder, settings, which, spaces, greedy=greedy, seed=seed)
        played = play(envs, player, fresh_seeds(config, num_envs, seed), episodes)
    finally:
        envs.close()
    result = {
        "run": str(folder.path),
        "env": config.env,
        "method": config.method,
        "agent": settings.agent,
        "checkpoint": which,
        "frames": player.frames,
        "actions": "most probable" if greedy else "drawn from the policy",
        "seed": seed,
        **summary(played),
        "played": [[episode.seed, episode.ret, episode.length, episode.success] for episode in played],
        "provenance": provenance(),
    }
    file = folder.path / f"evaluation-{which}{'-greedy' if greedy else ''}-seed{seed}.json"
    lines = (f" {json.dumps(name)}: {json.dumps(value)}" for name, value in result.items())
    report(result)  # before writing, which may fail
    with atomic_write(file) as temporary:
        temporary.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"written to {file}")
    return result


def report(result: Mapping[str, Any]) -> None:
    """Prints the result."""
    who = result["agent"] if result["agent"] == result["method"] else "{method} with {agent}".format(**result)
    print("{env}: {who} after {frames:,} frames ({checkpoint} checkpoint)".format(who=who, **result))
    print("{episodes} episodes on seeds that training did not use, actions {actions}".format(**result))
    for name in ("success", "return", "length"):
        if name in result:
            print("  {:8} {mean:<7.4g} 95 % interval [{low:.4g}, {high:.4g}]".format(name, **result[name]))


def play(envs: VectorEnv[Any, Any, Any], player: Player, seeds: list[int], episodes: int) -> list[Played]:
    """Returns the first episodes of every environment, `episodes` in total."""
    wanted = [len(range(env, episodes, len(seeds))) for env in range(len(seeds))]  # equal up to one
    obs, _ = envs.reset(seed=seeds)  # type: ignore[arg-type]  # lists are fine, too
    starts = np.ones(len(seeds), dtype=np.bool_)
    returns, lengths = np.zeros(len(seeds)), np.zeros(len(seeds), dtype=np.int64)
    played: list[list[Played]] = [[] for _ in seeds]
    while any(len(done) < share for done, share in zip(played, wanted, strict=True)):
        obs, rewards, terminated, truncated, infos = envs.step(player.act(obs, starts))
        starts = np.logical_or(terminated, truncated)
        returns += rewards
        lengths += 1
        final = infos.get("final_info", {})
        for env in np.flatnonzero(starts).tolist():
            success = bool(final["is_success"][env]) if "is_success" in final else None
            played[env].append(Played(seeds[env], float(returns[env]), int(lengths[env]), success))
            returns[env], lengths[env] = 0.0, 0
    return [episode for done, share in zip(played, wanted, strict=True) for episode in done[:share]]


def summary(played: Sequence[Played]) -> dict[str, Any]:
    """Returns means with 95 % intervals."""
    result: dict[str, Any] = {"episodes": len(played)}
    successes = [episode.success for episode in played if episode.success is not None]
    if len(successes) == len(played):
        low, high = wilson(sum(successes), len(successes))
        result["success"] = {"mean": sum(successes) / len(successes), "low": low, "high": high, "interval": "Wilson"}
    for name, values in (("return", [e.ret for e in played]), ("length", [float(e.length) for e in played])):
        low, high = bootstrap(values)
        result[name] = {"mean": float(np.mean(values)), "low": low, "high": high, "interval": "bootstrap"}
    return result


if __name__ == "__main__":
    sys.exit(main())
