"""`python -m e3b_gym.envs`: lists the environments, shows one in the terminal, records a video.

    python -m e3b_gym.envs                              all ids with steps, actions, source
    python -m e3b_gym.envs ENV=Rooms-K3-v0              details of one id
    python -m e3b_gym.envs ENV=ID WATCH=1               a random policy in the terminal
    python -m e3b_gym.envs ENV=ID KEYS=1                play with the keyboard in the terminal
    python -m e3b_gym.envs ENV=ID RECORD=video.gif      a random policy as .gif or .mp4

| option | meaning | default |
|---|---|---|
| SEED | of the environment and of the random policy | none: a random one |
| STEPS | over one or more episodes | 200 |
| FPS | steps per second | 10 |
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

from e3b_gym.command import answer, read_options
from e3b_gym.envs import make, play
from e3b_gym.envs.registry import SUITES, TaskRecord, all_tasks
from e3b_gym.options import Bound, Count, Seed

Fps = Annotated[float, Bound(lambda value: 0 < value <= 1000, "a positive number of at most 1000")]
ACTIONS_SHOWN = 48
"""Characters of action names in the list."""


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns the exit code."""
    return answer(arguments, __doc__ or "", _run, needs_options=False)


def _run(given: list[str]) -> int:
    switch, shown = (bool, False), {"STEPS": (Count, 200), "FPS": (Fps, 10.0), "SEED": (Seed | None, None)}
    record = (Path | None, None)
    options = read_options(given, ENV=(str | None, None), WATCH=switch, KEYS=switch, RECORD=record, **shown)
    if options.env is None:
        if given:
            raise ValueError("no environment id; pass one, e.g. ENV=MiniGrid-MultiRoom-N6-v0")
        print_list()
        return 0
    _, task = all_tasks().get(options.env, (None, None))
    names = task.actions if task is not None else ()
    how = {"seed": options.seed, "steps": options.steps, "fps": options.fps}
    if options.record:
        count = play.record(options.env, names, options.record, **how)
        print(f"{count} frames in {options.record}")
    if options.watch or options.keys:
        play.watch(options.env, names, by_hand=options.keys, **how)
    if not (options.record or options.watch or options.keys):
        print_details(options.env, task)
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


if __name__ == "__main__":
    sys.exit(main())
