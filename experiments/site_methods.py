"""The pages of the methods on the site: equation, source, composition, and when to use each."""

from __future__ import annotations

from dataclasses import dataclass

from e3b_gym.bonuses import METHODS

_KEYS = ("position", "image", "message", "subsampled", "global")


@dataclass(frozen=True)
class Family:
    """A method and its variants."""

    says: str
    """What the bonus rewards, in one or two sentences."""
    equation: str
    source: str
    terms: str
    """Composition, with {key} for what is counted."""
    when: str

    def composition(self, name: str) -> str:
        """The composition as Python code."""
        if name in COMPOSITIONS:
            return COMPOSITIONS[name]
        suffix = name.rsplit("-", 1)[-1]
        return self.terms.format(key=suffix if suffix in _KEYS and suffix != "global" else "full")


_HENAFF = "Henaff, Raileanu, Jiang, Rocktäschel: Exploration via Elliptical Episodic Bonuses, NeurIPS 2022"
_ZHANG = "Zhang et al.: NovelD, NeurIPS 2021; with counts as in Table 1 of the E3B paper"
_RAILEANU = "Raileanu, Rocktäschel: RIDE, ICLR 2020"
_BURDA = "Burda et al.: Exploration by Random Network Distillation, ICLR 2019"
_AGAC = "Flet-Berliac et al.: Adversarially Guided Actor-Critic, ICLR 2021"

FAMILIES: dict[str, Family] = {
    "none": Family(
        "No bonus: the baseline that every exploration method has to beat.",
        "b = 0",
        "-",
        "NoBonus()",
        "As the comparison: run it with the same budget before you believe that a bonus helps.",
    ),
    "e3b": Family(
        "The bonus of a step is the distance of the new state from an ellipse fitted to the earlier states of the "
        "episode, in an embedding that keeps what the agent controls.",
        "b(s') = φ(s')ᵀ C⁻¹ φ(s')\n"
        "then     C ← C + φ(s') φ(s')ᵀ\n"
        "at first C = λ I      in every episode\n"
        "λ: ridge; φ: predicts the action from s, s'",
        _HENAFF,
        "Elliptical(InverseDynamics(encoder))",
        "Every episode is a new environment, observations never repeat exactly (clock, noise, pixels), reward is "
        "sparse. Where observations do repeat, a count is simpler and as good.",
    ),
    "e3b-x-rnd": Family(
        "E3B times RND's lifelong novelty: high where the state is new in the episode and rare in all of training.",
        "b = φᵀ C⁻¹ φ · |f(s') - f_random(s')|²",
        _HENAFF,
        "Elliptical(InverseDynamics(encoder)) * RND(f, target)",
        "One environment for all episodes, or few: the lifelong term moves exploration on once a region is known.",
    ),
    "e3b-x-noveld": Family(
        "E3B times NovelD's gain of lifelong novelty.",
        "b = φᵀ C⁻¹ φ · [ n(s') - alpha n(s) ]₊\nn(s) = |f(s) - f_random(s)|",
        _HENAFF,
        "Elliptical(InverseDynamics(encoder)) * NoveltyGain(RND(f, target), alpha)",
        "As `e3b-x-rnd`, with a bonus at the border between known and unknown only.",
    ),
    "noveld": Family(
        "Rewards the first visit in an episode of a state that is more novel in all of training than the one before.",
        "b = [ n(s') - alpha n(s) ]₊ · 1[N(s') = 1]\nn(s) = |f(s) - f_random(s)|",
        _ZHANG,
        "NoveltyGain(RND(f, target), alpha) * FirstVisit({key})",
        "States can be counted: the key names a part of the observation that repeats. Counting whole observations "
        "fails under a clock or noise.",
    ),
    "ride": Family(
        "Rewards actions that change the embedding, less with every visit of the state in the episode.",
        "b = |φ(s') - φ(s)| / √N(s')",
        _RAILEANU,
        "Impact(InverseForwardDynamics(encoder)) * InverseSqrtCount({key})",
        "Procedurally generated grids with objects to act on, and a countable part of the observation.",
    ),
    "agac": Family(
        "Rewards behaviour that an adversary, trained to imitate the policy, does not predict; plus a count.",
        "b = KL( π(·|s) ‖ π_adv(·|s) ) + c / √N(s')",
        _AGAC,
        "PolicyDivergence(adversary) + count_coef * InverseSqrtCount({key})",
        "Discrete actions; needs the acting policy, which the callback and the agents of `make train` pass to it.",
    ),
    "rnd": Family(
        "Rewards observations that are rare in all of training: the error of a network that imitates a random network.",
        "b(s') = |f(s') - f_random(s')|²",
        _BURDA,
        "RND(f, target)",
        "One large environment that is the same in every episode (Montezuma's Revenge). It has no episodic memory, so "
        "in environments that change every episode the bonus vanishes before they are explored.",
    ),
    "icm": Family(
        "Rewards transitions that a forward model of the embedding does not predict.",
        "b = ½ |f(φ(s), a) - φ(s')|²",
        "Pathak, Agrawal, Efros, Darrell: Curiosity-driven Exploration by Self-supervised Prediction, ICML 2017",
        "Curiosity(InverseForwardDynamics(encoder))",
        "Deterministic dynamics; noise that the agent can trigger keeps its bonus high forever.",
    ),
    "count": Family(
        "Rewards states by how seldom they were visited in the episode.",
        "b = 1 / √N(s')",
        "Strehl, Littman 2008; episodic as in Henaff et al. 2022, Table 1",
        "InverseSqrtCount({key})",
        "Small discrete observations, or a key such as the position. Nothing to train.",
    ),
    "first-visit": Family(
        "1 for the first visit of a state in the episode, 0 afterwards.",
        "b = 1[N(s') = 1]",
        "the episodic term of NovelD alone; Henaff et al. 2022, Table 1",
        "FirstVisit({key})",
        "As `count`; the simplest bonus of all and a strong baseline where states can be counted.",
    ),
}
COMPOSITIONS = {
    "e3b-random": "Elliptical(Frozen(encoder))",
    "e3b-policy": "Elliptical(PolicyFeatures())",
    "e3b-nonepisodic": "Elliptical(InverseDynamics(encoder), episodic=False)",
    "noveld-nocount": "NoveltyGain(RND(f, target), alpha)",
    "ride-nocount": "Impact(InverseForwardDynamics(encoder))",
    "agac-nocount": "PolicyDivergence(adversary)",
    "count-global": "InverseSqrtCount(full, episodic=False)",
}
VARIANTS = {
    "e3b-random": "This variant has a random encoder that is never trained (an ablation of the paper).",
    "e3b-policy": "This variant reads the policy's own features (an ablation of the paper); it needs the callback "
    "from the first step.",
    "e3b-nonepisodic": "This variant never clears the ellipse (an ablation of the paper).",
    "noveld-position": "This variant counts positions.",
    "noveld-image": "This variant counts images (the map in MiniHack).",
    "noveld-message": "This variant counts messages (MiniHack).",
    "noveld-subsampled": "This variant counts subsampled images with position and heading (the paper's in Habitat).",
    "noveld-nocount": "This variant has no episodic count (Figure 2 of the paper).",
    "ride-position": "This variant counts positions.",
    "ride-message": "This variant counts messages (MiniHack).",
    "ride-nocount": "This variant has no episodic count (Figure 2 of the paper).",
    "agac-nocount": "This variant has no episodic count (Figure 2 of the paper).",
    "count-position": "This variant counts positions.",
    "count-image": "This variant counts images (the map in MiniHack).",
    "count-message": "This variant counts messages (MiniHack).",
    "count-global": "This variant counts over all of training instead of the episode.",
}

