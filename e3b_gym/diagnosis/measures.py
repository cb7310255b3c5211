"""Numbers from recorded episodes. Each function returns None if the episodes do not determine it.

The bonus is measured as the agent gets it, beta * b / sigma, unless a name says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from e3b_gym.bonuses.elliptical import effective_rank
from e3b_gym.diagnosis.episodes import ENDINGS, SUCCESS, Episode, Floats, Setup
from e3b_gym.memory import EllipticalMemory
from e3b_gym.reward import RewardMixer

FIRST = 5
"""Steps at the start of an episode that are called the first ones."""
LONG = 20
"""An episode needs so many steps for its stale steps to be measured."""
IMPROBABLE = 1e-3
"""A probability below this: in a thousand visits the action is tried less than once."""
RIDGES = (0.1, 0.03, 0.01, 0.003, 0.001, 1e-4, 1e-5)
"""Factors of the ridge that `stale_share_at` is computed for."""


@dataclass(frozen=True)
class Phases:
    """The bonus of a step by phase of an episode.

    Attributes:
        first: mean over the first FIRST steps.
        stale: mean over the quarter of the later steps that have the lowest bonus.
        best: mean over episodes of the largest bonus after the first FIRST steps.
    """

    first: float
    stale: float | None
    best: float | None


def endings(episodes: Sequence[Episode]) -> dict[str, float]:
    """Share of the episodes by how they ended."""
    names = [episode.ending for episode in episodes]
    return {name: names.count(name) / len(names) for name in ENDINGS if name in names}


def success_rate(episodes: Sequence[Episode]) -> float | None:
    """Share of successes; None where the environment does not report success."""
    known = [episode.success for episode in episodes if episode.success is not None]
    return sum(known) / len(known) if known else None


def phases(bonuses: Sequence[Floats]) -> Phases:
    """Measures of the bonuses [T] of some episodes."""
    first = np.concatenate([bonus[:FIRST] for bonus in bonuses])
    later = [np.sort(bonus[FIRST:]) for bonus in bonuses if len(bonus) >= LONG]
    stale = [float(steps[: max(len(steps) // 4, 1)].mean()) for steps in later]
    return Phases(
        float(first.mean()),
        float(np.mean(stale)) if stale else None,
        float(np.mean([steps[-1] for steps in later])) if later else None,
    )


def stale_share(found: Phases) -> float | None:
    """A stale step's bonus next to that of a new state: the larger of the first steps' and the best discovery's."""
    if found.stale is None or found.best is None:
        return None
    new = max(found.first, found.best)
    return found.stale / new if new > 0 else None


def stale_share_at(episodes: Sequence[Episode], setup: Setup, factor: float, most: int = 8) -> float | None:
    """`stale_share` of the same walks if the ridge were `factor` times as large; for elliptical bonuses.

    Args:
        most: the longest episodes, as many as this, are enough.
    """
    if setup.ridge is None or episodes[0].phi is None:
        return None
    bonuses = []
    for episode in sorted(episodes, key=len, reverse=True)[:most]:
        phi = _as_scored(episode.phi, setup) * episode.valid[:, None]  # [T, d]
        memory = EllipticalMemory(1, phi.shape[1], ridge=setup.ridge * factor)
        first = torch.zeros(len(phi), 1, dtype=torch.bool)
        first[0] = True
        opening = torch.from_numpy(_as_scored(episode.opening, setup))[None] if setup.opens else None
        rows = torch.from_numpy(phi).float()[:, None]  # [T, 1, d]
        bonuses.append(memory.unroll(rows, first, opening=opening)[:, 0].double().numpy()[episode.valid])
    return stale_share(phases(bonuses))


def _as_scored(phi: NDArray[np.float32] | None, setup: Setup) -> NDArray[np.float32]:
    if phi is None:
        raise ValueError("these episodes were recorded without phi")
    if not setup.unit_length:
        return phi
    return np.asarray(phi / np.maximum(np.linalg.norm(phi, axis=-1, keepdims=True), 1e-12), dtype=np.float32)


