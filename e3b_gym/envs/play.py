"""Shows an environment in the terminal, with a random policy or your keys, and records videos.

Environments that render text ("ansi": MiniHack, MiniGrid, Rooms) are shown as text; images of the others are shown as
half-block characters, two pixels each.
"""

from __future__ import annotations

import itertools
import os
import shutil
import string
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from e3b_gym.envs import make
from e3b_gym.envs.video import Image, check_video, for_video, write_video

Policy = Callable[[], Any]

CLEAR = "\x1b[H\x1b[2J\x1b[3J"

# Keys of actions by lower-case name: NetHack's keys, and w, a, s, d for directions.
KEYS = {
    "n": "k", "e": "l", "s": "j", "w": "h", "ne": "u", "se": "n", "sw": "b", "nw": "y",
    "far_n": "K", "far_e": "L", "far_s": "J", "far_w": "H", "far_ne": "U", "far_se": "N", "far_sw": "B", "far_nw": "Y",
    "pickup": ",", "apply": "a", "open": "o", "kick": "K", "quaff": "q", "wear": "W", "puton": "P", "zap": "z",
    "fire": "f", "read": "r", "up": "w", "down": "s", "left": "a", "right": "d", "forward": "w", "toggle": " ",
    "move_forward": "w", "turn_left": "a", "turn_right": "d", "move_left": "q", "move_right": "e", "wait": ".",
}  # fmt: skip
ARROWS = {"\x1b[A": "kw", "\x1b[B": "js", "\x1b[C": "ld", "\x1b[D": "ha"}
"""Escape sequence of an arrow key -> keys that it can stand for; the first assigned one is used."""


@dataclass(frozen=True)
class Moment:
    """One rendered step of a run."""

    frame: Any
    """The rendered image or text."""
    caption: str
    """Episode, step, action and reward."""
    ended: bool = False
    """Whether the step ended its episode."""


def run(
    env: gymnasium.Env[Any, Any], policy: Policy, names: tuple[str, ...], seed: int | None, steps: int
) -> Iterator[Moment]:
    """Runs `steps` steps over one or more episodes; yields after every reset and step."""
    env.reset(seed=seed)
    episode, t, total = 1, 0, 0.0
    yield Moment(env.render(), f"episode 1 starts{'' if seed is None else f', seed {seed}'}")
    for _ in range(steps):
        action = policy()
        _, reward, terminated, truncated, info = env.step(action)
        t, total = t + 1, total + float(reward)
        name = names[action] if names else action
        caption = f"episode {episode}  step {t}  action {name}  reward {reward:g}  return {total:g}"
        if not (terminated or truncated):
            yield Moment(env.render(), caption)
            continue
        yield Moment(env.render(), f"{caption}  {_ending(truncated, info.get('is_success'))}", ended=True)
        env.reset()
        episode, t, total = episode + 1, 0, 0.0
        yield Moment(env.render(), f"episode {episode} starts")


def _ending(truncated: bool, success: bool | None) -> str:
    if truncated:
        return "time limit"
    return "ended" if success is None else "success" if success else "failure"


def watch(id: str, names: tuple[str, ...], *, seed: int | None, steps: int, fps: float, by_hand: bool = False) -> None:
    """Shows a run in the terminal; if the output is not a terminal, prints all frames."""
    env, names = _make_rendered(id, names, ("ansi", "rgb_array"), may_stop=by_hand)
    env.action_space.seed(seed)
    names = names or tuple(map(str, range(getattr(env.action_space, "n", 0))))
    screen = sys.stdout.isatty()
    hint = f"{describe_keys(names)}\nCtrl-C quits\n" if by_hand else ""
    try:
        with _keyboard(names) if by_hand else nullcontext(env.action_space.sample) as policy:
            for moment in run(env, policy, names, seed, steps):
                text = moment.frame if isinstance(moment.frame, str) else half_blocks(moment.frame)
                print(f"{CLEAR if screen else ''}{text}\n{moment.caption}\n{hint}", end="", flush=True)
                if screen:  # with KEYS=1 the player sets the pace, but the end of an episode is shown for a moment
                    time.sleep(1.5 * moment.ended if by_hand else 1 / fps)
    except KeyboardInterrupt:
        print()
    finally:
        env.close()


