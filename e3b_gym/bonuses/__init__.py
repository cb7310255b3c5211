"""Exploration bonuses, composed of small terms."""

from e3b_gym.bonuses.base import Bonus, Memory, NoBonus, NoMemory, Product, Scaled, Sum
from e3b_gym.bonuses.counts import FirstVisit, InverseSqrtCount
from e3b_gym.bonuses.divergence import PolicyDivergence
from e3b_gym.bonuses.dynamics import Curiosity, Impact
from e3b_gym.bonuses.elliptical import Elliptical
from e3b_gym.bonuses.keys import make_key
from e3b_gym.bonuses.methods import METHODS, make_bonus
from e3b_gym.bonuses.representations import (
    Features,
    Frozen,
    InverseDynamics,
    InverseForwardDynamics,
    PolicyFeatures,
    Representation,
    embed_unroll,
)
from e3b_gym.bonuses.rnd import RND, NoveltyGain

__all__ = [
    "METHODS",
    "RND",
    "Bonus",
    "Curiosity",
    "Elliptical",
    "Features",
    "FirstVisit",
    "Frozen",
    "Impact",
    "InverseDynamics",
    "InverseForwardDynamics",
    "InverseSqrtCount",
    "Memory",
    "NoBonus",
    "NoMemory",
    "NoveltyGain",
    "PolicyDivergence",
    "PolicyFeatures",
    "Product",
    "Representation",
    "Scaled",
    "Sum",
    "embed_unroll",
    "make_bonus",
    "make_key",
]