def goal(episodes: Sequence[Episode], setup: Setup) -> float | None:
    """The environment's weighted reward of a success: seen, or 1 where none was seen. None without extrinsic reward."""
    if setup.extrinsic == 0:
        return None
    successes = [float(setup.weigh(episode.extrinsic).sum()) for episode in episodes if episode.ending == SUCCESS]
    largest = max(float(setup.weigh(episode.extrinsic).sum()) for episode in episodes)
    seen = float(np.median(successes)) if successes else largest
    return seen if seen > 0 else setup.extrinsic


def reward_share(episodes: Sequence[Episode], setup: Setup) -> float | None:
    """The bonus's share of all reward, by absolute size."""
    inner = sum(float(np.abs(episode.intrinsic).sum()) for episode in episodes)
    outer = sum(float(np.abs(setup.weigh(episode.extrinsic)).sum()) for episode in episodes)
    return inner / (inner + outer) if inner + outer > 0 else None


def clipped_share(episodes: Sequence[Episode], setup: Setup) -> float | None:
    """Share of the steps whose mixed reward lies beyond the clip."""
    if setup.clip is None:
        return None
    mixed = np.concatenate([setup.weigh(episode.extrinsic) + episode.intrinsic for episode in episodes])
    return float((np.abs(mixed) > setup.clip).mean())


def drift(episodes: Sequence[Episode], setup: Setup) -> float | None:
    """The deviation that training arrived at, next to the one of these episodes by the same formula."""
    if setup.normaliser == "none":
        return None
    now = RewardMixer(normaliser=setup.normaliser)
    now.update(torch.from_numpy(np.concatenate([episode.bonus[episode.valid] for episode in episodes])))
    return setup.sigma / now.sigma


def explained_variance(episodes: Sequence[Episode], setup: Setup) -> list[float] | None:
    """By value head: 1 - Var(return - value) / Var(return) over all steps."""
    if any(episode.values is None for episode in episodes):
        return None
    values = np.concatenate([episode.values for episode in episodes if episode.values is not None])
    returns = np.concatenate([episode.returns(setup.gammas) for episode in episodes])
    spread = returns.var(axis=0)
    missed = (returns - values).var(axis=0)
    return [float(1 - m / s) if s > 0 else 0.0 for m, s in zip(missed, spread, strict=True)]


def _probabilities(episodes: Sequence[Episode]) -> Floats | None:
    given = [episode.probabilities for episode in episodes if episode.probabilities is not None]
    return np.concatenate(given) if given else None


def relative_entropy(episodes: Sequence[Episode]) -> float | None:
    """Mean entropy of the policy as a share of the uniform policy's."""
    p = _probabilities(episodes)
    if p is None:
        return None
    entropy = -(p * np.log(np.maximum(p, 1e-30))).sum(axis=-1)
    return float(entropy.mean() / np.log(p.shape[1]))


def improbable(episodes: Sequence[Episode]) -> tuple[float, Floats] | None:
    """Share of the states in which some action is improbable, and the same by action [A]."""
    p = _probabilities(episodes)
    if p is None:
        return None
    rare = p < IMPROBABLE
    return float(rare.any(axis=1).mean()), rare.mean(axis=0)


def inverse_accuracy(episodes: Sequence[Episode]) -> tuple[float, float] | None:
    """Share of steps whose action the inverse model predicts, and the share that a guess from the state alone predicts.

    The guess is the policy's most probable action; without probabilities it counts as never right.
    """
    if any(episode.inverse_right is None for episode in episodes):
        return None
    pairs = [(episode.inverse_right, episode.valid) for episode in episodes if episode.inverse_right is not None]
    right = np.concatenate([right[valid] for right, valid in pairs])
    p = _probabilities(episodes)
    if not len(right):
        return None
    return float(right.mean()), 0.0 if p is None else float(p.max(axis=1).mean())


def phi_rank(episodes: Sequence[Episode], setup: Setup) -> tuple[float, int] | None:
    """Effective rank of phi over all arriving states, and its dimension."""
    if any(episode.phi is None for episode in episodes):
        return None
    rows = np.concatenate([_as_scored(episode.phi, setup)[episode.valid] for episode in episodes])
    return (effective_rank(torch.from_numpy(rows)), rows.shape[1]) if len(rows) else None
