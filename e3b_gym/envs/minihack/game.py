"""One NetHack game: a level source, a seed stream and the loop that turns a key into a step.

The rules are MiniHack's: the reward is 1 for the goal, 0 for death and time-out, -0.01 for a step that takes no time in
NetHack. Prompts for a key or a line of text are answered automatically; the agent gets one-letter questions in the
skill tasks only. Fixes of MiniHack's behaviour:
* the seeds of all episodes come from one generator, and the date (with the moon) from the seed instead of the clock;
* reaching the goal in the last step is a success (MiniHack reports a time-out);
* a finished game is quit by the next reset, not by its last step, so that the terminal observation of a success or a
  time-out stays on screen. NetHack clears the screen when the hero dies; that observation is unusable, and
  `final_observation_valid` is False.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from nle import nethack  # type: ignore[import-untyped]
from numpy.typing import NDArray

from e3b_gym.envs.minihack import almanac, scratch
from e3b_gym.envs.minihack.engine import open_nethack
from e3b_gym.envs.minihack.level import LevelError, compile_level, install_level, level_source, stock_definition
from e3b_gym.envs.minihack.tasks import StockLevel, Task

CONTROL_KEYS = ("blstats", "message", "program_state", "internal")
"""Buffers that the game loop itself reads."""

SPACE, ESCAPE, YES, QUIT = ord(" "), 27, ord("y"), 0x80 | ord("q")
REWARD_WIN, FROZEN_PENALTY = 1.0, -0.01
_MAX_ATTEMPTS = 100
_MAX_OPENING_KEYS = 1000
_MAX_QUIT_KEYS = 50
_SEED_BOUND = 2**62
_OPTIONS = (
    "color,showexp,nobones,nolegacy,nocmdassist,disclose:-i -a -v -g -c -o,!tombstone,runmode:teleport,mention_walls,"
    "nosparkle,showscore,pettype:none"
)
"""MiniHack's options, with less text at the end of a game: it is not shown, and costs as much as a dozen steps."""
_SCORES = ("record", "logfile", "xlogfile")
"""Files in which NetHack notes every game that ended; it reads the first one only."""
_GAMES_PER_LOG = 64
_QUESTIONS_FOR_THE_AGENT = (b"eat", b"attack", b"direction?", b"pray")
_CALENDAR_MESSAGES = (b"moon tonight", b"Friday the 13th")
# indices into NLE's `internal` and `program_state`
_IN_QUESTION, _IN_TEXT_PROMPT, _WAITS_FOR_SPACE, _ON_STAIRS_DOWN = 1, 2, 3, 4
_IN_MOVE_LOOP = 3


class Outcome(NamedTuple):
    """Result of a step. `end` is None while the episode runs."""

    reward: float
    end: Literal["success", "death", "timeout"] | None


