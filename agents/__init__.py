"""Agents: Stable-Baselines-style learners for exploration bonuses."""
