"""Options that change over a run: each has a final value, such as `ent_coef_final` for `ent_coef`.

They change linearly. `uniform_coef`, whose useful values span two orders of magnitude, changes geometrically: its
logarithm changes linearly.
"""

from __future__ import annotations

from agents.impala.config import Config


def scheduled(config: Config, frames: int) -> dict[str, float]:
    """The options that change in this run, with their values after `frames` frames; the last ones stay after `steps`.

    >>> config = Config(env="Rooms-K3-v0", steps=100, ent_coef=0.03, ent_coef_final=0.01)
    >>> scheduled(config, 50)
    {'ent_coef': 0.02}
    """
    ranges = {
        "ent_coef": (config.ent_coef, config.ent_coef_final),
        "clip_range_high": (config.clip_range_high, config.clip_range_high_final),
        "beta": (config.bonus.beta, config.beta_final),
        "learning_rate": (config.learning_rate, config.learning_rate_final),
    }
    progress = min(frames / config.steps, 1.0)
    values = {
        name: (1.0 - progress) * first + progress * last
        for name, (first, last) in ranges.items()
        if first is not None and last is not None
    }
    if config.uniform_coef_final is not None:
        values["uniform_coef"] = config.uniform_coef ** (1.0 - progress) * config.uniform_coef_final**progress
    return values
