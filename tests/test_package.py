"""The package as a stranger meets it: light imports, one version, examples that run."""

import runpy
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import e3b_gym

ROOT = Path(__file__).parents[1]
HEAVY = ("nle", "minihack", "minigrid", "vizdoom", "habitat", "ray", "gym", "stable_baselines3", "sb3_contrib", "torch")


def test_importing_the_library_imports_no_simulator_and_nothing_heavy():
    code = f"import sys, e3b_gym; print([name for name in {HEAVY} if name in sys.modules])"
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


@pytest.mark.slow
def test_the_wheel_holds_the_three_packages_and_nothing_else(tmp_path):
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"e3b_gym", "agents", "experiments"}
    assert "e3b_gym/py.typed" in names


def test_every_public_name_is_lazy_or_the_version():
    assert set(e3b_gym._HOMES) | {"__version__"} == set(e3b_gym.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = e3b_gym.nothing
