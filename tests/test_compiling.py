"""Compiled loops without a cache folder (a read-only install, a user without a home), and with an empty one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import e3b_gym

PACKAGE = Path(e3b_gym.__file__).parent
COMPILED = sorted(path for path in PACKAGE.rglob("*.py") if "njit(" in path.read_text())
SCRIPT = """
import importlib, sys
from numba import njit
from e3b_gym.compiling import cached_njit

def double(x):
    return 2 * x

try:
    njit(cache=True)(double)
except RuntimeError:
    pass
else:
    sys.exit("numba found a place for its cache, so this shows nothing")
for module in sys.argv[1:]:
    importlib.import_module(module)
print(cached_njit()(double)(21), cached_njit(nogil=True)(double).targetoptions.get("nogil"))
"""


def test_every_compiled_module_works_without_a_place_for_numbas_cache() -> None:
    modules = [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in COMPILED]
    assert {f"e3b_gym.envs.habitat.{name}" for name in ("furniture", "navigation", "raycast")} < set(modules)
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment["NUMBA_CACHE_LOCATOR_CLASSES"] = "UserProvidedCacheLocator"  # and none is provided
    command = [sys.executable, "-c", SCRIPT, *modules]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["42", "True"]


CELLS = """
import numpy as np
from e3b_gym.encoders.lstm import cells, cells_backward
rng = np.random.default_rng(0)
gates, before, dh, dc = (rng.standard_normal((16, width)).astype(np.float32) for width in (128, 32, 32, 32))
c, tanh_c, h, dgates = np.empty_like(before), np.empty_like(before), np.empty_like(before), np.empty_like(gates)
cells(gates, before, c, tanh_c, h)
cells_backward(gates, before, tanh_c, dh, dc, dgates)
print(b"".join(array.tobytes() for array in (gates, c, tanh_c, h, dc, dgates)).hex())
"""
TRAINING = """
import sys
from agents.impala.config import Config
from agents.impala.training import Training
options = {"net": "fast", "dim": 16} if sys.argv[1].startswith("Rooms") else {"net": "fast"}
sizes = {"n_envs": 4, "n_steps": 16, "batch_size": 32, "n_epochs": 2, "lstm": 16, "steps": 320}
with Training(Config(env=sys.argv[1], engine="inline", **options, **sizes)) as training:
    for _ in training:
        pass
    modules = training.learner.policy, training.learner.explorer.bonus
    print(b"".join(part.numpy().tobytes() for module in modules for part in module.state_dict().values()).hex())
"""


def outputs(script: str, cache: Path, *arguments: str) -> list[str]:
    """What the script prints with an empty cache of compiled functions, and then with a full one."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", script, *arguments]
    assert not cache.exists()
    runs = [subprocess.run(command, env=environment, capture_output=True, text=True, timeout=3600) for _ in range(2)]
    assert all(run.returncode == 0 for run in runs), runs[0].stderr
    assert list(cache.rglob("*.nbc"))
    return [run.stdout for run in runs]


def test_the_lstm_computes_the_same_bits_with_and_without_a_cache(tmp_path: Path) -> None:
    first, second = outputs(CELLS, tmp_path / "cache")
    assert len(first) > 10_000
    assert first == second


@pytest.mark.slow
@pytest.mark.parametrize("env", ["Rooms-K4-v0", "MiniHack-MultiRoom-N6-Lava-v0", "Habitat-FloorPlan-v0"])
def test_the_first_training_of_a_fresh_clone_gives_the_same_bits_as_the_second(env: str, tmp_path: Path) -> None:
    first, second = outputs(TRAINING, tmp_path / "cache", env)
    assert len(first) > 10_000
    assert first == second
