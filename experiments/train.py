"""Trains any agent with any method in any environment; resumes a run that was stopped.

make train ENV=MiniHack-MultiRoom-N6-Lava-v0          E3B, IMPALA, the `home` preset
make train RUN=runs/... RESUME=1                      resumes; STEPS= may be raised

ENV=        an id (`python -m e3b_gym.envs` lists them)     METHOD=  e3b, none, noveld, ride, ... (docs/bonuses.md)
AGENT=      impala, recurrent_ppo, ppo,                     PRESET=  home, paper
            random, random-forward
STEPS=      environment steps (10M, 500k)                   SEED=    of weights, actions, environments
NET=        paper, fast; in MiniHack also moves            RUN=     the run's folder; default runs/<env>/<...>
<field>=    any field of the agent's config, option of the run, or option of the bonus: learning_rate=3e-4 beta=0.1
env.<name>= any option of the environment: env.max_steps=100

AGENT=random (any action) and AGENT=random-forward (in Habitat: 80 % forward, otherwise a turn) learn nothing: the
command only writes a run's folder, which `make evaluate`, `make watch` and `make homes` play like any other.
"""

from __future__ import annotations

import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from agents.impala.group import LearnerError
from agents.networks import env_options_for
from agents.protocols import Trainee, Update
from agents.registry import find_agent
from agents.run_config import RunConfig
from e3b_gym.command import answer, is_out_of_memory, one_line
from e3b_gym.envs import default_options, make
from e3b_gym.envs.registry import suite_of
from e3b_gym.errors import DivergedError
from experiments.expected import expected
from experiments.progress import Progress, duration, errors_of_boards_once, short
from experiments.runs import RunFolder, changed
from experiments.saver import NotSavedError, Saver
from experiments.settings import (
    FIELDS_IN_CAPITALS,
    Settings,
    as_options,
    is_set,
    resolve,
    split_arguments,
    task_settings,
    with_environment,
)

OPTIONS = ("AGENT", "PRESET", "RUN", "RESUME")


Prepared = tuple[RunFolder, Settings, Trainee, Progress]


class Stopper:
    """Records a request to end the run: Ctrl-C or SIGTERM. A second Ctrl-C ends it at once."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self) -> bool:
        return self.signal is not None

    def _note(self, number: int, frame: object) -> None:
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = number
        print(
            "\nstopping after this rollout and saving a checkpoint (Ctrl-C again stops at once, without saving)",
            flush=True,
        )

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
    with env_options_checked(settings.config):
        try:
            return find_agent(settings.agent).make_trainee(settings.config, settings.run.keep, resume)
        except LearnerError as error:  # one was lost before training began
            raise ValueError(str(error)) from error


@contextmanager
def env_options_checked(config: RunConfig) -> Iterator[None]:
    """Raises ValueError, a user error, if an environment of another package does not take the options."""
    try:
        yield
    except TypeError as error:
        suite, usual = suite_of(config.env), default_options(config.env).items()
        options = ", ".join(f"env.{name}" for name, value in config.env_options.items() if (name, value) not in usual)
        if not options or (suite is not None and not suite.other_options):
            raise
        raise ValueError(f"{config.env} does not take all of {options}: {error}") from error


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit code: 0 done, 1 diverged or not saved, 2 refused, 128 + signal if stopped."""
    with errors_of_boards_once():
        return answer(arguments, __doc__, prepare)


def prepare(given: list[str]) -> int | Callable[[], int]:
    """Checks and builds everything; returns a function that trains, whose errors are not user errors."""
    options, fields = split_arguments(given, OPTIONS, FIELDS_IN_CAPITALS)
    try:
        prepared = (prepare_resumed if is_set(options, "RESUME") else prepare_new)(options, fields)
    except KeyboardInterrupt:
        print("stopped before training began", file=sys.stderr)
        return 128 + signal.SIGINT
    return 0 if prepared is None else partial(_run_and_close, *prepared)


def _run_and_close(folder: RunFolder, settings: Settings, trainee: Trainee, progress: Progress) -> int:
    try:
        return run(folder, settings, trainee, progress)
    finally:
        trainee.close()
        folder.release()


def prepare_new(options: Mapping[str, str], fields: Mapping[str, str]) -> Prepared | None:
    """Prepares a new run. Its folder is made after everything else has worked. None if there is nothing to learn."""
    if "env" not in fields and options.get("RUN") and (folder := RunFolder(Path(options["RUN"]))).config_file.exists():
        raise ValueError(f"{folder.path} holds a run; resume it: {folder.command('train', 'RESUME=1')}")
    settings = with_environment(resolve(options.get("AGENT", "impala"), options.get("PRESET", "home"), fields))
    folder, config = RunFolder.for_new(settings, options.get("RUN")), settings.config
    if find_agent(settings.agent).trainer is None:
        with env_options_checked(config):
            env: Any = make(config.env, **env_options_for(config))
        env.close()
        folder.save(settings)
        print(f"{settings.agent} in {config.env} does not learn; the run is ready for evaluate and watch")
        print(f"run: {folder.path}\n{what_next(folder, config.env)}")
        return None
    trainee = make_trainee(settings)
    with _closed_on_error(folder, trainee):
        folder.hold()
        folder.save(settings)
        trainee.save_into(folder.checkpoints)
        trainee.save(None, {})  # a run can be resumed from its first moment
        progress = make_progress(folder, settings, trainee)
    print(f"{config.method} in {config.env}: {settings.agent}, preset {settings.preset}, seed {config.seed}, ", end="")
    print(f"{short(config.steps)} frames")
    if own := task_settings(settings):
        print(f"options of the preset for this task: {as_options(own)}")
    if line := expected(settings):
        print(line)
    print(f"run: {folder.path}   (curves: make board)", flush=True)
    return folder, settings, trainee, progress


