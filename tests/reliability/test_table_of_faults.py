"""The table of results/reliability/README.md is that of its JSON files; the command takes options like all others."""

import shutil
from pathlib import Path

from tests.reliability.report import END, START, main

RESULTS = Path(__file__).parents[2] / "results/reliability"


def test_the_stored_page_is_the_one_that_the_command_writes(tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(RESULTS, folder)
    before, _, rest = (folder / "README.md").read_text().partition(START)
    (folder / "README.md").write_text(f"{before}{START}\n{END}{rest.partition(END)[2]}")
    assert main([f"OUT={folder}"]) == 0
    assert (folder / "README.md").read_text() == (RESULTS / "README.md").read_text()


def test_a_path_without_a_name_is_refused(capsys):
    assert main([str(RESULTS)]) == 2
    assert "expected NAME=value" in capsys.readouterr().err
