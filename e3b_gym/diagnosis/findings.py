"""Findings: each measure with its healthy range, the likely cause where it lies outside, and the option to change.

docs/doctor.md has the sources of the ranges. Findings are made in the order in which causes explain each other:
an encoder that was not trained or a ridge that is too large changes the size of the bonus, and a bonus of the wrong
size harms the value function. So the first finding that is not healthy is the likely cause of the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from e3b_gym.diagnosis import measures
from e3b_gym.diagnosis.episodes import TIME_LIMIT, Episode, Setup

SOLVED = 0.8
"""Share of successes from which the task counts as solved."""
FOUND = 0.2
"""Share of successes from which a low entropy means a policy that has learned the task, not one that has collapsed."""
PREDICTABLE = 0.7
"""Actions that are guessed this often from the state alone say little about the encoder."""

Bounds = tuple[float | None, float | None]
HEALTHY: dict[str, Bounds] = {
    "inverse_skill": (0.2, None),
    "phi_rank": (1.5, None),
    "stale_share": (None, 0.25),
    "stale_to_goal": (None, 1.0),
    "bonus_to_goal": (0.03, 10.0),
    "reward_share": (0.01, 0.99),
    "drift": (0.33, 3.0),
    "clipped_share": (None, 0.05),
    "explained_variance": (0.2, None),
    "entropy": (0.3, 0.995),
    "improbable_share": (None, 0.5),
}


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes:
        name: a key of HEALTHY, or the name of a number without a range.
        label: text of the measure.
        value: the number.
        healthy: lowest and highest healthy value; None for no bound.
        verdict: "ok", "low" or "high"; "" for a number without a range.
        detail: context that is shown after the value.
        cause: the likely cause, where the verdict is "low" or "high".
        change: the option to change, and in which direction.
    """

    name: str
    label: str
    value: float
    healthy: Bounds = (None, None)
    verdict: str = ""
    detail: str = ""
    cause: str = ""
    change: str = ""

    @property
    def is_problem(self) -> bool:
        return self.verdict in ("low", "high")


def judged(
    name: str,
    label: str,
    value: float,
    *,
    detail: str = "",
    low: tuple[str, str] = ("", ""),
    high: tuple[str, str] = ("", ""),
    healthy: Bounds | None = None,
) -> Finding:
    """A finding with its verdict; `low` and `high` are cause and change of a value outside on that side."""
    bounds = HEALTHY[name] if healthy is None else healthy
    verdict, (cause, change) = "" if bounds == (None, None) else "ok", ("", "")
    if bounds[0] is not None and not value >= bounds[0]:
        verdict, (cause, change) = "low", low
    elif bounds[1] is not None and not value <= bounds[1]:
        verdict, (cause, change) = "high", high
    return Finding(name, label, value, bounds, verdict, detail, cause, change)


def find(episodes: Sequence[Episode], setup: Setup) -> list[Finding]:
    """All findings, in the order in which one explains the next."""
    if not episodes:
        raise ValueError("a diagnosis needs at least one recorded episode")
    return [*_encoder(episodes, setup), *_bonus(episodes, setup), *_value(episodes, setup), *_policy(episodes, setup)]


def _encoder(episodes: Sequence[Episode], setup: Setup) -> Iterator[Finding]:
    inverse = measures.inverse_accuracy(episodes)
    if inverse is not None:
        accuracy, guess = inverse
        detail, bounds = f"accuracy {accuracy:.2f}, guessing {guess:.2f}", HEALTHY["inverse_skill"]
        if guess > PREDICTABLE:
            detail, bounds = f"{detail}: too predictable to judge", (None, None)
        yield judged(
            "inverse_skill",
            "inverse accuracy above guessing",
            (accuracy - guess) / max(1 - guess, 1e-9),
            healthy=bounds,
            detail=detail,
            low=(
                "the encoder is not trained, or has not learned yet: phi does not show what the actions change",
                setup.train_encoder,
            ),
        )
    rank = measures.phi_rank(episodes, setup)
    if rank is not None:
        yield judged(
            "phi_rank",
            "effective rank of phi",
            rank[0],
            detail=f"of {rank[1]} dimensions",
            low=(
                "phi has collapsed: the bonus cannot distinguish states",
                f"lower encoder_learning_rate{_value_of(setup, 'encoder_learning_rate')}",
            ),
        )


def _bonus(episodes: Sequence[Episode], setup: Setup) -> Iterator[Finding]:
    if not setup.has_bonus or not any(bool(episode.valid.any()) for episode in episodes):
        return
    found = measures.phases([episode.intrinsic[episode.valid] for episode in episodes])
    yield Finding("bonus_first", f"bonus of a step, first {measures.FIRST} steps", found.first)
    if found.stale is not None and found.best is not None:
        yield Finding("bonus_stale", "bonus of a stale step", found.stale, detail="lowest quarter of later steps")
        yield Finding("bonus_best", "bonus of the best discovery", found.best, detail="mean over the episodes")
    yield from _staleness(episodes, setup, found)
    yield from _size(episodes, setup, found)
    yield from _shares(episodes, setup)
    moved = measures.drift(episodes, setup)
    if moved is not None:
        yield judged(
            "drift",
            "running deviation / current deviation",
            moved,
            detail=f"sigma {setup.sigma:.3g}",
            low=_DRIFT,
            high=_DRIFT,
        )


