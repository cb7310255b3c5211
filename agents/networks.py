"""The networks of a run: those of its suite, or the generic ones."""

from __future__ import annotations

import dataclasses
from typing import Any

from agents.run_config import RunConfig
from e3b_gym.encoders import Networks, generic_networks
from e3b_gym.envs.registry import suite_of


def has_own_networks(env: str) -> bool:
    """Whether the environment's suite has its own networks; other environments use the generic encoder."""
    suite = suite_of(env)
    return suite is not None and suite.networks is not None


def networks_for(config: RunConfig) -> Networks:
    """The networks of a run."""
    suite = suite_of(config.env)
    own = None if suite is None else suite.load_networks(config.net)
    networks = own or generic_networks(config.dim or 256)
    return networks if config.lstm is None else dataclasses.replace(networks, lstm=config.lstm)


def env_options_for(config: RunConfig) -> dict[str, Any]:
    """The options of the run's environments: those that its networks need, and those that were chosen."""
    needed = networks_for(config).env_options if config.has_networks else {}
    return {**needed, **config.env_options}
