"""A suite and an agent from outside the package: trained, evaluated and watched without editing a file."""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
import torch
import yaml
from tiny_runs import FRAMES, tiny

from agents.checkpoint import CheckpointStore, load_checkpoint
from agents.protocols import Episodes, Update
from agents.registry import AGENTS, Agent, register_agent
from agents.run_config import RunConfig
from e3b_gym.building import build_explorer
from e3b_gym.config import BonusConfig
from e3b_gym.encoders import Encoder, Networks
from e3b_gym.envs import Suite, Task, make, make_vec, register_suite
from e3b_gym.envs.registry import SUITES
from e3b_gym.options import Count
from experiments.doctor import main as doctor
from experiments.evaluate import main as evaluate
from experiments.train import main as train
from experiments.watch import main as watch

CORRIDOR = "Toy-Corridor-v0"


class Corridor(gym.Env[Any, Any]):
    """Walk to the right end; `length` and `max_steps` are its options."""

    action_space = gym.spaces.Discrete(2)
    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"], "render_fps": 10}

    def __init__(self, length: Count = 5, max_steps: Count = 12, render_mode: str | None = None) -> None:
        self.length, self.max_steps, self.render_mode = length, max_steps, render_mode
        self.observation_space = gym.spaces.Box(0.0, 1.0, (length,))

    def _see(self) -> Any:
        return np.eye(self.length, dtype=np.float32)[self.place]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place, self.steps = 0, 0
        return self._see(), {}

    def step(self, action: Any) -> Any:
        self.place, self.steps = max(self.place + (1 if action else -1), 0), self.steps + 1
        done = self.place == self.length - 1
        return self._see(), float(done), done, not done and self.steps >= self.max_steps, {"is_success": done}

    def render(self) -> str:
        return "." * self.place + "@" + "." * (self.length - self.place - 1)


class Shallow(Encoder):
    """The toy suite's network."""

    def __init__(self, space: gym.Space[Any], dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.line = torch.nn.Linear(int(np.prod(space.shape or ())), dim)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.line(obs))


@pytest.fixture
def corridor(tmp_path, monkeypatch):
    """The toy suite, as a package of another author would register it."""
    module = types.ModuleType("toy_suite")
    module.TASKS = {CORRIDOR: Task("navigation", ("left", "right"), 12, "this test")}
    module.make = lambda id, **options: Corridor(**options)
    module.Corridor = Corridor
    module.networks = lambda: Networks(lambda space: Shallow(space, 6), lambda space: Shallow(space, 4), lstm=7)
    (tmp_path / "presets.yaml").write_text("home: {impala: {all: {bonus: {preset: default, beta: 0.2}}}}")
    module.__spec__ = types.SimpleNamespace(origin=str(tmp_path / "toy_suite.py"))
    monkeypatch.setitem(sys.modules, "toy_suite", module)
    before = list(SUITES)
    register_suite(
        Suite("Toy", "Toy-", "toy_suite", "toy_suite", options=("toy_suite:Corridor",), networks="toy_suite")
    )
    yield CORRIDOR
    SUITES[:] = before


def test_a_suite_from_outside_is_made_trained_evaluated_and_watched(corridor, tmp_path, capsys):
    assert make(corridor, length=4).observation_space.shape == (4,)
    assert make_vec(corridor, 3).num_envs == 3
    run = tmp_path / "run"
    options = [option for option in tiny(run, corridor, "impala", "env.length=4") if not option.startswith("lstm=")]
    assert train(options) == 0
    config = yaml.safe_load((run / "config.yaml").read_text())["config"]
    assert (config["bonus"]["beta"], config["lstm"], config["dim"], config["env_options"]) == (
        0.2,
        7,
        None,
        {"clock": False, "noise": 0, "max_steps": 12, "length": 4},
    )
    assert evaluate([f"RUN={run}", "EPISODES=3"]) == 0
    assert watch([f"RUN={run}", "EPISODES=1"]) == 0
    assert "@" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("env.length=long", "env.length must be a whole number of at least 1; got 'long'"),
        ("env.colour=red", "Toy-Corridor-v0 has no option env.colour"),
        ("dim=3", "dim= has no effect: the networks of Toy have a fixed size"),
    ],
)
def test_its_options_have_types_too(corridor, option, reason, tmp_path, capsys):
    assert train([*tiny(tmp_path / "run", corridor), option]) == 2
    assert reason in capsys.readouterr().err


