"""Compiled loops where nothing can be kept on disk: a read-only install, a user without a home."""

import os
import subprocess
import sys
from pathlib import Path

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
    environment["NUMBA_CACHE_LOCATOR_CLASSES"] = "UserProvidedCacheLocator"  # and nobody provides one
    command = [sys.executable, "-c", SCRIPT, *modules]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["42", "True"]
