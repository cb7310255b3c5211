"""Agents: Stable-Baselines-style learners for exploration bonuses, used from a clone of the repository."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agents.impala.model import IMPALA as IMPALA

__all__ = ["IMPALA"]


def __getattr__(name: str) -> Any:
    """Imports the model, and with it Stable-Baselines3, when it is first used."""
    if name == "IMPALA":
        from agents.impala.model import IMPALA

        return IMPALA
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
