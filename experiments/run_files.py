"""Reads and checks the files of a run: config.yaml, evaluation-*.json, coverage.json.

A file that is truncated, edited or of another program raises DamagedFileError with its name and the remedy. Reading a
file runs no code.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from e3b_gym.errors import DamagedFileError, first_line


def read_config(path: Path) -> dict[str, Any]:
    """A run's config.yaml: at least its settings, `config`, and `provenance`, the commits of its parts."""
    content = _parsed(path, yaml.safe_load, "YAML", "restore it")
    if not isinstance(content, dict):
        raise DamagedFileError(f"{path} is not the config of a run; restore it")
    return content


def check_parts(path: Path, parts: Any) -> list[dict[str, Any]]:
    """The `provenance` of a config: where each part of the run comes from."""
    if not (isinstance(parts, list) and all(isinstance(part, dict) and "commit" in part for part in parts)):
        raise DamagedFileError(f"{path}: provenance must list parts, each with its commit; got {parts!r}; restore it")
    return parts


def read_evaluation(path: Path) -> dict[str, Any]:
    """What `make evaluate` wrote."""
    remedy = "remove it, and evaluate the run again"
    found = _parsed(path, json.loads, "JSON", remedy)
    with_size = isinstance(found, dict) and _is_count(found.get("frames")) and _is_count(found.get("episodes"))
    if not with_size or not all(_is_estimate(found[name]) for name in ("success", "return", "length") if name in found):
        raise DamagedFileError(f"{path} was not written by `make evaluate`, or was edited; {remedy}")
    return dict(found)


def read_coverage(path: Path) -> dict[str, Any]:
    """What `make homes` wrote."""
    remedy = "remove it, and run `make homes` again"
    found = _parsed(path, json.loads, "JSON", remedy)
    agents = found.get("agents") if isinstance(found, dict) and _is_count(found.get("episodes")) else None
    if not (isinstance(agents, list) and agents and all(map(_is_covered, agents))):
        raise DamagedFileError(f"{path} was not written by `make homes`, or was edited; {remedy}")
    return dict(found)


def _parsed(path: Path, parse: Callable[[str], Any], kind: str, remedy: str) -> Any:
    try:
        return parse(path.read_text())
    except OSError:
        raise
    except Exception as error:  # a parser may raise anything: IndexError for an empty !!int, RecursionError, ...
        raise DamagedFileError(f"{path} is not {kind} ({first_line(error)}); {remedy}") from error


def _is_covered(agent: Any) -> bool:
    return (
        isinstance(agent, dict)
        and isinstance(agent.get("agent"), str)
        and _is_count(agent.get("frames"))
        and _is_estimate(agent.get("coverage"))
        and isinstance(agent.get("played", []), list)
    )


def _is_estimate(value: Any) -> bool:
    """Whether it is a mean with its interval."""
    return isinstance(value, dict) and all(_is_finite(value.get(name)) for name in ("mean", "low", "high"))


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < math.inf


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63
