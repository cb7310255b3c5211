"""Every Python block of the page for SB3 users is run in order; only the budgets are smaller."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

PAGE = Path(__file__).parents[2] / "docs" / "sb3.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)


def test_the_page_runs(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)  # it writes checkpoints
    names: dict[str, Any] = {}
    code = blocks("python")
    assert len(code) >= 7
    for block in code:
        quick = re.sub(r"learn\([\d_]+", "learn(256", block).replace("n_steps=128", "n_steps=16")
        exec(compile(quick.replace("E3BCheckpointCallback(128", "E3BCheckpointCallback(16"), str(PAGE), "exec"), names)
    assert names["model"].num_timesteps > 256  # it was resumed
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bonus.pt", "checkpoints"]


def test_the_pages_yaml_is_that_of_the_example() -> None:
    example = yaml.safe_load((PAGE.parents[1] / "examples" / "rl_zoo3.yml").read_text())["CartPole-v1"]
    shown = yaml.safe_load(blocks("yaml")[0])["CartPole-v1"]
    assert shown.items() <= example.items()
