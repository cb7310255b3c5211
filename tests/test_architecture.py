"""The map of the code: what docs/architecture.md names exists, and its numbered hops are the way that data takes."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.vec_env import DummyVecEnv

from agents.impala.config import Config
from agents.impala.training import Training
from e3b_gym import E3BRewardWrapper

ROOT = Path(__file__).parents[1]
PAGES = ["docs/architecture.md", "docs/extending.md", "CONTRIBUTING.md"]
FILE = r"`((?:e3b_gym|agents|experiments|tests|docs|examples)/[\w/.-]+\.\w+)`"
TEXT = (ROOT / "docs" / "architecture.md").read_text()
NETWORK_AND_KERNEL = {
    "e3b_gym/encoders/generic.py",
    "e3b_gym/encoders/leaves.py",
    "e3b_gym/memory/_ellipses_numba.py",
    "e3b_gym/memory/_kernels.py",
}
"""Files of a step that depend on the encoder and on the device."""


def section(title: str) -> str:
    return TEXT.split(f"## {title}\n")[1].split("\n## ")[0]


def hops(title: str) -> list[str]:
    """The numbered items of a section."""
    return re.findall(r"^\d+\. (.*?)(?=^\d+\. |\n\n|\Z)", section(title), flags=re.DOTALL | re.MULTILINE)


def files_of(items: list[str]) -> set[str]:
    return set(re.findall(FILE, re.sub(r"\(The process engine.*?\)", "", " ".join(items), flags=re.DOTALL)))


def files_run(action: Callable[[], Any]) -> set[str]:
    """The files of the repository whose functions `action` calls, without the environments."""
    seen: set[str] = set()

    def note(frame: Any, event: str, arg: Any) -> None:
        if event == "call":
            seen.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    ours = {Path(name).relative_to(ROOT).as_posix() for name in seen if name.startswith(f"{ROOT}/")}
    packages = ("e3b_gym/", "agents/", "experiments/")
    return {name for name in ours if name.startswith(packages) and not name.startswith("e3b_gym/envs/")}


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_the_page_names_exists(page: str) -> None:
    named = re.findall(FILE, (ROOT / page).read_text())
    assert len(named) > 3
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_function_that_a_hop_names_exists() -> None:
    named = re.findall(rf"{FILE} `([A-Z]\w+(?:\.\w+)?|[a-z_]+)`", TEXT)
    assert len(named) > 20
    for file, name in named:
        place: Any = importlib.import_module(file.removesuffix(".py").replace("/", "."))
        for part in name.split("."):
            place = getattr(place, part)


class Dictionary(gym.Env[Any, Any]):
    """Dict observations, episodes of three steps."""

    observation_space = gym.spaces.Dict(place=gym.spaces.Box(-1.0, 1.0, (3,)), room=gym.spaces.Discrete(4))
    action_space = gym.spaces.Discrete(2)

    def reset(self, **options: Any) -> Any:
        super().reset(**options)
        self.steps = 0
        return {"place": np.zeros(3, np.float32), "room": np.int64(1)}, {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return {"place": np.full(3, 0.1 * self.steps, np.float32), "room": np.int64(2)}, 0.0, self.steps == 3, False, {}


def test_a_step_takes_the_hops_of_the_page() -> None:
    venv = E3BRewardWrapper(DummyVecEnv([Dictionary] * 2), dim=8)
    venv.reset()
    venv.step(np.array([1, 0]))  # makes the memory
    for _ in range(2):  # the second one ends an episode
        venv.step_async(np.array([0, 1]))
        run = files_run(venv.step_wait)
    named = files_of(hops("One step through Stable-Baselines3"))
    assert run == named | NETWORK_AND_KERNEL
    assert len(named) < 10
    assert files_of([section("One step through Stable-Baselines3").split("At the end")[0]]) == run


def test_an_unroll_takes_the_hops_of_the_page() -> None:
    sizes: dict[str, Any] = {"n_envs": 4, "n_steps": 6, "batch_size": None, "lstm": 8, "dim": 8}
    with Training(Config(env="Rooms-K3-v0", env_options={"max_steps": 5}, engine="inline", **sizes)) as training:
        training.step()  # makes the memory
        assert files_run(training.step) == files_of(hops("One unroll through IMPALA"))
