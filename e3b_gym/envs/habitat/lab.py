"""Imports habitat-lab with or without habitat-sim, and without its log lines.

`import habitat` needs habitat-sim's C++ packages, which exist for conda only. Navigation uses none of them: four
modules of habitat-lab import them. Without habitat-sim, empty stand-ins replace these four; with habitat-sim nothing is
replaced. The other modules of this package import habitat-lab's parts from here, so that the stand-ins are always
installed first.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import logging
import os
import sys
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any


def has_habitat_sim() -> bool:
    """Whether habitat-sim, which renders scanned homes, is installed."""
    return importlib.util.find_spec("habitat_sim") is not None


def _untimed(*_: Any, **__: Any) -> Callable[[Any], Any]:
    """Replaces the decorator that times functions of the robot simulator."""
    return lambda function: function


def _add_stand_ins() -> None:
    stand_ins: dict[str, dict[str, Any]] = {
        "habitat.sims.habitat_simulator.object_state_machine": {"ObjectStateMachine": object},
        "habitat.core.batch_rendering.env_batch_renderer": {"EnvBatchRenderer": object},
        "habitat.tasks.rearrange": {"_try_register_rearrange_task": lambda: None, "__path__": []},
        "habitat.tasks.rearrange.rearrange_sim": {"add_perf_timing_func": _untimed},
    }
    for name, contents in stand_ins.items():
        module = ModuleType(name)
        vars(module).update(contents)
        sys.modules.setdefault(name, module)


def _import_quietly() -> ModuleType:
    """Imports habitat-lab without old gym's notice, deprecation warnings, and a log line per dataset and simulator.

    Set the environment variable HABITAT_LAB_LOG to keep habitat-lab's log.
    """
    if not has_habitat_sim():
        _add_stand_ins()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with contextlib.redirect_stderr(io.StringIO()):
            importlib.import_module("gym")
        lab = importlib.import_module("habitat")
    if "HABITAT_LAB_LOG" not in os.environ:
        lab.logger.setLevel(logging.WARNING)
    return lab


def _part(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


habitat: Any = _import_quietly()
registry: Any = habitat.registry
read_write: Any = habitat.read_write
gym_spaces: Any = importlib.import_module("gym.spaces")
quaternion: Any = importlib.import_module("quaternion")
maps: Any = importlib.import_module("habitat.utils.visualizations.maps")
reveal_fog_of_war: Any = _part("habitat.utils.visualizations.fog_of_war", "reveal_fog_of_war")
Simulator: Any = habitat.Simulator
SensorSuite: Any = habitat.SensorSuite
Measure: Any = habitat.Measure
RGBSensor: Any = _part("habitat.core.simulator", "RGBSensor")
DepthSensor: Any = _part("habitat.core.simulator", "DepthSensor")
AgentState: Any = _part("habitat.core.simulator", "AgentState")
Actions: Any = _part("habitat.sims.habitat_simulator.actions", "HabitatSimActions")
PointNavDataset: Any = _part("habitat.datasets.pointnav.pointnav_dataset", "PointNavDatasetV1")
TopDownMap: Any = _part("habitat.tasks.nav.nav", "TopDownMap")
MeasurementConfig: Any = _part("habitat.config.default_structured_configs", "MeasurementConfig")
TopDownMapConfig: Any = _part("habitat.config.default_structured_configs", "TopDownMapMeasurementConfig")
