"""Shows the agent of a run and its bonus in the terminal, or records a video.

    make watch RUN=runs/... [CHECKPOINT=latest|best] [EPISODES=3] [STEPS=] [SEED=0] [GREEDY=1] [FPS=10]
    make watch RUN=runs/... RECORD=video.gif           or video.mp4; the bonus is in a strip below the image
    make watch ENV=MiniHack-MultiRoom-N6-Lava-v0       the agent that comes with the repository (`make agents`)

A panel next to the environment lists the latest steps with action, reward of the environment, and bonus before scaling
(docs/bonuses.md). With STEPS= an episode is shown up to this step.
"""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from agents.networks import env_options_for
from e3b_gym.buffer import last_of_single
from e3b_gym.command import answer
from e3b_gym.envs import make
from e3b_gym.envs.play import CLEAR, half_blocks
from e3b_gym.envs.registry import all_tasks
from e3b_gym.envs.video import Image, check_video, for_video, write_video
from e3b_gym.options import parse
from e3b_gym.unroll import Tree, tree_map
from experiments.command import options_and_seed, positive
from experiments.players import fresh_seeds, load_player
from experiments.runs import RunFolder
from experiments.settings import is_set
from experiments.trained import chosen_run

OPTIONS = ("RUN", "ENV", "CHECKPOINT", "EPISODES", "STEPS", "GREEDY", "FPS", "RECORD")
PANEL_LINES, BAR = 20, 16
"""Smallest number of lines of the panel, and length of the longest bar in characters."""
MOST_FPS = 1000.0
STRIP = 48
"""Height in pixels of the strip with the bonus below the image of a video."""
PANEL_WIDTH = 62
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_BLANK_END = re.compile(r" +((?:\x1b\[[0-9;]*m)*)$", re.MULTILINE)


@dataclass(frozen=True)
class Step:
    """One step of the agent."""

    action: str
    """Name of the action."""
    reward: float
    """Reward of the environment."""
    bonus: float
    """Bonus before scaling."""
    ending: str = ""
    """How the episode ended: success, failure, time limit, ended; empty before the end."""


