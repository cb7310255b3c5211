"""Runs that are as small as a run can be."""

import csv
from pathlib import Path

from agents.networks import has_own_networks

TINY = {
    "impala": "engine=inline n_envs=4 n_steps=8 batch_size=16 lstm=8 log_seconds=0",
    "ppo": "n_envs=4 n_steps=8 batch_size=16 n_epochs=1 hidden=8 log_seconds=0",
    "recurrent_ppo": "n_envs=4 n_steps=8 batch_size=16 n_epochs=1 hidden=8 lstm=8 log_seconds=0",
}
FRAMES = 32
"""Frames of one rollout of a tiny run."""


def tiny(
    run: Path, env: str = "Rooms-K3-v0", agent: str = "impala", *options: str, steps: int = 2 * FRAMES
) -> list[str]:
    """The arguments of a tiny run."""
    generic = [] if has_own_networks(env) else ["dim=8"]
    options = (*generic, *options)
    return [f"ENV={env}", f"AGENT={agent}", f"STEPS={steps}", f"RUN={run}", *TINY[agent].split(), *options]


def rows(run: Path) -> list[dict[str, str]]:
    with (run / "progress.csv").open(newline="") as file:
        return list(csv.DictReader(file))
