"""Agents: Stable-Baselines-style learners for exploration bonuses."""

from agents.recurrent_ppo import RecurrentPPO

__all__ = ["RecurrentPPO"]
