"""Exploration via Elliptical Episodic Bonuses: wrappers, bonuses and worlds for sparse-reward reinforcement learning."""

from e3b_gym.version import __version__

__all__ = ["__version__"]