MEANINGS = {
    "beta": "weight of the bonus in the reward",
    "extrinsic": "weight of the environment's reward; 0: reward-free",
    "penalties": "further weight of the environment's negative rewards; 0: ignored",
    "normaliser": "divisor of the bonus: running deviation, the authors' (too large), or none",
    "clip": "the total reward is clipped to this size",
    "floor": "the running deviation is at least this share of the mean bonus",
    "representation": "what phi is: trained by inverse dynamics, random, or the policy's features",
    "hidden": "units of the hidden layer of the dynamics models",
    "sees": "entries of a Dict observation that the encoder reads; None: all",
    "ridge": "lambda; a direction not yet seen has the bonus |phi|^2 / ridge",
    "episodic": "clear the memory when an episode starts",
    "unit_length": "scale phi to length 1",
    "include_first": "the first observation of the episode is in the ellipse, unscored",
    "bonus_of": "state whose bonus a step gets: the next (Algorithm 1) or the current one",
    "zero_first": "no bonus for the first step of an episode",
    "ellipse": "how it is computed; the others than exact are slower, for comparison",
    "key": "what is counted: full, position, image, message, subsampled, or your function",
    "alpha": "share of the earlier novelty that is subtracted",
    "inverse_coef": "weight of the inverse model's loss",
    "forward_coef": "weight of the forward model's loss",
    "count_coef": "weight of the count",
    "dim": "size of the generic encoder's embedding",
}
"""What each option of a method means, in one line."""


def family_of(name: str) -> str:
    """The entry of FAMILIES for a method."""
    if name not in METHODS:
        raise ValueError(f"{name} is not a method")
    return next(family for family in sorted(FAMILIES, key=len, reverse=True) if name.startswith(family))