def test_two_suites_cannot_claim_one_id(corridor):
    with pytest.raises(ValueError, match="conflicts with Toy"):
        register_suite(Suite("Other", "Toy-Corridor", "other", "other"))


@dataclass(frozen=True)
class StubbornConfig(RunConfig):
    """An agent that takes one action all the time, and learns to count its steps."""

    action: int = 1
    n_envs: Count = 2

    @property
    def env_groups(self) -> tuple[int, int]:
        return 1, self.n_envs


class StubbornTrainee:
    def __init__(self, config: StubbornConfig, keep: int, resume: Path | None = None) -> None:
        self.config, self.keep, self.frames = config, keep, 0
        self.extra: dict[str, Any] = {}
        self.seconds: dict[str, float] = {}
        if resume is not None:
            self.save_into(resume)
            checkpoint = self.store.load_latest()
            self.frames, self.extra = checkpoint.frames, checkpoint.state["extra"]

    def save_into(self, folder: Path) -> None:
        self.store = CheckpointStore(folder, "stubborn", self.keep)

    def train(self, observe: Any, stop: Any) -> None:
        while self.frames < self.config.steps and not stop():
            self.frames += 8
            ended = np.zeros(0, np.float32)
            observe(Update(self.frames, [{"bonus": 0.0}], Episodes(ended, ended.astype(np.int64), ended)))

    def save(self, score: float | None, extra: dict[str, Any]) -> None:
        self.store.save({"extra": extra}, self.frames, score)

    def close(self) -> None:
        pass


class StubbornPlayer:
    logits = None

    def __init__(self, config: StubbornConfig, checkpoints: Path, which: str, spaces: Any, greedy: bool, seed: int):
        self.frames = load_checkpoint(checkpoints, "stubborn", which).frames
        self.config, self.spaces = config, spaces

    def act(self, obs: Any, starts: Any) -> Any:
        return np.full(len(starts), self.config.action)

    def bonus_explorer(self, num_envs: int = 1) -> Any:
        return build_explorer(BonusConfig.of("none"), None, *self.spaces, num_envs)


@pytest.fixture
def stubborn():
    register_agent("stubborn", Agent(StubbornConfig, StubbornPlayer, StubbornTrainee))
    yield "stubborn"
    del AGENTS["stubborn"]


def test_an_agent_from_outside_trains_resumes_and_is_evaluated_and_watched(stubborn, tmp_path, capsys):
    run = tmp_path / "run"
    options = ["ENV=Rooms-K3-v0", "AGENT=stubborn", f"RUN={run}", f"STEPS={FRAMES}", "env.max_steps=5", "log_seconds=0"]
    assert train([*options, "action=2"]) == 0
    saved = yaml.safe_load((run / "config.yaml").read_text())
    assert (saved["agent"], saved["config"]["action"]) == ("stubborn", 2)
    assert train([f"RUN={run}", "RESUME=1", f"STEPS={2 * FRAMES}"]) == 0
    assert evaluate([f"RUN={run}", "EPISODES=2"]) == 0
    assert f"e3b with stubborn after {2 * FRAMES} frames" in capsys.readouterr().out
    assert watch([f"RUN={run}", "EPISODES=1"]) == 0
    assert "time limit" in capsys.readouterr().out
    assert doctor([f"RUN={run}"]) == 2
    assert "AGENT=stubborn has no recorder, so it cannot be diagnosed" in capsys.readouterr().err
    assert train([*options, "action=left", f"RUN={tmp_path / 'other'}"]) == 2
    assert "action must be a whole number; got 'left'" in capsys.readouterr().err


def test_a_name_is_taken_once(stubborn):
    with pytest.raises(ValueError, match="there is an agent 'stubborn' already"):
        register_agent("stubborn", AGENTS["ppo"])