def _shares(episodes: Sequence[Episode], setup: Setup) -> Iterator[Finding]:
    share = measures.reward_share(episodes, setup)
    if share is not None and setup.extrinsic:
        rewarded = any(bool(episode.extrinsic.any()) for episode in episodes)
        bounds = HEALTHY["reward_share"]
        yield judged(
            "reward_share",
            "share of the reward that is the bonus",
            share,
            healthy=bounds if rewarded else (bounds[0], None),
            detail="" if rewarded else "the environment gave no reward",
            low=("the bonus is negligible compared with the environment's reward", _beta(setup, "raise")),
            high=("the environment's reward is negligible compared with the bonus", _beta(setup, "lower")),
        )
    clipped = measures.clipped_share(episodes, setup)
    if clipped is not None:
        yield judged(
            "clipped_share",
            "share of steps with a clipped reward",
            clipped,
            detail=f"clip {setup.clip:g}",
            high=("the clip hides how large a discovery is", _beta(setup, "lower")),
        )


_DRIFT = (
    "the bonus has changed its size since the running deviation was collected, which keeps all of training",
    "lower encoder_learning_rate, or use normaliser=none with a beta of its size",
)


def _staleness(episodes: Sequence[Episode], setup: Setup, found: measures.Phases) -> Iterator[Finding]:
    share = measures.stale_share(found)
    if share is None:
        return
    limit = HEALTHY["stale_share"][1]
    cause = "states that were visited stay new to the bonus (a clock, noise, or a bonus without memory)"
    change = "METHOD=e3b with a trained encoder; sees=<keys> leaves out parts that only change"
    if limit is not None and share > limit:
        for factor in measures.RIDGES:
            better = measures.stale_share_at(episodes, setup, factor)
            if better is not None and setup.ridge is not None and better <= limit:
                cause = f"the ridge is too large for this phi: with a ridge of {setup.ridge * factor:.2g} the same "
                cause += f"episodes would have {better:.2g}"
                change = f"lower ridge={setup.ridge:g} to {setup.ridge * factor:.2g}"
                break
    yield judged("stale_share", "bonus of a stale step / of a new state", share, high=(cause, change))


def _size(episodes: Sequence[Episode], setup: Setup, found: measures.Phases) -> Iterator[Finding]:
    goal = measures.goal(episodes, setup)
    if goal is None:
        return
    if found.stale is not None:
        yield judged(
            "stale_to_goal",
            "100 further stale steps / goal",
            100 * found.stale / goal,
            detail=f"goal {goal:.3g}",
            high=("staying in known states earns more than the goal", _beta(setup, "lower")),
        )
    size = float(np.mean([episode.intrinsic.sum() for episode in episodes])) / goal
    bounds = HEALTHY["bonus_to_goal"]
    middle = float(np.sqrt((bounds[0] or 0) * (bounds[1] or 0)))
    stays = size > 1 and all(episode.ending == TIME_LIMIT for episode in episodes)
    aim = f" to about {setup.beta * middle / size:.2g}" if size > 0 else ""
    yield judged(
        "bonus_to_goal",
        "bonus of an episode / goal",
        size,
        detail="the agent may stay for the bonus: try a smaller beta" if stays else "",
        low=("the bonus is too small to be learned from", _beta(setup, "raise") + aim),
        high=("the bonus is so large that the goal does not matter", _beta(setup, "lower") + aim),
    )


def _value(episodes: Sequence[Episode], setup: Setup) -> Iterator[Finding]:
    explained = measures.explained_variance(episodes, setup) or []
    change = f"raise vf_coef{_value_of(setup, 'vf_coef')}, or train for longer if the run is young"
    if setup.options.get("vf_coef") == 0:
        change = "raise vf_coef, which is 0: the value function is not trained at all"
    for head, share in enumerate(explained):
        yield judged(
            "explained_variance",
            "variance of returns explained by the value" + ("" if len(explained) == 1 else f", head {head}"),
            share,
            low=("the value function does not predict the returns, so advantages are mostly noise", change),
        )


def _policy(episodes: Sequence[Episode], setup: Setup) -> Iterator[Finding]:
    entropy, rare = measures.relative_entropy(episodes), measures.improbable(episodes)
    if entropy is None or rare is None:
        return
    found = (measures.success_rate(episodes) or 0.0) >= FOUND
    change = f"raise ent_coef{_value_of(setup, 'ent_coef')}"
    if setup.options.get("ent_coef") == 0:
        change = "raise ent_coef, which is 0: nothing keeps the policy from giving actions up"
    low, high = HEALTHY["entropy"]
    yield judged(
        "entropy",
        "policy entropy / uniform entropy",
        entropy,
        healthy=(None if found else low, high),
        low=("the policy has given up most actions before it found the goal", change),
        high=(
            "the policy is still uniform: it has not learned from the bonus",
            f"train for longer, lower ent_coef{_value_of(setup, 'ent_coef')}, or {_beta(setup, 'raise')}",
        ),
    )
    worst = int(rare[1].argmax())
    name = setup.action_names[worst] if worst < len(setup.action_names) else f"action {worst}"
    where = f"{name} in {rare[1][worst]:.0%} of states"
    yield judged(
        "improbable_share",
        f"states with an action below {100 * measures.IMPROBABLE:g} %",
        rare[0],
        healthy=(None, None) if found else None,
        detail=f"most often {where}" if rare[0] else "",
        high=(f"actions have become too improbable to be tried again, most often {where}", change),
    )


def _value_of(setup: Setup, option: str) -> str:
    return f"={setup.options[option]:g}" if option in setup.options else ""


def _beta(setup: Setup, verb: str) -> str:
    return f"{verb} beta={setup.beta:g}"
