"""`experiments.train` whose actors are taken for lost after a few seconds without a step, not after two minutes."""

import sys
from functools import partial

from agents.impala.engines import process
from experiments.train import main

HANG_SECONDS = 20.0

if __name__ == "__main__":
    process.ProcessEngine = partial(process.ProcessEngine, hang_seconds=HANG_SECONDS)  # type: ignore[misc,assignment]
    sys.exit(main())
