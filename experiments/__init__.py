"""Commands: train, evaluate, watch, report, reproduce."""

import sys

# Stable-Baselines3 imports gym where habitat-lab has installed it, and gym then prints four lines about its end.
sys.modules.setdefault("gym_notices", None)  # type: ignore[arg-type]
