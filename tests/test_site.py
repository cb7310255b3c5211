"""The generated pages of the documentation site; the build itself is `make docs`, which checks every link."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

import e3b_gym
from e3b_gym.bonuses import METHODS
from e3b_gym.bonuses.methods import method_defaults
from e3b_gym.envs.registry import SUITES
from experiments.site import REFERENCE, generated_pages, markdown_table
from experiments.site_methods import FAMILIES, VARIANTS, family_of

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("method", METHODS)
def test_a_page_of_a_method_has_equation_source_composition_and_every_option(method: str) -> None:
    page = generated_pages()[f"methods/{method}.md"]
    family = FAMILIES[family_of(method)]
    assert family.equation in page
    assert family.source in page
    for option, default in method_defaults(method).items():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{option}` |"))
        assert f"`{default}`" in row
    assert f"METHOD={method}" in page


@pytest.mark.parametrize("method", METHODS)
def test_a_page_of_a_method_shows_a_curve_or_says_that_none_is_stored(method: str) -> None:
    results = generated_pages()[f"methods/{method}.md"].split("## Results\n")[1]
    assert ("![" in results) != ("No run of this method is stored" in results)


@pytest.mark.parametrize("method", METHODS)
def test_the_program_on_a_page_of_a_method_trains(method: str) -> None:
    page = generated_pages()[f"methods/{method}.md"]
    (code,) = re.findall(r"^```python\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE)
    short, cuts = re.subn(r"venv\)\.learn\(100_000", "venv, n_steps=4, batch_size=16).learn(32", code)
    assert cuts == 1
    names: dict[str, Any] = {}
    exec(compile(short, f"methods/{method}.md", "exec"), names)
    assert names["model"].num_timesteps == 32
    names["venv"].close()


def test_a_variant_says_how_it_differs() -> None:
    assert {name for name in METHODS if name not in FAMILIES} == set(VARIANTS)


def test_a_page_per_suite_lists_its_tasks_and_options() -> None:
    for suite in SUITES:
        page = generated_pages()[f"suites/{suite.name.lower()}.md"]
        assert all(f"`{id}`" in page for id in suite.load_tasks())
        assert suite.presets().read_text().strip() in page
        assert " at 0x" not in page
        for option, default in suite.option_defaults().items():
            if option != "render_mode":
                (row,) = [line for line in page.splitlines() if line.startswith(f"| `{option}` |")]
                assert row.endswith(f"| `{default!r}` |".replace("\n", " "))


def test_the_reference_names_what_exists_and_everything_public() -> None:
    named = [path for _, objects in REFERENCE.values() for path in objects]
    for path in named:
        assert _exists(path), path
    shown = {path.rsplit(".", 1)[-1] for path in named}
    data = {"ENCODER_POLICY", "METHODS", "PRESETS", "Features", "embed_unroll", "__version__"}
    assert set(e3b_gym.__all__) - data <= shown


def test_the_reference_shows_inherited_options_and_what_types_allow() -> None:
    pages = generated_pages()
    assert pages["reference/impala.md"].count("inherited_members: true") == 1
    assert "`Share` (a number in [0, 1])" in pages["reference/index.md"]
    assert "`UNSET`" in pages["reference/sb3.md"]


def _exists(path: str) -> bool:
    module, _, name = path.rpartition(".")
    return hasattr(importlib.import_module(module), name)


def test_pages_of_the_navigation_exist() -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    pages = [page for entry in nav for page in _leaves(entry)]
    assert len(pages) > 15
    known = {"index.md", "CHANGELOG.md", "CONTRIBUTING.md", *generated_pages()}
    assert not [page for page in pages if page not in known and not (ROOT / "docs" / page).exists()]


def _leaves(entry: object) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    parts = entry.values() if isinstance(entry, dict) else entry
    return [leaf for part in parts for leaf in _leaves(part)]


def test_a_bar_in_a_cell_does_not_end_it() -> None:
    assert markdown_table(["a"], [["x | y"]]).splitlines()[-1] == "| x \\| y |"


@pytest.mark.slow
@pytest.mark.skipif(find_spec("mkdocs") is None, reason="needs pip install '.[docs]'")
def test_the_site_builds_without_a_broken_link(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "E3BRewardWrapper" in (tmp_path / "reference/sb3/index.html").read_text()
