"""A tiny run of each agent, for all tests of this folder."""

from pathlib import Path

import pytest
from tiny_runs import TINY, tiny

from experiments.train import main


@pytest.fixture(scope="session", params=list(TINY))
def trained(request, tmp_path_factory) -> Path:
    """A run of each agent in Rooms, at its end."""
    run = tmp_path_factory.mktemp("trained") / request.param
    assert main(tiny(run, "Rooms-K3-v0", request.param, "env.max_steps=10")) == 0
    return run
