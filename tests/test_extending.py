"""docs/extending.md: its examples are written to files and run, exactly as on the page."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.impala.config import ENGINES
from agents.registry import AGENTS
from e3b_gym.bonuses import METHODS
from e3b_gym.envs.registry import SUITES

PAGE = Path(__file__).parents[1] / "docs" / "extending.md"
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE))
BLOCK = re.compile(r"^```(?:python|yaml)\n(?:# (\S+\.(?:py|yaml))\n)?(.*?)^```", flags=re.DOTALL | re.MULTILINE)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on Python's path; what is registered and imported in the test is removed after it."""
    before = dict(METHODS), dict(AGENTS), list(SUITES), set(sys.modules), dict(ENGINES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    METHODS.clear()
    METHODS.update(before[0])
    AGENTS.clear()
    AGENTS.update(before[1])
    SUITES[:] = before[2]
    ENGINES.clear()
    ENGINES.update(before[4])
    for name in set(sys.modules) - before[3]:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("section", ["A bonus", "A suite", "An agent", "An engine"])
def test_the_example_runs(section: str, elsewhere: Path) -> None:
    names: dict[str, object] = {"__name__": "page"}
    files = 0
    for name, code in BLOCK.findall(SECTIONS[section]):
        if name:
            (elsewhere / name).parent.mkdir(exist_ok=True)
            (elsewhere / name).write_text(code)
            importlib.invalidate_caches()
            files += 1
        else:
            exec(compile(code, f"{PAGE.name}: {section}", "exec"), names)
    assert files


def test_the_page_has_no_other_examples() -> None:
    assert list(SECTIONS) == ["A bonus", "A suite", "An agent", "An engine"]
