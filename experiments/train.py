"""Trains any agent with any method in any environment; goes on with a run that was stopped.

make train ENV=MiniHack-MultiRoom-N6-Lava-v0          E3B, IMPALA, the `home` preset
make train RUN=runs/... RESUME=1                      goes on; STEPS= may be raised

ENV=        an id (`python -m e3b_gym.envs` lists them)     METHOD=  e3b, none, noveld, ride, ... (docs/bonuses.md);
                                                                     random, random-forward
AGENT=      impala, recurrent_ppo, ppo                      PRESET=  home, paper
STEPS=      environment steps (10M, 500k)                   SEED=    of weights, actions and worlds
NET=        paper, fast                                     RUN=     the run's folder, else runs/<env>/<...>
<field>=    any field of the agent's config, option of the run, or option of the bonus: learning_rate=3e-4 beta=0.1
env.<name>= any option of the environment: env.max_steps=100

METHOD=random (any action) and METHOD=random-forward (in Habitat: 80 % forward, else a turn) learn nothing: the command
only writes a run's folder, which `make evaluate`, `make watch` and `make homes` play like any other.
"""

from __future__ import annotations

import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from agents.impala.config import Config
from agents.impala.training import Update
from e3b_gym.envs import make
from e3b_gym.errors import DivergedError
from experiments.command import answer
from experiments.players import AnyConfig, world_options
from experiments.progress import Progress, duration, short
from experiments.random_agent import RandomConfig
from experiments.runs import RunFolder, changed
from experiments.settings import (
    RunOptions,
    Settings,
    as_words,
    is_set,
    resolve,
    split_arguments,
    suite_file,
    task_settings,
)

WORDS = ("AGENT", "PRESET", "RUN", "RESUME")


class Trainee(Protocol):
    """An agent in training, whatever its library."""

    extra: dict[str, Any]
    """Plain data out of the checkpoint that it goes on from."""

    @property
    def frames(self) -> int: ...
    @property
    def seconds(self) -> Mapping[str, float]: ...
    def save_into(self, folder: Path) -> None: ...
    def train(self, observe: Callable[[Update], None], stop: Callable[[], bool]) -> None: ...
    def save(self, score: float | None, extra: dict[str, Any]) -> None: ...
    def close(self) -> None: ...


Prepared = tuple[RunFolder, Settings, Trainee]


