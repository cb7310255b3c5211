"""Recorded episodes: what the diagnosis is computed from, whatever framework trained the agent.

A player steps N environments and calls `Recording.add` once per step. The recording cuts the steps into episodes, the
same number from every environment, so that short episodes are not over-represented.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from e3b_gym.reward import Normaliser, RewardMixer

Floats = NDArray[np.float64]
SUCCESS, FAILURE, ENDED, TIME_LIMIT, RUNNING = "success", "failure", "ended", "time limit", "still running"
ENDINGS = (SUCCESS, FAILURE, ENDED, TIME_LIMIT, RUNNING)
"""`ended`: terminated, and the environment does not report `is_success`; `still running`: cut by the recording."""

MAX_STEPS = 20_000
"""Steps per environment after which a recording ends."""


@dataclass(frozen=True)
class End:
    """The end of an episode.

    Attributes:
        truncated: a time limit ended it.
        success: None where the environment does not report it.
        bootstrap: [heads], value of what follows the last step; None where the return ends here.
    """

    truncated: bool
    success: bool | None = None
    bootstrap: Floats | None = None

    @property
    def name(self) -> str:
        """One of ENDINGS."""
        if self.success:
            return SUCCESS
        if self.truncated:
            return TIME_LIMIT
        return ENDED if self.success is None else FAILURE


@dataclass(frozen=True)
class Episode:
    """T steps of one episode. None marks what the model or the bonus does not have.

    Attributes:
        ending: one of ENDINGS.
        success: None where the environment does not report it.
        extrinsic: [T], the environment's reward, not weighted.
        bonus: [T], b.
        intrinsic: [T], beta * b / sigma.
        valid: [T] bool, the observation that the step arrived in is known, so it has a bonus.
        rewards: [T, heads], what each value head predicts the discounted sum of.
        probabilities: [T, A], of the discrete actions, in the states that the steps left.
        values: [T, heads], of the same states.
        bootstrap: [heads], value of what follows the last step; 0 where the episode really ended.
        opening: [d], phi of the first observation.
        phi: [T, d], of the arriving observations.
        inverse_right: [T], share of the action that the inverse model predicted correctly.
    """

    ending: str
    success: bool | None
    extrinsic: Floats
    bonus: Floats
    intrinsic: Floats
    valid: NDArray[np.bool_]
    rewards: Floats
    probabilities: Floats | None = None
    values: Floats | None = None
    bootstrap: Floats | None = None
    opening: NDArray[np.float32] | None = None
    phi: NDArray[np.float32] | None = None
    inverse_right: Floats | None = None

    def __len__(self) -> int:
        return len(self.extrinsic)

    def returns(self, gammas: tuple[float, ...]) -> Floats:
        """[T, heads]: discounted sums of `rewards` from each step to the end."""
        following = np.zeros(len(gammas)) if self.bootstrap is None else self.bootstrap
        result = np.empty_like(self.rewards)
        for t in reversed(range(len(self))):
            following = self.rewards[t] + np.array(gammas) * following
            result[t] = following
        return result


@dataclass(frozen=True)
class Setup:
    """The settings of the run that the findings need.

    Attributes:
        title: names the run, for the headline.
        gammas: discount factor of each value head.
        beta, extrinsic, penalties: weights of the bonus, of the environment's reward and of its negative values.
        sigma: the running deviation that the bonus is divided by.
        normaliser: how sigma is computed (`e3b_gym.reward`).
        clip: bound of the mixed reward; None for no bound.
        options: other options in effect by name (ent_coef, vf_coef, ridge, ...), to be shown next to a finding.
        has_bonus: False for method "none".
        ridge, opens: of the elliptical bonus: its ridge, and whether the first observation is part of the ellipse.
            None where the bonus has no ellipse.
        unit_length: whether the elliptical bonus scales phi to length 1.
        action_names: names of the discrete actions, where the environment has names.
        train_encoder: how the encoder's training is switched on or made faster.
    """

    title: str
    gammas: tuple[float, ...] = (0.99,)
    beta: float = 1.0
    extrinsic: float = 1.0
    penalties: float = 1.0
    sigma: float = 1.0
    normaliser: Normaliser = "std"
    clip: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    has_bonus: bool = True
    ridge: float | None = None
    opens: bool = False
    unit_length: bool = False
    action_names: tuple[str, ...] = ()
    train_encoder: str = "train the encoder"

    def weigh(self, reward: Floats) -> Floats:
        """The environment's part of the mixed reward; see `RewardMixer.weigh`."""
        mixer = RewardMixer(extrinsic=self.extrinsic, penalties=self.penalties)
        return mixer.weigh(torch.from_numpy(reward)).numpy()


class Recording:
    """Collects steps of `num_envs` environments until every environment has played its share of `episodes`.

    Args:
        num_envs: N.
        episodes: how many in all.
        max_steps: steps per environment after which the recording ends; running episodes are cut there.
    """

    def __init__(self, num_envs: int, episodes: int, max_steps: int = MAX_STEPS) -> None:
        if episodes < 1 or max_steps < 1:
            raise ValueError(f"episodes and max_steps must be at least 1; got {episodes} and {max_steps}")
        self._wanted = [len(range(env, episodes, num_envs)) for env in range(num_envs)]
        self._played: list[list[Episode]] = [[] for _ in range(num_envs)]
        self._running: list[list[dict[str, Any]]] = [[] for _ in range(num_envs)]
        self._left = max_steps

    @property
    def complete(self) -> bool:
        pairs = zip(self._played, self._wanted, strict=True)
        return self._left <= 0 or all(len(played) >= wanted for played, wanted in pairs)

    @property
    def episodes(self) -> list[Episode]:
        """The recorded episodes; where the recording was cut before any ended, the running ones."""
        ended = [episode for played, n in zip(self._played, self._wanted, strict=True) for episode in played[:n]]
        if self._left > 0:
            return ended
        cut = [env for env, played in enumerate(self._played) if len(played) < self._wanted[env]]
        return ended + [_episode(self._running[env], None) for env in cut if self._running[env]]

    def add(self, step: Mapping[str, NDArray[Any] | None], ends: Mapping[int, End]) -> None:
        """Adds one step of every environment.

        Args:
            step: fields of Episode, each [N, ...] or None; `opening` is phi of the observation that the step left.
            ends: how the episodes ended that this step ended, by environment.
        """
        self._left -= 1
        for env, running in enumerate(self._running):
            if len(self._played[env]) >= self._wanted[env]:
                continue
            running.append({name: None if values is None else np.array(values[env]) for name, values in step.items()})
            if env in ends:
                self._played[env].append(_episode(running, ends[env]))
                running.clear()


def _episode(steps: list[dict[str, Any]], end: End | None) -> Episode:
    columns: dict[str, Any] = {}
    for name, first in steps[0].items():
        if name == "opening":
            columns[name] = first
        else:
            columns[name] = None if first is None else np.stack([step[name] for step in steps])
    if end is None:
        return Episode(RUNNING, None, **columns)
    return Episode(end.name, end.success, bootstrap=end.bootstrap, **columns)
