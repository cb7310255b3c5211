"""Watching an environment in the terminal, played at random or by hand, and recording it as a film.

Environments that draw text ("ansi": MiniHack, MiniGrid, Rooms) are shown as they draw; the others' pictures are
shown as half-block characters, two pixels each.
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
from numpy.typing import NDArray

from e3b_gym.envs import make

Policy = Callable[[], Any]
Image = NDArray[np.uint8]

CLEAR = "\x1b[H\x1b[2J\x1b[3J"
FILM_SIDE = 320
"""Pictures whose longer side is smaller are enlarged for a film, each pixel to a square."""

# The keys for actions that have a customary one (NetHack's own; arrows where there is a direction), by
# lower-case name.
KEYS = {
    "n": "k", "e": "l", "s": "j", "w": "h", "ne": "u", "se": "n", "sw": "b", "nw": "y",
    "far_n": "K", "far_e": "L", "far_s": "J", "far_w": "H", "far_ne": "U", "far_se": "N", "far_sw": "B", "far_nw": "Y",
    "pickup": ",", "apply": "a", "open": "o", "kick": "K", "quaff": "q", "wear": "W", "puton": "P", "zap": "z",
    "fire": "f", "read": "r", "up": "w", "down": "s", "left": "a", "right": "d", "forward": "w", "toggle": " ",
    "move_forward": "w", "turn_left": "a", "turn_right": "d", "move_left": "q", "move_right": "e", "wait": ".",
}  # fmt: skip
ARROWS = {"\x1b[A": "kw", "\x1b[B": "js", "\x1b[C": "ld", "\x1b[D": "ha"}
"""What an arrow key sends -> the keys it stands for, whichever is taken."""


@dataclass(frozen=True)
class Moment:
    """One picture of a run: what to show, and what led to it."""

    frame: Any
    caption: str
    ended: bool = False


def run(
    env: gymnasium.Env[Any, Any], policy: Policy, names: tuple[str, ...], seed: int | None, steps: int
) -> Iterator[Moment]:
    """Plays `steps` steps, over as many episodes as they hold; yields after every reset and step."""
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
    """Shows a run in the terminal; on anything but a terminal the pictures follow each other."""
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
                if screen:  # by hand the keys set the pace, but an ending stays long enough to be read
                    time.sleep(1.5 * moment.ended if by_hand else 1 / fps)
    except KeyboardInterrupt:
        print()
    finally:
        env.close()


def record(id: str, names: tuple[str, ...], path: Path, *, seed: int | None, steps: int, fps: float) -> int:
    """Films random play; returns the number of pictures. The file's ending chooses the format: .gif or
    .mp4."""
    check_film(path)
    try:
        import imageio.v2 as imageio
    except ImportError as error:
        raise ImportError("films need imageio; run: pip install 'e3b-gym[report]'") from error
    env, names = _make_rendered(id, names, ("rgb_array",), may_stop=False)
    env.action_space.seed(seed)
    settings: dict[str, Any] = {"duration": 1000 / fps, "loop": 0} if path.suffix == ".gif" else {"fps": fps}
    try:
        film: Any
        with imageio.get_writer(path, **settings) as film:
            count = 0
            for moment in run(env, env.action_space.sample, names, seed, steps):
                film.append_data(for_film(moment.frame))
                count += 1
    finally:
        env.close()
    return count


def check_film(path: Path) -> None:
    """Refuses a film that cannot be written, before anything is played."""
    if path.suffix not in (".gif", ".mp4"):
        raise ValueError(f"a film ends in .gif or .mp4; got {path.name!r}")
    if path.is_dir():
        raise ValueError(f"a film is a file; {path} is a folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    existed = path.exists()
    path.open("ab").close()  # raises OSError
    if not existed:
        path.unlink()


def _make_rendered(
    id: str, names: tuple[str, ...], modes: tuple[str, ...], *, may_stop: bool
) -> tuple[Any, tuple[str, ...]]:
    """The environment in the first of `modes` that it knows, and the names of its actions.

    Without `may_stop` there is no action that ends an episode (Habitat's): random play would take it every few steps.
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


def for_film(image: Image) -> Image:
    """Small pictures enlarged, and sides padded with black to multiples of 16, as video encoders want
    them."""
    scale = max(1, FILM_SIDE // max(image.shape[:2]))
    image = image.repeat(scale, axis=0).repeat(scale, axis=1)
    height, width = (-side % 16 for side in image.shape[:2])
    return np.pad(image, ((0, height), (0, width), (0, 0)))


def half_blocks(image: Image, columns: int | None = None, lines: int | None = None) -> str:
    """An RGB picture as text that fits the terminal: a character shows the pixel above and the pixel
    below."""
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
    """key -> action. An action gets its customary key, else a letter of its name, else any key that is
    left; more than 70 actions leave some without."""
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
    """One line: which key is which action."""
    return "  ".join(f"{'space' if key == ' ' else key}:{names[i]}" for key, i in assign_keys(names).items())


@contextmanager
def _keyboard(names: tuple[str, ...]) -> Iterator[Policy]:
    """Actions from single key presses; keys without a meaning are ignored."""
    if not (sys.stdin.isatty() and names):
        raise ValueError("playing by hand needs a terminal and discrete actions; leave out --keys")
    import termios
    import tty

    keys = assign_keys(names)
    before = termios.tcgetattr(sys.stdin)

    typed = ""

    def act() -> int:
        nonlocal typed
        while True:
            typed = typed or os.read(sys.stdin.fileno(), 64).decode(errors="ignore")
            length = 3 if typed.startswith("\x1b[") else 1  # an arrow is three characters, and keys may be typed ahead
            pressed, typed = typed[:length], typed[length:]
            for key in ARROWS.get(pressed, pressed):
                if key in keys:
                    return keys[key]

    try:
        tty.setcbreak(sys.stdin)
        yield act
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