@dataclass(frozen=True)
class Scene:
    """A rendered frame (text or RGB) and the steps of the episode so far."""

    frame: Any
    episode: int
    steps: Sequence[Step]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit code."""
    return answer(arguments, __doc__, _run)


def _run(given: list[str]) -> int:
    options, seed = options_and_seed(given, OPTIONS, "watch")
    episodes, fps = positive(options, "EPISODES", "3"), parse("FPS", options.get("FPS", "10"), float)
    steps = positive(options, "STEPS", "") if "STEPS" in options else None
    if not 0 < fps <= MOST_FPS:
        raise ValueError(f"FPS must be positive and at most {MOST_FPS}; got {fps}")
    video = Path(options["RECORD"]) if "RECORD" in options else None
    if video is not None:
        check_video(video)
    which, modes = options.get("CHECKPOINT", "latest"), ("ansi", "rgb_array") if video is None else ("rgb_array",)
    try:
        folder = chosen_run(options)
        if sys.stdout.isatty():
            print(f"loading {folder.path}; the first run after installation compiles its loops, too", flush=True)
        viewer = Viewer(folder, which, modes, is_set(options, "GREEDY"), seed)
        scenes = viewer.scenes(fresh_seeds(viewer.settings.config, episodes, seed), steps)
        if video is None:
            watch(scenes, viewer.title, fps)
        else:
            print(f"{record(scenes, video, fps)} frames in {video}")
    except KeyboardInterrupt:
        print()
    return 0


class Viewer:
    """Runs the agent of a run in one environment, rendered in the first of `modes` that it supports."""

    def __init__(self, folder: RunFolder, which: str, modes: tuple[str, ...], greedy: bool, seed: int) -> None:
        self.settings, _ = folder.load()
        config = self.settings.config
        torch.set_num_threads(config.threads)
        _, task = all_tasks().get(config.env, (None, None))
        self._env: Any = _make_rendered(config.env, modes, env_options_for(config))
        # An option may remove actions (allow_stop in Habitat, buttons in VizDoom).
        own_names = getattr(self._env.unwrapped, "action_names", None)
        self._names: tuple[str, ...] = own_names or (task.actions if task is not None else ())
        spaces = self._env.observation_space, self._env.action_space
        self._player = load_player(folder, self.settings, which, spaces, greedy=greedy, seed=seed)
        self._explorer = self._player.bonus_explorer()
        self.title = f"{config.env}: {self.settings.title} after {self._player.frames:,} frames"

    def scenes(self, seeds: Sequence[int], steps: int | None = None) -> Iterator[Scene]:
        """Runs one episode per seed, up to `steps` steps of it; yields after every reset and step."""
        try:
            for episode, seed in enumerate(seeds, start=1):
                yield from islice(self._episode(episode, seed), None if steps is None else steps + 1)
        finally:
            self._env.close()

    def _episode(self, episode: int, seed: int) -> Iterator[Scene]:
        env, player, explorer = self._env, self._player, self._explorer
        obs, _ = env.reset(seed=seed)
        explorer.reset(_batch(obs))
        steps: list[Step] = []
        yield Scene(env.render(), episode, steps)
        starts, done = np.ones(1, dtype=np.bool_), False
        while not done:
            action = player.act(_batch(obs), starts)
            obs, reward, terminated, truncated, info = env.step(action[0])
            done, starts = bool(terminated or truncated), np.zeros(1, dtype=np.bool_)
            scored = explorer.step(
                action,
                _batch(obs),
                np.array([reward]),
                np.array([done]),
                last_of_single(done, obs, info),
                policy_logits=player.logits,
            )
            name = self._names[action[0]] if self._names else str(action[0])
            ending = _ending(truncated, info.get("is_success")) if done else ""
            steps.append(Step(name, float(reward), float(scored.bonus[0]), ending))
            yield Scene(env.render(), episode, steps)


def watch(scenes: Iterator[Scene], title: str, fps: float) -> None:
    """Shows scenes in the terminal; if the output is not a terminal, prints all of them."""
    live = sys.stdout.isatty()
    for scene in scenes:
        drawn = scene.frame if isinstance(scene.frame, str) else half_blocks(scene.frame, columns=64)
        rendered = _BLANK_END.sub(r"\1", drawn).rstrip("\n")
        text = arranged(rendered, scene, *shutil.get_terminal_size((160, 48)))
        print(f"{CLEAR if live else ''}{title}, episode {scene.episode}\n{text}", flush=True)
        ended = bool(scene.steps) and bool(scene.steps[-1].ending)
        if live:
            time.sleep(max(1.5, 1 / fps) if ended else 1 / fps)


def arranged(rendered: str, scene: Scene, columns: int, lines: int) -> str:
    """Returns the frame with the panel next to it, or below it if the terminal is narrow."""
    height = rendered.count("\n") + 1
    if visible_width(rendered) + PANEL_WIDTH <= columns:
        return side_by_side(rendered, panel(scene, max(PANEL_LINES, height)))
    return f"{rendered}\x1b[0m\n{panel(scene, max(5, lines - height - 2))}"


def panel(scene: Scene, lines: int) -> str:
    """Returns the latest steps of the episode, newest last; bars are relative to the largest bonus shown."""
    text = [f"{'step':>4}  {'action':10} {'reward':>6}  {'bonus':>8}"]
    first = max(0, len(scene.steps) - lines + 2)
    shown = scene.steps[first:]
    largest = max((step.bonus for step in shown), default=0.0) or 1.0
    for number, step in enumerate(shown, start=first + 1):
        bar = "█" * round(BAR * max(step.bonus, 0.0) / largest)
        line = f"{number:4}  {step.action:10.10} {step.reward:6.3g}  {step.bonus:8.4g} {bar:{BAR}} {step.ending}"
        text.append(line.rstrip())
    total = sum(step.reward for step in scene.steps)
    return "\n".join([*text, f"{'return':>16} {total:6.3g}"])


def side_by_side(left: str, right: str) -> str:
    """Returns two texts next to each other; colour codes have no width."""
    rows, others = left.split("\n"), right.split("\n")
    width = visible_width(left) + 3
    height = max(len(rows), len(others))
    rows += [""] * (height - len(rows))
    others += [""] * (height - len(others))
    pairs = zip(rows, others, strict=True)
    return "\n".join(_plain_end(row) + (" " * (width - visible_width(row)) + other).rstrip() for row, other in pairs)


def visible_width(text: str) -> int:
    """Returns the columns of the longest line; colour codes have no width."""
    return max(len(_ANSI.sub("", line)) for line in text.split("\n"))


def _plain_end(row: str) -> str:
    """Returns the row with a colour reset at its end if it has colours."""
    return f"{row}\x1b[0m" if _ANSI.search(row) else row


def record(scenes: Iterator[Scene], path: Path, fps: float) -> int:
    """Records scenes; returns the number of frames. The suffix of the file sets the format."""
    images = (with_strip(for_video(scene.frame), [step.bonus for step in scene.steps]) for scene in scenes)
    return write_video(images, path, fps)


def with_strip(image: Image, bonuses: Sequence[float]) -> Image:
    """Returns the image with a bar for each of the latest steps below it, relative to the largest bonus shown."""
    strip = np.full((STRIP, image.shape[1], 3), 24, dtype=np.uint8)
    bar = 4
    latest = bonuses[-(image.shape[1] // bar) :]
    largest = max(latest, default=0.0) or 1.0
    for place, bonus in enumerate(latest):
        height = round((STRIP - 4) * max(bonus, 0.0) / largest)
        strip[STRIP - height :, place * bar : place * bar + bar - 1] = (240, 160, 40)
    return np.concatenate([image, strip])


def _make_rendered(id: str, modes: tuple[str, ...], options: dict[str, Any]) -> gym.Env[Any, Any]:
    """Makes the environment in the first of `modes` that it supports."""
    probe: Any = make(id, **options)
    known = probe.metadata.get("render_modes", [])
    probe.close()
    for mode in modes:
        if mode in known:
            return make(id, render_mode=mode, **options)
    raise ValueError(f"{id} renders {', '.join(known) or 'nothing'}; this needs {' or '.join(modes)}")


def _batch(obs: Tree) -> Tree:
    return tree_map(lambda leaf: np.array(leaf)[None], obs)


def _ending(truncated: bool, success: bool | None) -> str:
    if truncated:
        return "time limit"
    return "ended" if success is None else "success" if success else "failure"


if __name__ == "__main__":
    sys.exit(main())