@contextmanager
def _closed_on_error(folder: RunFolder, trainee: Trainee) -> Iterator[None]:
    try:
        yield
    except BaseException:
        trainee.close()
        folder.release()
        raise


def make_progress(folder: RunFolder, settings: Settings, trainee: Trainee) -> Progress:
    """Returns the curve and the status line of a run, restored from its checkpoint."""
    progress = Progress(folder.path, settings.config.steps, trainee.frames, settings.run.log_seconds)
    try:
        if trainee.extra:
            progress.load_state_dict(trainee.extra)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise ValueError(
            f"the checkpoint in {folder.checkpoints} has no usable progress ({error!r}); remove that file to resume "
            "from the previous one"
        ) from error
    return progress


def what_next(folder: RunFolder, env: str) -> str:
    """Commands that show the results of a run."""
    measure = folder.command("evaluate")
    suite = suite_of(env)
    if suite is not None and suite.reward_free:
        measure = f"make homes RUNS={shlex.quote(shlex.quote(str(folder.path)))}"  # RUNS is a list for the shell
    return f"next: {measure}\n      {folder.command('watch')}"


def prepare_resumed(options: Mapping[str, str], fields: Mapping[str, str]) -> Prepared:
    """Prepares a resumed run, with its own settings."""
    folder = RunFolder.existing(options.get("RUN"))
    if folder.exported:
        raise ValueError(
            f"{folder.path} is an exported agent, without optimisers; IMPALA.load(...).learn(...) trains it"
        )
    settings, parts = folder.load()
    for name, own in (("AGENT", settings.agent), ("PRESET", settings.preset)):
        if options.get(name, own) != own:
            raise ValueError(
                f"RESUME=1 keeps the run's own settings, and it has {name}={own}; start a new run for that"
            )
    settings, changes = changed(settings, fields)
    folder.hold()  # before its checkpoint is read: another process that trains there may be about to write one
    try:
        require_checkpoint(folder)
        trainee = make_trainee(settings, folder.checkpoints)
    except BaseException:
        folder.release()
        raise
    with _closed_on_error(folder, trainee):
        if trainee.frames >= settings.config.steps:
            raise ValueError(
                f"{folder.path} is at frame {trainee.frames:,}, and STEPS is {settings.config.steps:,}; to continue "
                f"training, raise it: {folder.command('train', 'RESUME=1', f'STEPS={2 * trainee.frames}')}"
            )
        progress = make_progress(folder, settings, trainee)
        folder.save(settings, parts)
    for name, value in changes.items():
        print(f"changed: {name} is now {value}")
    print(f"resuming at frame {trainee.frames:,}; environments are re-seeded, running episodes restart")
    print(f"run: {folder.path}", flush=True)
    return folder, settings, trainee, progress


def require_checkpoint(folder: RunFolder) -> None:
    """Raises ValueError for a run with a curve but no checkpoints: its curve would be overwritten."""
    if any(folder.checkpoints.glob("checkpoint-*.pt")) or not folder.curve.exists():
        return
    raise ValueError(
        f"{folder.path} has a curve but no checkpoint, so RESUME=1 would start at frame 0 and overwrite it; restore "
        f"{folder.checkpoints}, or start a new run"
    )


def run(folder: RunFolder, settings: Settings, trainee: Trainee, progress: Progress) -> int:
    """Trains, with progress and checkpoints, to the end or until stopped."""
    start, saver, stop = time.monotonic(), Saver(trainee, settings.run), Stopper()

    def observe(update: Update) -> None:
        progress.add(update, trainee.seconds)
        saver.save_if_due(progress)

    again = folder.command("train", "RESUME=1")
    ending, code = "", 1  # printed on stderr, after the line of the progress
    try:
        with stop.listening():
            trainee.train(observe, stop)
            saver.save(progress)
    except DivergedError as error:
        ending = f"diverged at frame {trainee.frames:,}: {error}\n{saver.intact(again)}"
    except NotSavedError as error:
        ending = f"{error}; {saver.intact(again)}"
    except LearnerError as error:
        ending = f"stopped at frame {trainee.frames:,}: {error}\n{saver.intact(again)}"
    except KeyboardInterrupt:
        ending, code = f"not saved; {saver.intact(again)}", 128 + signal.SIGINT
    except BaseException as error:
        if not isinstance(error, Exception) or not is_out_of_memory(error):
            progress.finish(trainee.frames, trainee.seconds)
            print(f"not saved; {saver.intact(again)}", file=sys.stderr, flush=True)
            raise
        ending = f"stopped at frame {trainee.frames:,}: {one_line(error)}\n{saver.intact(again)}"
    progress.finish(trainee.frames, trainee.seconds)
    if ending:
        print(ending, file=sys.stderr, flush=True)
        return code
    if stop.signal is not None and trainee.frames < settings.config.steps:
        print(f"saved at frame {trainee.frames:,}; to resume: {again}")
        return 128 + stop.signal
    print(f"done: {trainee.frames:,} frames in {duration(time.monotonic() - start)}")
    if line := expected(settings):
        print(line)
    print(what_next(folder, settings.config.env))
    return 0


if __name__ == "__main__":
    sys.exit(main())