class Game:
    """A NetHack that plays one task and writes its observations into the caller's buffers.

    Args:
        task: What to play.
        buffers: Arrays by NLE's observation names, with NLE's shapes and types, C-contiguous; they may be
            slices of a batch. Each step and reset overwrites them. `CONTROL_KEYS` must be among them.
        max_steps: Steps until a time-out.
        level_pool: 0 compiles a new level for every episode; k > 0 compiles the first k and then draws among
            those.
        extra_options: More NetHack options ("playmode:debug" for wizard mode).
    """

    def __init__(
        self,
        task: Task,
        buffers: Mapping[str, NDArray[Any]],
        max_steps: int,
        level_pool: int = 0,
        extra_options: tuple[str, ...] = (),
    ) -> None:
        self.task, self.max_steps, self.steps = task, max_steps, 0
        self._keys = key_codes(task.actions)
        self._draw_level = level_source(task)
        self._fixed = isinstance(task.level, StockLevel)
        self._goal_messages = stock_definition(task.level.entry_point)[1] if isinstance(task.level, StockLevel) else ()
        self._pool_size = 1 if self._fixed else level_pool
        self._pool: list[bytes] = []
        self._blstats, self._message = buffers["blstats"], buffers["message"]
        self._internal, self._program_state = buffers["internal"], buffers["program_state"]
        self._begun, self._turn, self._games, self.seeds = False, 0, 0, (0, 0)
        skill = task.kind == "skill"
        self._all_questions = skill
        character = "cav-hum-neu-mal" if skill else "rog-hum-cha-mal"
        pickup = "!autopickup" if skill else "autopickup"
        self._directory = _new_game_directory()
        options = ",".join((_OPTIONS, pickup, *extra_options, f"name:Agent-{character}"))
        self._nethack, library = open_nethack(self._directory, options)
        self._nethack.set_buffers(**buffers)
        self.close = weakref.finalize(self, _close, self._nethack, library, self._directory, os.getpid())

    def forget_levels(self) -> None:
        """Empties the level pool, so that the episodes after a new seed depend on nothing but the seed."""
        if not self._fixed:
            self._pool.clear()

    def reset(self, rng: np.random.Generator) -> None:
        """Starts the next episode of a seed stream; the buffers then hold the first observation."""
        level = self._next_level(rng)
        self._restore_directory()
        for _ in range(_MAX_ATTEMPTS):
            self._quit()
            self._forget_scores()
            if level is not None:
                self._install(level)
                level = None
            self.seeds = _draw_seeds(rng)
            self._nethack.set_initial_seeds(*self.seeds, False, None)
            self._nethack.reset()
            self._begun = True
            if self._open_on_an_ordinary_day():
                break
        else:
            raise RuntimeError(f"{self.task.id}: NetHack did not reach its move loop in {_MAX_ATTEMPTS} starts")
        self.steps, self._turn = 0, int(self._blstats[nethack.NLE_BL_TIME])

    def step(self, action: int) -> Outcome:
        """Plays one action of the task; the buffers then hold the observation."""
        self._nethack.step(self._keys[action])
        dead = self._answer_prompts()
        self.steps += 1
        turn = int(self._blstats[nethack.NLE_BL_TIME])
        reward = FROZEN_PENALTY if turn == self._turn else 0.0
        self._turn = turn
        if dead:
            return Outcome(reward, "death")
        if self._at_goal():
            return Outcome(reward + REWARD_WIN, "success")
        return Outcome(reward, "timeout" if self.steps >= self.max_steps else None)

    def _next_level(self, rng: np.random.Generator) -> bytes | None:
        """The compiled level of the next episode, or None where it is in place already.

        Draws as many random numbers in both cases.
        """
        seed = int(rng.integers(_SEED_BOUND))
        if not self._pool_size:
            return self._compile_level(seed, rng)
        if len(self._pool) < self._pool_size:
            self._pool.append(self._compile_level(seed, rng))
            return self._pool[-1]
        return None if self._fixed else self._pool[seed % len(self._pool)]

    def _install(self, level: bytes) -> None:
        try:
            install_level(level, self._directory)
        except OSError as error:
            remedy = "make room there, or set TMPDIR to a place that has it"
            message = f"{error.strerror}, so NetHack gets no level; {remedy}"
            raise OSError(error.errno, message, f"{self._directory}/nhdat") from error

    def _restore_directory(self) -> None:
        """Creates the game's files again if they were deleted: systemd, for example, removes a user's files in
        memory when the user logs out, although programs may still run.
        """
        if not os.path.exists(f"{self._directory}/save"):
            _fill_game_directory(self._directory)
            if self._fixed and self._pool:
                self._install(self._pool[0])

    def _compile_level(self, seed: int, rng: np.random.Generator) -> bytes:
        """Compiles the level of a seed, or of the stream's next seed where NetHack's compiler rejects it."""
        for _ in range(_MAX_ATTEMPTS):
            try:
                return compile_level(self._draw_level(seed), self._directory)
            except LevelError as error:
                last_error = error
                seed = int(rng.integers(_SEED_BOUND))
        raise LevelError(f"{self.task.id}: none of {_MAX_ATTEMPTS} levels compiled; the last: {last_error}")

    def _open_on_an_ordinary_day(self) -> bool:
        """Plays to the first free move.

        False where that fails, or on a day that changes the hero's luck (a quarter of all).
        """
        ordinary = True
        for _ in range(_MAX_OPENING_KEYS):
            message = self._message.tobytes()
            ordinary = ordinary and not any(text in message for text in _CALENDAR_MESSAGES)
            if self._program_state[_IN_MOVE_LOOP] or self._nethack.done():
                return ordinary and not self._nethack.done()
            self._nethack.step(SPACE)
        return False

    def _quit(self) -> None:
        """Ends a running game with its quit command: a game that is dropped never frees its memory (2 kB)."""
        if not self._begun:
            return
        keys = [ESCAPE, QUIT, YES]
        for _ in range(_MAX_QUIT_KEYS):
            if self._nethack.done():
                return
            internal = self._internal.tolist()
            if internal[_WAITS_FOR_SPACE]:
                self._nethack.step(SPACE)
            elif internal[_IN_TEXT_PROMPT] or not keys:
                self._nethack.step(ESCAPE)
            else:
                self._nethack.step(keys.pop(0))

    def _forget_scores(self) -> None:
        """Empties the score files. The list of best games is shown at the end of the next game, so it must be empty
        then; the logs only grow.
        """
        record, *logs = (f"{self._directory}/{name}" for name in _SCORES)
        if os.stat(record).st_size:
            os.truncate(record, 0)
        self._games += 1
        if self._games % _GAMES_PER_LOG == 0:
            for log in logs:
                os.truncate(log, 0)

    def _answer_prompts(self) -> bool:
        """Answers prompts that the agent does not see. Returns whether the game is over."""
        while not self._nethack.done():
            internal = self._internal.tolist()
            if internal[_WAITS_FOR_SPACE]:
                self._nethack.step(SPACE)
            elif internal[_IN_TEXT_PROMPT]:
                self._nethack.step(ESCAPE)
            elif internal[_IN_QUESTION] and not self._agent_answers():
                self._nethack.step(ESCAPE)
                return bool(self._nethack.done())
            else:
                return False
        return True

    def _agent_answers(self) -> bool:
        if self._all_questions:
            return True
        message = self._message.tobytes()
        return any(question in message for question in _QUESTIONS_FOR_THE_AGENT)

    def _at_goal(self) -> bool:
        if self._internal[_ON_STAIRS_DOWN]:
            return True
        if not self._goal_messages:
            return False
        message = self._message.tobytes()
        return any(text in message for text in self._goal_messages)


