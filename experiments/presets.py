"""The agents' settings for a suite: `e3b_gym/envs/<suite>/presets.yaml`.

    preset -> agent -> section -> options
    preset -> agent -> task -> section -> options

A section is "all", a family of methods (e3b: e3b, e3b-random, ...) or a method. It holds differences from the agent's
defaults only. Later sections win: all, family, method, then the task's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from agents.registry import AGENTS
from e3b_gym.bonuses import METHODS
from e3b_gym.config import family_of
from e3b_gym.envs.registry import GENERAL_PRESETS, suite_of
from e3b_gym.options import closest

Layers = list[Mapping[str, Any]]


def preset_layers(preset: str, agent: str, env: str, method: str) -> tuple[Layers, Layers]:
    """The options that a preset sets for every task of the suite, and those for this environment alone."""
    sections = _sections(preset, agent, env)
    return _pick(sections, method), _pick(sections.get(env, {}), method)


def presets_of(env: str) -> dict[str, Any]:
    """The content of the environment's preset file, checked for names that mean nothing."""
    suite = suite_of(env)
    return load_presets(GENERAL_PRESETS if suite is None else suite.presets())


@lru_cache
def load_presets(path: Path) -> dict[str, Any]:
    """The content of a preset file; read once."""
    content: Any = OmegaConf.to_container(OmegaConf.load(path))
    sections = {"all", *METHODS, *map(family_of, METHODS)}

    def check(where: str, parts: Any, kind: str, known: Collection[str]) -> None:
        if not isinstance(parts, Mapping):
            raise ValueError(f"{path}: {where} must hold sections; got {parts!r}")
        for wrong in (part for part in parts if part not in known):
            raise ValueError(f"{path}: {where} has no {kind} {wrong!r}; {closest(wrong, known)}")

    for preset, agents in content.items():
        check(preset, agents, "agent", AGENTS)
        for agent, parts in agents.items():
            where, tasks = f"{preset}.{agent}", _tasks(path)
            check(where, parts, "method or task", {*sections, *tasks})
            for task in (part for part in parts if part in tasks):
                check(f"{where}.{task}", parts[task], "method (fields go under all, or under a method)", sections)
    return content  # type: ignore[no-any-return]


def _tasks(path: Path) -> set[str]:
    """The ids whose presets are in this file."""
    from e3b_gym.envs.registry import SUITES

    return {task for suite in SUITES if suite.presets() == path for task in suite.load_tasks()}


def _sections(preset: str, agent: str, env: str) -> dict[str, Any]:
    presets, suite = presets_of(env), suite_of(env)
    name = "this environment" if suite is None else suite.name
    if preset not in presets:
        raise ValueError(f"{name} has no PRESET={preset}; it has {', '.join(presets)}")
    if agent not in presets[preset]:
        if preset == "home":  # an agent that is not in the file has its own defaults
            return {}
        raise ValueError(
            f"PRESET={preset} of {name} is for AGENT={' or '.join(presets[preset])}, not for {agent}; take PRESET=home"
        )
    return presets[preset][agent]  # type: ignore[no-any-return]


def _pick(sections: Mapping[str, Any], method: str) -> Layers:
    wanted = dict.fromkeys(("all", family_of(method), method))  # each once, in this order
    return [sections[section] for section in wanted if section in sections]
