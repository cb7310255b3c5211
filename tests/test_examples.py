"""The examples run as they are, with fewer steps, and stay short enough to read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SIZES: dict[str, tuple[str, str]] = {  # what the test replaces, and by what
    "cleanrl_ppo.py": (r"^STEPS, ENVS, .*$", "STEPS, ENVS, ROLLOUT, EPOCHS, BATCH = 128, 4, 16, 1, 32"),
    "maskable_ppo.py": (r"^STEPS = .*$", "STEPS = 1"),
    "dqn.py": (r"^STEPS = .*$", "STEPS = 1_300"),
    "sac.py": (r"^STEPS = .*$", "STEPS = 1_200"),
    "own_encoder.py": (r"^STEPS = .*$", "STEPS = 1"),
    "pretrain.py": (r"^PRETRAIN, STEPS = .*$", "PRETRAIN, STEPS = 1, 1"),
    "vizdoom_maze.py": (
        r"^STEPS = [^§]*?n_envs=8",
        'STEPS = 1\nvenv = make_vec_env("VizdoomMyWayHomeSparse-v0", n_envs=2',
    ),
}


@pytest.mark.parametrize("name", SIZES)
def test_an_example_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    script = (ROOT / "examples" / name).read_text()
    assert len(script.splitlines()) < 80
    short, count = re.subn(*SIZES[name], script, flags=re.MULTILINE)
    assert count == 1
    exec(compile(short, name, "exec"), {"__name__": "__main__"})
    assert re.search(r"\d", capsys.readouterr().out)


def test_every_example_is_tested() -> None:
    others = {
        "quickstart.py": "tests/test_docs.py",
        "nearest_neighbour.py": "tests/bonuses",
        "rl_zoo3.yml": "tests/sb3",
    }
    found = {path.name for path in (ROOT / "examples").iterdir() if path.suffix in (".py", ".yml")}
    assert found == {*SIZES, *others}


def test_the_notebook_runs_from_its_first_cell_to_its_plots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    cells = json.loads((ROOT / "examples" / "quickstart.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert "pip" in code[0]  # what Colab needs
    assert not any(cell.get("outputs") for cell in cells)
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(code):
        short = re.sub(r"^STEPS = [\d_]+", "STEPS = 1", cell, flags=re.MULTILINE)
        exec(compile(short, f"cell {number}", "exec"), names)
    assert {name: curve.shape for name, curve in names["curves"].items()} == {"e3b": (1, 2), "none": (1, 2)}
    lines = [axes.get_lines() for axes in names["figure"].axes]
    assert len(lines[0]) == 2
    assert len(names["figure"].axes[1].patches) == len(names["bonuses"]) > 0