def record(id: str, names: tuple[str, ...], path: Path, *, seed: int | None, steps: int, fps: float) -> int:
    """Records a random policy; returns the number of frames. The suffix of `path`, .gif or .mp4, sets the format."""
    check_video(path)
    env, names = _make_rendered(id, names, ("rgb_array",), may_stop=False)
    env.action_space.seed(seed)
    moments = run(env, env.action_space.sample, names, seed, steps)
    try:
        return write_video((for_video(moment.frame) for moment in moments), path, fps)
    finally:
        env.close()


def _make_rendered(
    id: str, names: tuple[str, ...], modes: tuple[str, ...], *, may_stop: bool
) -> tuple[Any, tuple[str, ...]]:
    """Returns the environment in the first of `modes` that it supports, and the names of its actions.

    Without `may_stop`, Habitat's action stop is left out: a random policy would end the episode every few steps.
    """
    options: dict[str, Any] = {}
    if not may_stop and "stop" in names:
        options, names = {"allow_stop": False}, tuple(name for name in names if name != "stop")
    probe: Any = make(id, **options)
    known = probe.metadata.get("render_modes", [])
    probe.close()
    for mode in modes:
        if mode in known:
            return make(id, render_mode=mode, **options), names
    raise ValueError(f"{id} renders {', '.join(known) or 'nothing'}; this needs {' or '.join(modes)}")


def half_blocks(image: Image, columns: int | None = None, lines: int | None = None) -> str:
    """Returns an RGB image as text that fits the terminal; each character shows two pixels, one above the other."""
    terminal = shutil.get_terminal_size()
    columns, lines = columns or terminal.columns, lines or terminal.lines - 3
    height, width = image.shape[:2]
    scale = min(columns / width, 2 * lines / height)
    rows = (np.arange(max(2, int(height * scale) // 2 * 2)) / scale).astype(int).clip(max=height - 1)
    cols = (np.arange(max(1, int(width * scale))) / scale).astype(int).clip(max=width - 1)
    small = image[rows][:, cols]
    text = []
    for upper, lower in zip(small[::2], small[1::2], strict=True):
        pairs = zip(upper.tolist(), lower.tolist(), strict=True)
        cells = (f"\x1b[38;2;{a};{b};{c}m\x1b[48;2;{d};{e};{f}m\u2580" for (a, b, c), (d, e, f) in pairs)
        text.append("".join(cells) + "\x1b[0m")
    return "\n".join(text)


def assign_keys(names: tuple[str, ...]) -> dict[str, int]:
    """Returns key -> action. An action gets its key from KEYS, otherwise a letter of its name, otherwise any free key;
    with more than 70 actions some get none."""
    keys: dict[str, int] = {}
    for number, name in enumerate(names):
        keys.setdefault(KEYS.get(name.lower(), ""), number)
    keys.pop("", None)
    for number, name in enumerate(names):
        if number in keys.values():
            continue
        letters = filter(str.isalnum, name.lower() + name.upper())
        wishes = itertools.chain(letters, string.ascii_letters, string.digits, "!@#$%^&*()")
        free = next((key for key in wishes if key not in keys), None)
        if free is not None:
            keys[free] = number
    return dict(sorted(keys.items(), key=lambda entry: entry[1]))


def describe_keys(names: tuple[str, ...]) -> str:
    """Returns one line with the key of each action."""
    return "  ".join(f"{'space' if key == ' ' else key}:{names[i]}" for key, i in assign_keys(names).items())


@contextmanager
def _keyboard(names: tuple[str, ...]) -> Iterator[Policy]:
    """Yields a policy that reads actions from single key presses and ignores unassigned keys."""
    if not (sys.stdin.isatty() and names):
        raise ValueError("playing by hand needs a terminal and discrete actions; remove KEYS=1")
    import termios
    import tty

    keys = assign_keys(names)
    before = termios.tcgetattr(sys.stdin)

    typed = ""

    def act() -> int:
        nonlocal typed
        while True:
            typed = typed or os.read(sys.stdin.fileno(), 64).decode(errors="ignore")
            length = (
                3 if typed.startswith("\x1b[") else 1
            )  # an arrow sends three characters, and keys may be typed ahead
            pressed, typed = typed[:length], typed[length:]
            for key in ARROWS.get(pressed, pressed):
                if key in keys:
                    return keys[key]

    try:
        tty.setcbreak(sys.stdin)
        yield act
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
