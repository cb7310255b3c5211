"""check_bonus finds what it promises to find: each broken bonus below fails the check of its promise."""

import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn

from e3b_gym.bonuses import Bonus, embed_unroll, make_bonus
from e3b_gym.checks import check_bonus
from e3b_gym.errors import ContractError

SPACES = Box(-1, 1, (3,)), Discrete(2)


class Distance(Bonus):
    """A sound bonus: how far the step went."""

    def embed(self, unroll, previous=None):
        return embed_unroll(lambda obs: obs, unroll, previous)

    def score(self, features, unroll, memory):
        return unroll.masked((features.next - features.current).norm(dim=-1))


class WrongShape(Distance):
    def score(self, features, unroll, memory):
        return super().score(features, unroll, memory)[:, :1]


class Infinite(Distance):
    def score(self, features, unroll, memory):
        return super().score(features, unroll, memory) / 0.0


class CarriesGradients(Distance):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def score(self, features, unroll, memory):
        return self.scale * super().score(features, unroll, memory)


class TrainsWhileScoring(Distance):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def score(self, features, unroll, memory):
        self.seen += unroll.done.numel()
        return super().score(features, unroll, memory)


class DependsOnTheUnroll(Distance):
    def score(self, features, unroll, memory):
        score = super().score(features, unroll, memory)
        return score - score.mean(dim=0)


class MixesEnvironments(Distance):
    def score(self, features, unroll, memory):
        return unroll.masked(super().score(features, unroll, memory).mean(dim=1, keepdim=True))


class PrefersTheFirstColumn(Distance):
    def score(self, features, unroll, memory):
        return super().score(features, unroll, memory) * (torch.arange(unroll.num_envs) == 0)


class ScoresTheUnknown(Distance):
    def score(self, features, unroll, memory):
        return (features.next - features.current).norm(dim=-1)


class StaleFeatures(Distance):
    def embed(self, unroll, previous=None):
        return previous if previous is not None else super().embed(unroll)


class VectorLoss(Distance):
    def loss(self, features, unroll):
        return {"all": features.next.sum(dim=-1)}


class Steps:
    def __init__(self, num_envs):
        self.count = torch.zeros(num_envs)

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


class NeverForgets(Distance):
    def new_memory(self, num_envs):
        return Steps(num_envs)

    def score(self, features, unroll, memory):
        slots = torch.arange(unroll.num_envs) if unroll.slots is None else unroll.slots
        rows = []
        for distance in super().score(features, unroll, memory):
            memory.count[slots] += 1
            rows.append(distance * memory.count[slots])
        return torch.stack(rows)


class ForgetsWhenSaved(NeverForgets):
    episodic = False


def test_a_sound_bonus_passes():
    check_bonus(Distance(), *SPACES)


@pytest.mark.parametrize(
    ("bonus", "message"),
    [
        (WrongShape, r"must be floating \[T, B\]"),
        (Infinite, "NaN or infinite"),
        (CarriesGradients, "must not carry gradients"),
        (TrainsWhileScoring, "scoring changed 'seen'"),
        (DependsOnTheUnroll, "splitting an unroll"),
        (MixesEnvironments, "depends on the others"),
        (PrefersTheFirstColumn, "reordering the environments"),
        (ScoresTheUnknown, "must be 0 where the terminal observation is unknown"),
        (StaleFeatures, r"embed\(unroll, previous\)"),
        (VectorLoss, "a finite scalar"),
        (NeverForgets, "remembers earlier episodes"),
        (ForgetsWhenSaved, "saved and loaded gives other bonuses"),
    ],
)
def test_each_violated_requirement_is_named(bonus, message):
    with pytest.raises(ContractError, match=message):
        check_bonus(bonus(), *SPACES)


def test_the_spaces_come_from_the_bonus_or_the_caller():
    with pytest.raises(ValueError, match="has no spaces"):
        check_bonus(Distance())
    check_bonus(make_bonus("rnd", *SPACES, 2, dim=4))


def test_a_bonus_without_score_says_so():
    with pytest.raises(NotImplementedError, match="must define score"):
        check_bonus(Bonus(), *SPACES)
