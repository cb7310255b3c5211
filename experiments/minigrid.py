"""MiniGrid's MultiRoom with four rooms: PPO with E3B against PPO without a bonus.

python -m experiments.minigrid table
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from torch import nn

from e3b_gym.command import Parser, answer
from e3b_gym.sb3 import ENCODER_POLICY
from experiments import study
from experiments.study import Run
from experiments.table import Study, World

WORLDS = {"MultiRoom": World("MiniGrid-MultiRoom-N4-S5-v1", 600_000)}
PPO_SETTINGS: dict[str, Any] = {
    **study.PPO_SETTINGS,
    "batch_size": 512,
    "policy_kwargs": {**ENCODER_POLICY, "net_arch": [64], "activation_fn": nn.ReLU},
}


def make_run(method: str, world: World, seed: int) -> Run:
    return Run(method, world.env, seed, world.steps, ppo=PPO_SETTINGS, num_envs=32, policy="MultiInputPolicy")


STUDY = Study("minigrid", WORLDS, ("e3b", "none"), seeds=3, make_run=make_run)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit code."""
    return answer(arguments, None, _run)


def _run(arguments: list[str]) -> int:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    STUDY.add_arguments(parser.add_subparsers(required=True).add_parser("table", help="train, and write the report"))
    given = parser.parse_args(arguments)
    given.function(given)
    return 0


if __name__ == "__main__":
    sys.exit(main())
