"""The agents by name: AGENT=impala, ppo, recurrent_ppo, random, random-forward. `register_agent` adds another."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agents.impala.config import Config
from agents.ppo.config import PPOConfig, RecurrentPPOConfig
from agents.protocols import Player, Trainee
from agents.random_agent import RandomConfig, RandomForwardConfig
from agents.run_config import RunConfig
from e3b_gym.options import closest

if TYPE_CHECKING:
    from torch import Tensor

    from e3b_gym.diagnosis import Episode, Setup

Factory = Callable[..., Any] | str


@dataclass(frozen=True)
class Agent:
    """An agent as the commands use it. Factories may be given as "module:name", imported when used."""

    config: type[RunConfig]
    """Every option of a run, with its default and its check."""
    player: Factory
    """Makes a `Player`: (config, checkpoints, which, spaces, greedy, seed)."""
    trainer: Factory | None = None
    """Makes a `Trainee`: (config, keep, resume). None for an agent that cannot be trained."""
    recorder: Factory | None = None
    """Plays for `make doctor`: (config, player, envs, seeds, episodes, seed) -> (episodes, setup). None: no doctor."""
    kind: str | None = None
    """Kind of its checkpoints, for `make export`; None: it cannot be exported."""
    tables: Factory | None = None
    """Embedding tables before training, for smaller exports: (config) -> {file: {name: weights}}. None: no such."""

    def make_trainee(self, *arguments: Any) -> Trainee:
        """See `trainer`."""
        if self.trainer is None:
            raise ValueError("this agent cannot be trained")
        trainee: Trainee = _load(self.trainer)(*arguments)
        return trainee

    def make_player(self, *arguments: Any) -> Player:
        """See `player`."""
        player: Player = _load(self.player)(*arguments)
        return player

    def record(self, *arguments: Any) -> tuple[list[Episode], Setup]:
        """See `recorder`."""
        if self.recorder is None:
            raise ValueError("this agent has no recorder")
        recorded: tuple[list[Episode], Setup] = _load(self.recorder)(*arguments)
        return recorded

    def initial_tables(self, config: RunConfig) -> dict[str, dict[str, Tensor]]:
        """See `tables`."""
        found: dict[str, dict[str, Tensor]] = {} if self.tables is None else _load(self.tables)(config)
        return found


_PPO = ("agents.ppo.model:SB3Player", "agents.ppo.training:SB3Trainee", "agents.ppo.model:record_episodes")
AGENTS: dict[str, Agent] = {
    "impala": Agent(
        Config,
        "agents.impala.run:ImpalaPlayer",
        "agents.impala.run:ImpalaTrainee",
        "agents.impala.diagnosing:record",
        "IMPALA",
        "agents.impala.run:initial_tables",
    ),
    "recurrent_ppo": Agent(RecurrentPPOConfig, *_PPO, "RecurrentPPO"),
    "ppo": Agent(PPOConfig, *_PPO, "PPO"),
    "random": Agent(RandomConfig, "agents.random_agent:RandomPlayer"),
    "random-forward": Agent(RandomForwardConfig, "agents.random_agent:RandomPlayer"),
}


def register_agent(name: str, agent: Agent) -> None:
    """Adds an agent; `make train AGENT=<name>`, evaluate and watch accept it from now on."""
    if name in AGENTS:
        raise ValueError(f"there is an agent {name!r} already; choose another name")
    AGENTS[name] = agent


def find_agent(name: str) -> Agent:
    """The agent of a name; raises ValueError with the closest names."""
    if name not in AGENTS:
        raise ValueError(f"unknown AGENT={name}; {closest(name, AGENTS)}")
    return AGENTS[name]


def _load(factory: Factory) -> Callable[..., Any]:
    if not isinstance(factory, str):
        return factory
    module, name = factory.split(":")
    made: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return made
