"""The hyper-parameter tables of the paper's appendix as data; a test compares every number with PRESET=paper.

A row is (name in the paper, value, option of `make train`), or (name, value, None, why there is no such option).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MINIHACK, VIZDOOM = "MiniHack-MultiRoom-N6-Lava-v0", "VizdoomMyWayHomeSparse-v0"
HABITAT = "Habitat-FloorPlan-v0"
ALL_MINIHACK = ("none", "rnd", "e3b", "noveld", "noveld-position", "noveld-image", "noveld-message", "ride", "icm")


@dataclass(frozen=True)
class HyperParameters:
    """One table."""

    label: str
    """Label of the table in the paper's source."""
    env: str
    methods: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    agent: str = "impala"


_ENTROPY, _BETA = "Entropy Cost", "Intrinsic reward coefficient"
_NORMALISED = "Running intrinsic reward normalization"
_DYNAMICS = (
    ("Forward Model loss coefficient", 1.0, "forward_coef"),
    ("Inverse Model loss coefficient", 0.1, "inverse_coef"),
    (_ENTROPY, 0.0005, "ent_coef"),
    (_BETA, 0.1, "beta"),
    (_NORMALISED, "none", "normaliser"),  # the tables of RIDE and ICM do not have the row
)

TABLES = (
    HyperParameters(
        "tab:hyperparams-common",
        MINIHACK,
        ALL_MINIHACK,
        (
            ("Learning Rate", 0.0001, "learning_rate"),
            ("RMSProp smoothing constant", 0.99, "rms_alpha"),
            ("RMSProp momentum", 0, None, "PyTorch's RMSprop has none by default; tested"),
            ("RMSProp epsilon", 1e-5, "rms_eps"),
            ("Unroll Length", 80, "n_steps"),
            ("Number of buffers", 80, "n_envs"),
            ("Number of learner threads", 4, None, "the learner has two, one for the policy and one for the encoder"),
            ("Number of actor threads", 256, None, "one actor steps its environments as a batch"),
            ("Max gradient norm", 40.0, "max_grad_norm"),
            ("Baseline Cost", 0.5, "vf_coef"),
            ("Discounting Factor", 0.99, "gamma"),
            ("Environment steps", 50_000_000, "steps"),  # in the text
        ),
    ),
    HyperParameters("tab:hyperparams-common, entropy", MINIHACK, ("none", "rnd"), ((_ENTROPY, 0.0005, "ent_coef"),)),
    HyperParameters(
        "tab:hyperparams-e3b",
        MINIHACK,
        ("e3b", "e3b-random", "e3b-policy", "e3b-nonepisodic"),
        (
            (_NORMALISED, "std", "normaliser"),
            ("Ridge regularizer", 0.1, "ridge"),
            (_ENTROPY, 0.005, "ent_coef"),
            (_BETA, 1.0, "beta"),
        ),
    ),
    HyperParameters(
        "tab:hyperparams-noveld",
        MINIHACK,
        ("noveld", "noveld-position", "noveld-image", "noveld-message"),
        (
            (_NORMALISED, "std", "normaliser"),
            ("Scaling factor", 0.1, "alpha"),
            (_ENTROPY, 0.005, "ent_coef"),
            (_BETA, 1.0, "beta"),
        ),
    ),
    HyperParameters("tab:hyperparams-ride", MINIHACK, ("ride", "ride-position", "ride-message"), _DYNAMICS),
    HyperParameters("tab:hyperparams-icm", MINIHACK, ("icm",), _DYNAMICS),
    HyperParameters(
        "VizDoom, E3B",
        VIZDOOM,
        ("e3b",),
        (
            (_NORMALISED, "none", "normaliser"),
            ("Ridge regularizer", 0.1, "ridge"),
            (_BETA, 3e-6, "beta"),
            ("Learning Rate", 0.0001, "learning_rate"),  # "the same IMPALA hyperparameters as for MiniHack"
            ("Unroll Length", 80, "n_steps"),
            (_ENTROPY, 0.005, "ent_coef"),
        ),
    ),
    HyperParameters(
        "VizDoom, RIDE",
        VIZDOOM,
        ("ride",),
        (
            (_NORMALISED, "none", "normaliser"),
            ("Forward loss coefficient", 0.5, "forward_coef"),
            ("Inverse loss coefficient", 0.8, "inverse_coef"),
            (_BETA, 3e-2, "beta"),
        ),
    ),
    HyperParameters(
        "VizDoom, ICM",
        VIZDOOM,
        ("icm",),
        (
            (_NORMALISED, "none", "normaliser"),
            ("Forward loss coefficient", 0.2, "forward_coef"),
            ("Inverse loss coefficient", 0.8, "inverse_coef"),
            (_ENTROPY, 0.005, "ent_coef"),
            (_BETA, 3e-3, "beta"),
        ),
    ),
    HyperParameters(
        "tab:hyperparams-common-habitat",
        HABITAT,
        ("e3b", "icm", "rnd", "noveld-subsampled"),
        (
            ("Clipping", 0.2, "clip_range"),
            ("PPO epochs", 2, "n_epochs"),
            ("Number of minibatches", 2, None, "batch_size is n_steps * n_envs / 2; tested"),
            ("Value loss coefficient", 0.5, "vf_coef"),
            ("Entropy coefficient", 0.00005, "ent_coef"),
            ("Learning rate", 0.00025, "learning_rate"),
            ("epsilon", 1e-5, None, "Stable-Baselines3's own for Adam; tested"),
            ("Max gradient norm", 0.2, "max_grad_norm"),
            ("Rollout steps", 128, "n_steps"),
            ("Use GAE", True, None, "PPO always does"),
            ("gamma", 0.99, "gamma"),
            ("tau", 0.95, "gae_lambda"),
            ("Use linear clip decay", False, None, "there is none; tested"),
            ("Use linear LR decay", False, None, "there is none; tested"),
            ("Use normalized advantage", False, "normalize_advantage"),
            ("Hidden size", 512, "lstm"),
            ("DD-PPO Sync fraction", 0.6, None, "one worker has nothing to synchronise"),
            ("Environment steps", 225_000_000, "steps"),  # in the text
            (_BETA, 0.1, "beta"),
            ("Model updates per PPO epoch", 3, "encoder_epochs"),
        ),
        "recurrent_ppo",
    ),
    HyperParameters(
        "tab:hyperparams-habitat-e3b", HABITAT, ("e3b",), (("Ridge regularizer", 0.1, "ridge"),), "recurrent_ppo"
    ),
    HyperParameters(
        "tab:hyperparams-habitat-noveld",
        HABITAT,
        ("noveld-subsampled",),
        (("Scaling factor", 0.1, "alpha"),),
        "recurrent_ppo",
    ),
    HyperParameters(
        "tab:hyperparams-habitat-icm",
        HABITAT,
        ("icm",),
        (("Forward Dynamics Model loss coefficient", 1.0, "forward_coef"),),
        "recurrent_ppo",
    ),
)
