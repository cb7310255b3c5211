"""Agents: Stable-Baselines-style learners for exploration bonuses, used from a clone of the repository."""
