"""One thread per test process: two workers that oversubscribe the cores slow each other down 50x.

The tests of a module that shares a fixture run in the same worker, so that the fixture is made once; all others go to
whichever worker is free.
"""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

torch.set_num_threads(1)
ROOT = Path(__file__).parents[1]


@cache
def shares_a_fixture(file: str) -> bool:
    return 'scope="module"' in (ROOT / file).read_text()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class ByModuleOrTest(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::")[0]
            return file if shares_a_fixture(file) else nodeid

    return ByModuleOrTest(config, log)