class Stopper:
    """Notes that somebody wants the run to end: Ctrl-C or SIGTERM. A second Ctrl-C ends it at once."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self) -> bool:
        return self.signal is not None

    def _note(self, number: int, frame: object) -> None:
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = number
        print("\nstopping after this rollout, with a checkpoint (Ctrl-C again: at once, without one)", flush=True)

    @contextmanager
    def listening(self) -> Iterator[None]:
        before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def make_trainee(settings: Settings, resume: Path | None = None) -> Trainee:
    """The agent of a run; raises ValueError where agent, method and environment do not fit together."""
    config = settings.config
    if isinstance(config, RandomConfig):
        raise ValueError(f"METHOD={config.method} learns nothing")
    with wrong_options_named(config):
        if isinstance(config, Config):
            from experiments.impala_agent import ImpalaTrainee

            return ImpalaTrainee(config, settings.run, resume)
        from experiments.sb3_training import SB3Trainee

        return SB3Trainee(settings.agent, config, settings.run, resume)


@contextmanager
def wrong_options_named(config: AnyConfig) -> Iterator[None]:
    """Options that the environment does not take are the user's mistake."""
    try:
        yield
    except TypeError as error:
        if "unexpected keyword" not in str(error) or not config.env_options:
            raise
        options = ", ".join(f"env.{name}" for name in config.env_options)
        raise ValueError(f"{config.env} does not take all of {options}: {error}") from error


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit code: 0 done, 1 diverged, 2 refused, 128 + signal when stopped."""
    prepared: list[Prepared] = []

    def prepare(given: list[str]) -> int:
        words, fields = split_arguments(given, WORDS)
        made = (prepare_resumed if is_set(words, "RESUME") else prepare_new)(words, fields)
        prepared.extend([] if made is None else [made])
        return 0

    try:
        code = answer(arguments, __doc__, prepare)
    except KeyboardInterrupt:
        print("stopped before training began", file=sys.stderr)
        return 128 + signal.SIGINT
    for folder, settings, trainee in prepared:  # errors from here on are not the user's, and keep their traceback
        try:
            code = run(folder, settings, trainee)
        finally:
            trainee.close()
            folder.release()
    return code


def prepare_new(words: Mapping[str, str], fields: Mapping[str, str]) -> Prepared | None:
    """A new run. Its folder is made when everything else has worked. None where there is nothing to learn."""
    if "env" not in fields and "RUN" in words and (Path(words["RUN"]) / "config.yaml").exists():
        raise ValueError(f"{words['RUN']} holds a run; go on with it: make train RUN={words['RUN']} RESUME=1")
    settings = resolve(words.get("AGENT", "impala"), words.get("PRESET", "home"), fields)
    folder, config = RunFolder.for_new(settings, words.get("RUN")), settings.config
    if isinstance(config, RandomConfig):
        with wrong_options_named(config):
            world: Any = make(config.env, **world_options(config))
        world.close()
        folder.save(settings)
        print(f"{config.method} in {config.env} learns nothing, whatever AGENT and STEPS are: it is ready to be played")
        print(f"run: {folder.path}\n{what_next(folder, config.env)}")
        return None
    trainee = make_trainee(settings)
    try:
        folder.hold()
    except ValueError:  # somebody was faster
        trainee.close()
        raise
    folder.save(settings)
    trainee.save_into(folder.checkpoints)
    print(f"{config.method} in {config.env}: {settings.agent}, preset {settings.preset}, seed {config.seed}, ", end="")
    print(f"{short(config.steps)} frames")
    if own := task_settings(settings):
        print(f"the preset has for this task: {as_words(own)}")
    print(f"run: {folder.path}   (curves: make board)", flush=True)
    return folder, settings, trainee


def what_next(folder: RunFolder, env: str) -> str:
    """The commands that show what a run has come to."""
    measure = folder.command("evaluate")
    if suite_file(env) == "habitat":  # reward-free
        measure = f"make homes RUNS={shlex.quote(str(folder.path))}"
    return f"next: {measure}\n      {folder.command('watch')}"


def prepare_resumed(words: Mapping[str, str], fields: Mapping[str, str]) -> Prepared:
    """A run that goes on, with its own settings."""
    folder = RunFolder.existing(words.get("RUN"))
    settings, parts = folder.load()
    for word, own in (("AGENT", settings.agent), ("PRESET", settings.preset)):
        if words.get(word, own) != own:
            raise ValueError(f"RESUME=1 goes on with the run's own settings, and it has {word}={own}")
    settings, news = changed(settings, fields)
    folder.hold()  # before its checkpoint is read: who trains there may be about to write one
    try:
        trainee = load_trainee(folder, settings)
    except BaseException:
        folder.release()
        raise
    folder.save(settings, parts)
    for name, value in news.items():
        print(f"changed: {name} is {value} from here on")
    print(f"goes on at frame {trainee.frames:,}; worlds and episodes start afresh\nrun: {folder.path}", flush=True)
    return folder, settings, trainee


def load_trainee(folder: RunFolder, settings: Settings) -> Trainee:
    """The agent of a run at its last checkpoint; raises ValueError where it has all its steps."""
    trainee = make_trainee(settings, folder.checkpoints)
    if trainee.frames >= settings.config.steps:
        trainee.close()
        raise ValueError(
            f"{folder.path} has all its {settings.config.steps:,} steps; to go on, raise them: "
            + folder.command("train", "RESUME=1", f"STEPS={2 * settings.config.steps}")
        )
    return trainee


def run(folder: RunFolder, settings: Settings, trainee: Trainee) -> int:
    """Trains, with progress and checkpoints, to the end or until stopped."""
    start, saver = time.monotonic(), _Saver(trainee, settings.run)
    progress = Progress(folder.path, settings.config.steps, trainee.frames, settings.run.log_seconds)
    if trainee.extra:
        progress.load_state_dict(trainee.extra)

    def observe(update: Update) -> None:
        progress.add(update, trainee.seconds)
        saver.save_if_due(progress)

    stop = Stopper()
    again = folder.command("train", "RESUME=1")
    try:
        with stop.listening():
            trainee.train(observe, stop)
            saver.save(progress)
    except DivergedError as error:
        progress.finish(trainee.frames, trainee.seconds)
        print(f"diverged at frame {trainee.frames:,}: {error}", file=sys.stderr)
        print(saver.intact(again), file=sys.stderr)
        return 1
    except BaseException as error:
        progress.finish(trainee.frames, trainee.seconds)
        print(f"not saved; {saver.intact(again)}", file=sys.stderr, flush=True)
        if isinstance(error, KeyboardInterrupt):
            return 128 + signal.SIGINT
        raise
    progress.finish(trainee.frames, trainee.seconds)
    if stop.signal is not None and trainee.frames < settings.config.steps:
        print(f"saved at frame {trainee.frames:,}; to go on: {again}")
        return 128 + stop.signal
    print(f"done: {trainee.frames:,} frames in {duration(time.monotonic() - start)}")
    print(what_next(folder, settings.config.env))
    return 0


class _Saver:
    """Saves now and then."""

    def __init__(self, trainee: Trainee, options: RunOptions) -> None:
        self._trainee, self._period = trainee, 60 * options.checkpoint_minutes
        self._saved = trainee.frames
        self._due = time.monotonic() + self._period

    def save_if_due(self, progress: Progress) -> None:
        if time.monotonic() >= self._due:
            self.save(progress)

    def save(self, progress: Progress) -> None:
        if self._trainee.frames > self._saved:
            self._trainee.save(progress.episodes.score, progress.state_dict())
            self._saved = self._trainee.frames
        self._due = time.monotonic() + self._period

    def intact(self, again: str) -> str:
        """Which checkpoint there is, and what the command `again` would do."""
        if not self._saved:
            return f"there is no checkpoint yet, so {again} would start over"
        return f"the checkpoint of frame {self._saved:,} is intact; to go on from it: {again}"


if __name__ == "__main__":
    sys.exit(main())
