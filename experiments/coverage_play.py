"""Plays episodes in homes for `experiments.coverage`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from e3b_gym.unroll import Tree, tree_map
from experiments.coverage_pictures import Sight

if TYPE_CHECKING:  # it needs habitat-lab
    from e3b_gym.envs.habitat.environment import HabitatExploration


class Acting(Protocol):
    """A policy."""

    def act(self, obs: Tree, starts: NDArray[np.bool_]) -> NDArray[Any]:
        """Actions [N] for observations, tree of [N, ...]; `starts` [N] marks the first ones of episodes."""


@dataclass(frozen=True)
class Played:
    """One episode: the home's name, the share of it that was revealed, its length, and what was seen."""

    home: str
    coverage: float
    length: int
    sight: Sight | None

    @classmethod
    def by(cls, env: HabitatExploration, keep: bool) -> Played:
        """The episode that has just ended; `keep`: with the area that was seen."""
        seen = env.exploration
        home, share = str(env.habitat.current_episode.scene_id), float(seen.get_metric())
        areas = seen.navigable.astype(np.uint8) + seen.seen
        sight = Sight(home, areas, np.array(seen.path, dtype=np.float64), share) if keep else None
        return cls(home, share, len(seen.path) - 1, sight)


def spread(scenes: Sequence[str], count: int) -> list[int]:
    """Numbers of `count` episodes, given their homes: the first one of every home, then the second ones."""
    before: Counter[str] = Counter()
    rounds = []
    for number, scene in enumerate(scenes):
        rounds.append((before[scene], number))
        before[scene] += 1
    return [number for _, number in sorted(rounds)[:count]]


def play(
    envs: Sequence[HabitatExploration], player: Acting, episodes: Sequence[int], pictures: int = 0
) -> Iterator[Played]:
    """Plays the episodes with these numbers, as many at a time as there are environments."""
    for first in range(0, len(episodes), len(envs)):
        # The last batch may have fewer episodes; a player's batch may not, so the other environments do not step.
        numbers = [episodes[min(first + i, len(episodes) - 1)] for i in range(len(envs))]
        obs = [env.reset(options={"episode": number})[0] for env, number in zip(envs, numbers, strict=True)]
        playing = first + np.arange(len(envs)) < len(episodes)
        asked, starts = np.flatnonzero(playing).tolist(), np.ones(len(envs), dtype=np.bool_)
        while playing.any():
            actions = player.act(tree_map(lambda *leaves: np.stack(leaves), *obs), starts)
            starts = np.zeros(len(envs), dtype=np.bool_)
            for i in np.flatnonzero(playing).tolist():
                obs[i], _, terminated, truncated, _ = envs[i].step(int(actions[i]))
                playing[i] = not (terminated or truncated)
        yield from (Played.by(envs[i], keep=first + i < pictures) for i in asked)
