"""The package as a stranger meets it: light imports, one version, examples that run."""

import runpy
import subprocess
import sys
from pathlib import Path

import e3b_gym

ROOT = Path(__file__).parents[1]
SIMULATORS = ("nle", "minihack", "minigrid", "vizdoom", "habitat", "ray", "gym", "stable_baselines3", "sb3_contrib")


def test_importing_the_library_imports_no_simulator():
    code = f"import sys, e3b_gym; print([name for name in {SIMULATORS} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert loaded.stdout.strip() == "[]"


def test_every_public_name_is_there():
    for name in e3b_gym.__all__:
        assert getattr(e3b_gym, name) is not None
    assert set(e3b_gym.__all__) <= set(dir(e3b_gym))


def test_the_example_of_an_own_bonus_keeps_the_contract_in_under_sixty_lines():
    path = ROOT / "examples" / "nearest_neighbour.py"
    assert len(path.read_text().splitlines()) < 60
    runpy.run_path(str(path), run_name="__main__")
