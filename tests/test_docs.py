"""The documentation runs: every Python block of README.md and docs/*.md, in order, one namespace per page.

Trainings of 50,000 steps and more are cut to 512, with rollouts of 32 where PPO's default of 2,048 would apply; nothing
else is changed. Pages that another test runs, and blocks that are fragments (with names that the reader defines), are
listed here, so that nothing is left out silently.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
TESTED_BY = {"docs/sb3.md": "tests/sb3/test_page.py", "docs/extending.md": "tests/test_extending.py"}
FRAGMENTS = {  # page, how the block begins
    ("docs/bonuses.md", 'bonus = e3b_gym.make_bonus("e3b", env.observation_space'),
}


def python_blocks(page: str) -> list[tuple[int, str]]:
    """(line, code) of every block that is fenced as Python."""
    text = (ROOT / page).read_text()
    fences = re.finditer(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    return [(text.count("\n", 0, match.start(1)), match.group(1)) for match in fences]


def is_fragment(page: str, code: str) -> bool:
    return any(page == where and code.startswith(beginning) for where, beginning in FRAGMENTS)


def affordable(code: str) -> str:
    def cut(call: re.Match[str]) -> str:
        return call.group() if int(call.group(1)) < 50_000 else "learn(512"

    code = re.sub(r"\blearn\(([\d_]+)", cut, code)
    return re.sub(r"\bPPO\(([^,()]+), (\w+)\)", r"PPO(\1, \2, n_steps=32)", code)


PAGES = [path.relative_to(ROOT).as_posix() for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))]
RUN = [
    page for page in PAGES if page not in TESTED_BY and not all(is_fragment(page, c) for _, c in python_blocks(page))
]


@pytest.mark.parametrize("page", RUN)
def test_every_block_of_the_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    for line, code in python_blocks(page):
        if not is_fragment(page, code):
            # Blank lines in front, so that tracebacks show the page's own lines.
            exec(compile("\n" * line + affordable(code), str(ROOT / page), "exec"), names)


def test_what_is_left_out_is_still_there() -> None:
    for page, test in TESTED_BY.items():
        assert Path(page).name in (ROOT / test).read_text()
    for page, beginning in FRAGMENTS:
        assert sum(code.startswith(beginning) for _, code in python_blocks(page)) == 1


RESULTS = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "results").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES + RESULTS)
def test_files_that_a_page_points_to_exist(page: str) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", (ROOT / page).read_text())
    missing = [t for t in targets if "://" not in t and not ((ROOT / page).parent / t).exists()]
    assert not missing


def test_the_quickstart_runs_and_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    script = (ROOT / "examples" / "quickstart.py").read_text()
    assert len(script.splitlines()) < 40
    short, trainings = re.subn(r"learn\([\d_]+", "learn(1", script)  # one rollout
    assert trainings == 1
    exec(compile(short, "quickstart.py", "exec"), {"__name__": "__main__"})
    assert (tmp_path / "quickstart.png").read_bytes().startswith(b"\x89PNG")


def test_results_name_no_folder_of_one_machine() -> None:
    """Commands of a study are for anyone to run; a path such as /home/user/out is not."""
    folders = (ROOT / "results", ROOT / "agents" / "trained")
    found = [path for folder in folders for path in folder.rglob("*")]
    files = [path for path in found if path.suffix in (".json", ".yaml", ".md", ".csv")]
    assert len(files) > 50
    named = {str(path) for path in files if re.search(r"[ =\"'](/tmp|/home|/root|/work|/Users)/", path.read_text())}
    assert not named


def test_the_readme_is_short_and_its_films_small() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.split()) < 700
    films = re.findall(r"\]\((docs/images/[^)]*\.gif)\)", text)
    assert films
    assert all((ROOT / film).stat().st_size < 2_000_000 for film in films)


def test_the_table_of_machines_is_that_of_the_benchmark() -> None:
    page = (ROOT / "docs/scaling.md").read_text()
    for line in json.loads((ROOT / "results/scale.json").read_text())["machines"]:
        cells = [f"{line['frames_per_second'][n]:,.0f} ({line['limit'][n]})" for n in ("1", "8", "64")]
        assert " | ".join(["", line["name"], *cells, line["assumption"], ""]).strip() in page