def _draw_seeds(rng: np.random.Generator) -> tuple[int, int]:
    """NetHack's "core" and "disp" seeds of a game on an ordinary day."""
    while True:
        core, disp = int(rng.integers(_SEED_BOUND)), int(rng.integers(_SEED_BOUND))
        if almanac.is_ordinary(core):
            return core, disp


def key_codes(names: tuple[str, ...]) -> list[int]:
    """NetHack's key for each action name of `tasks`."""
    codes = {action.name: int(action) for action in nethack.ACTIONS}
    codes |= {f"FAR_{move.name}": int(move) for move in nethack.CompassDirectionLonger}
    codes |= {move.name: int(move) for move in nethack.CompassDirection}
    unknown = [name for name in names if name not in codes]
    if unknown:
        raise ValueError(f"unknown NetHack actions {unknown}; NLE has {', '.join(codes)}")
    return [codes[name] for name in names]


def _new_game_directory() -> Path:
    directory = scratch.new_directory()
    _fill_game_directory(directory)
    return directory


def _fill_game_directory(directory: Path) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    # NetHack locks them, and a game that finds one locked sleeps for a second, so each game needs its own.
    for name in ("perm", *_SCORES):
        (directory / name).touch()
    (directory / "save").mkdir()


def _close(game: Any, library: Any, directory: Path, owner: int) -> None:
    """Ends a game and deletes its files; in a forked child the files still belong to the parent."""
    if os.getpid() == owner:
        game.close()
        library.close()
        scratch.release(directory)
