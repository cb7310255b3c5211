"""Agents: Stable-Baselines-style learners for exploration bonuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agents.recurrent_ppo import RecurrentPPO as RecurrentPPO

__all__ = ["RecurrentPPO"]


def __getattr__(name: str) -> Any:
    """Stable-Baselines3 is imported by those who use it."""
    if name == "RecurrentPPO":
        from agents.recurrent_ppo import RecurrentPPO

        return RecurrentPPO
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
