"""The package as a new user sees it: light imports, one version, examples that run."""

import os
import runpy
import shutil
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


def test_commands_do_not_print_the_notice_of_gym():
    pytest.importorskip("gym")
    code = "import experiments, gym; print(gym.__version__)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert said.stdout.strip()
    assert "unmaintained" not in said.stderr


def test_every_public_name_is_there():
    for name in e3b_gym.__all__:
        assert getattr(e3b_gym, name) is not None
    assert set(e3b_gym.__all__) <= set(dir(e3b_gym))


def test_the_example_of_an_own_bonus_keeps_the_contract_in_under_sixty_lines():
    path = ROOT / "examples" / "nearest_neighbour.py"
    assert len(path.read_text().splitlines()) < 60
    runpy.run_path(str(path), run_name="__main__")


def test_an_install_without_a_gpu_downloads_no_cuda():
    """PyTorch of PyPI for Linux requires the CUDA libraries, 2 GB, unless the version is one without them."""
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split() if "==" in line)
    assert pinned["torch"] == "2.13.0"
    assert not [name for name in pinned if name.startswith(("nvidia", "cuda", "triton"))]
    install = (ROOT / "README.md").read_text().split("## Install")[1].split("\n## ")[0]
    assert "whl/cpu" in install, "the README does not say how to install PyTorch without CUDA"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, because setuptools writes into the folder that it builds."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    for folder in ("e3b_gym", "agents", "experiments", "tests", "benchmarks", "examples"):
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, source)
    run_pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(built), str(source))
    (path,) = built.glob("*.whl")
    return path


def run_pip(*arguments):
    subprocess.run([sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments], check=True)


def test_the_wheel_holds_one_top_level_package(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"e3b_gym"}
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "e3b_gym").rglob("*.py")}
    assert sources | {"e3b_gym/py.typed"} <= set(names)


def test_the_wheel_leaves_another_package_called_agents_alone(wheel, tmp_path):
    site = tmp_path / "site"
    (site / "agents").mkdir(parents=True)
    (site / "agents" / "__init__.py").write_text("OWNER = 'another package'\n")
    run_pip("install", "--no-deps", "--target", str(site), str(wheel))
    code = (
        "import agents, e3b_gym; from e3b_gym import E3BRewardWrapper, RecurrentPPO; "
        "print(agents.OWNER, e3b_gym.__file__, RecurrentPPO.__module__)"
    )
    environment = {**os.environ, "PYTHONPATH": str(site)}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path, env=environment
    )
    assert run.stdout.split() == ["another", "package", f"{site}/e3b_gym/__init__.py", "e3b_gym.sb3.recurrent_ppo"]


def test_every_public_name_is_lazy_or_the_version():
    assert set(e3b_gym._MODULES) | {"__version__"} == set(e3b_gym.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = e3b_gym.nothing
