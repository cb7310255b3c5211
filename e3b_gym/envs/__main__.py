"""`python -m e3b_gym.envs`: lists the environments, shows one in the terminal, records a video.

python -m e3b_gym.envs                                         all ids with steps, actions, source
python -m e3b_gym.envs MiniHack-Freeze-Horn-Restricted-v0      details of one id
python -m e3b_gym.envs ID --watch [--keys]                     a random policy (or your keys) in the terminal
python -m e3b_gym.envs ID --record video.gif                   a random policy as .gif or .mp4
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from e3b_gym.command import Parser, answer, at_least
from e3b_gym.envs import make, play
from e3b_gym.envs.registry import SUITES, TaskRecord, all_tasks

MOST_FPS = 1000.0
ACTIONS_SHOWN = 48
"""Characters of action names in the list."""


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns the exit code."""
    return answer(arguments, None, _run)


def _run(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.id is None:
        if options.watch or options.keys or options.record:
            raise ValueError("no environment id; pass one, e.g. MiniGrid-MultiRoom-N6-v0")
        print_list()
        return 0
    _, task = all_tasks().get(options.id, (None, None))
    names = task.actions if task is not None else ()
    if options.record:
        count = play.record(options.id, names, options.record, seed=options.seed, steps=options.steps, fps=options.fps)
        print(f"{count} frames in {options.record}")
    if options.watch or options.keys:
        play.watch(options.id, names, seed=options.seed, steps=options.steps, fps=options.fps, by_hand=options.keys)
    if not (options.record or options.watch or options.keys):
        print_details(options.id, task)
    return 0


def print_list() -> None:
    """Prints all ids by suite."""
    for suite in SUITES:
        note = "" if suite.is_installed() else f"  (not installed: pip install 'e3b-gym[{suite.extra}]')"
        tasks = suite.load_tasks()
        width = max(map(len, tasks))
        print(f"\n{suite.name}: {len(tasks)} ids{note}")
        print(f"  {'id':{width}}  {'kind':10}  steps  actions")
        for id, task in tasks.items():
            names = f"{len(task.actions):2}: {' '.join(task.actions)}"
            names = names if len(names) <= ACTIONS_SHOWN else names[: ACTIONS_SHOWN - 3] + "..."
            print(f"  {id:{width}}  {task.kind:10}  {task.max_steps!s:>5}  {names:{ACTIONS_SHOWN}}  {task.source}")
    print("\nAny other id registered with Gymnasium works, too (`module:id` imports the module first).")


def print_details(id: str, task: TaskRecord | None) -> None:
    """Prints the task and the spaces of one id."""
    env: Any = make(id)
    if task is not None:
        print(f"{id}: {task.kind}, {task.max_steps} steps, {task.source}")
        print("actions: " + "  ".join(f"{i} {name}" for i, name in enumerate(task.actions)))
        print("keys:    " + play.describe_keys(task.actions))
    print(f"action space:      {env.action_space}")
    print(f"observation space: {env.observation_space}")
    print(f"renders:           {', '.join(env.metadata.get('render_modes', [])) or 'nothing'}")
    env.close()


def _fps(text: str) -> float:
    value = float(text)
    if not 0 < value <= MOST_FPS:
        raise argparse.ArgumentTypeError(f"must be positive and at most {MOST_FPS:g}; got {text}")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m e3b_gym.envs", description="List, watch and record the environments.")
    parser.add_argument("id", nargs="?", help="environment id; without it, all ids are listed")
    parser.add_argument("--watch", action="store_true", help="show a random policy in the terminal")
    parser.add_argument("--keys", action="store_true", help="play with the keyboard in the terminal")
    parser.add_argument("--record", type=Path, metavar="FILE", help="record a random policy to FILE.gif or FILE.mp4")
    parser.add_argument("--seed", type=at_least(0), help="seed of the environment and of the random policy")
    parser.add_argument(
        "--steps", type=at_least(1), default=200, help="number of steps over one or more episodes [200]"
    )
    parser.add_argument("--fps", type=_fps, default=10, help="steps per second [10]")
    return parser


if __name__ == "__main__":
    sys.exit(main())
