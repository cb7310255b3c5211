"""Saving a Stable-Baselines3 model together with its E3BRewardWrapper, and resuming from there.

PPO("MlpPolicy", E3BRewardWrapper(venv)).learn(1_000_000, callback=[EncoderUpdateCallback(),
    E3BCheckpointCallback(10_000, "checkpoints")])
...
model, wrapper = resume("checkpoints", PPO, venv)
model.learn(500_000, callback=EncoderUpdateCallback(), reset_num_timesteps=False)

A checkpoint is a group of files:

    e3b_1280_steps.zip                    the model; written last, so a checkpoint counts once its zip is there
    e3b_1280_steps_e3b.pt                 the wrapper
    e3b_1280_steps_vecnormalize_*.pkl     VecNormalize, inside or outside of the wrapper
    e3b_1280_steps_replay_buffer.pkl      if asked for

The comment of the zip holds the checkpoint's number in its folder. It gives the order of writing where SB3's count of
steps does not (it starts again with every `learn`), and survives copying.
"""

from __future__ import annotations

import glob
import pickle
import re
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from e3b_gym.errors import DamagedFileError
from e3b_gym.files import UNFINISHED, atomic_write
from e3b_gym.options import Count, check
from e3b_gym.sb3.order import wrappers_inside
from e3b_gym.sb3.wrapper import E3BRewardWrapper, find_wrapper

Algorithm = TypeVar("Algorithm", bound=BaseAlgorithm)


class E3BCheckpointCallback(BaseCallback):
    """Saves model and wrapper together: `<prefix>_<steps>_steps.zip`, `..._e3b.pt`, and VecNormalize if there is one.

    Written when the next rollout starts: then the algorithm has stored, or learned from, everything it has seen.
    A run that counts its steps from 0 refuses a folder with checkpoints of an earlier run.

    Args:
        save_freq: calls of `env.step()` between checkpoints, at least (as in SB3's CheckpointCallback).
        save_path: folder, made if missing.
        name_prefix: prefix of the files.
        keep: how many of the checkpoints that this callback wrote stay; None = all.
        save_replay_buffer: an off-policy algorithm's replay buffer is saved too. It can be large.

    Examples:
        >>> import tempfile
        >>> from stable_baselines3 import A2C
        >>> from stable_baselines3.common.env_util import make_vec_env
        >>> from e3b_gym import E3BCheckpointCallback, E3BRewardWrapper, EncoderUpdateCallback, resume
        >>> folder = tempfile.mkdtemp()
        >>> model = A2C("MlpPolicy", E3BRewardWrapper(make_vec_env("CartPole-v1", n_envs=2)), n_steps=8, device="cpu")
        >>> model = model.learn(64, callback=[EncoderUpdateCallback(), E3BCheckpointCallback(16, folder, keep=2)])
        >>> model, wrapper = resume(folder, A2C, make_vec_env("CartPole-v1", n_envs=2), device="cpu")
        >>> model.learn(32, callback=EncoderUpdateCallback(), reset_num_timesteps=False).num_timesteps
        96
    """

    def __init__(
        self,
        save_freq: int,
        save_path: str | Path,
        name_prefix: str = "e3b",
        keep: int | None = None,
        save_replay_buffer: bool = False,
        verbose: int = 0,
    ) -> None:
        super().__init__(verbose)
        self.save_freq: int = check("save_freq", save_freq, Count)
        self.folder = Path(save_path)
        self.name_prefix = name_prefix
        self.keep: int | None = check("keep", keep, Count | None)
        self.save_replay_buffer: bool = check("save_replay_buffer", save_replay_buffer, bool)
        self._due = False
        self._written: list[Path] = []  # oldest first

    def _init_callback(self) -> None:
        _wrapper_of(self.model)
        if self.save_replay_buffer and not isinstance(self.model, OffPolicyAlgorithm):
            raise ValueError(f"save_replay_buffer has no effect: {type(self.model).__name__} has none; remove it")
        self.folder.mkdir(parents=True, exist_ok=True)

    def _on_training_start(self) -> None:
        found = list_checkpoints(self.folder, self.name_prefix)
        foreign = [path.name for path in found if path not in self._written]
        if foreign and self.num_timesteps == 0:
            raise ValueError(
                f"{self.folder} holds checkpoints that this run did not write ({', '.join(foreign)}); choose another "
                "save_path or name_prefix, delete them, or resume from them: resume(...), then "
                "learn(..., reset_num_timesteps=False)"
            )
        remove_leftovers(self.folder, self.name_prefix)

    def _on_step(self) -> bool:
        self._due = self._due or self.n_calls % self.save_freq == 0
        return True

    def _on_rollout_start(self) -> None:
        self._save_if_due()

    def _on_training_end(self) -> None:
        self._save_if_due()

    def _save_if_due(self) -> None:
        if self._due:
            self._due = False
            self.save()

    def save(self) -> Path:
        """Writes a checkpoint now; returns the model's file."""
        path = save_checkpoint(self.model, self.folder, self.name_prefix, replay_buffer=self.save_replay_buffer)
        self._written = [*(old for old in self._written if old != path), path]
        if self.verbose:
            print(f"checkpoint {path}")
        while self.keep is not None and len(self._written) > self.keep:
            remove_checkpoint(self._written.pop(0))
        return path


def save_checkpoint(model: BaseAlgorithm, folder: Path, prefix: str = "e3b", *, replay_buffer: bool = False) -> Path:
    """Writes a checkpoint of `model` and of the E3BRewardWrapper around its environment; returns the model's file.

    Args:
        model: the algorithm.
        folder: made if missing.
        prefix: prefix of the files.
        replay_buffer: an off-policy algorithm's replay buffer is saved too.
    """
    wrapper = _wrapper_of(model)
    folder.mkdir(parents=True, exist_ok=True)
    number = 1 + max((_number(path) or 0 for path in list_checkpoints(folder, prefix)), default=0)
    stem = folder / f"{prefix}_{model.num_timesteps}_steps"
    path = Path(f"{stem}.zip")
    path.unlink(missing_ok=True)  # of an earlier learn(); its other files are overwritten now
    try:
        wrapper.save(f"{stem}_e3b.pt")
        if (normalizer := model.get_vec_normalize_env()) is not None:
            side = "inside" if normalizer in wrappers_inside(wrapper) else "outside"
            with atomic_write(f"{stem}_vecnormalize_{side}.pkl") as temporary:
                normalizer.save(str(temporary))
        if replay_buffer and isinstance(model, OffPolicyAlgorithm):
            with atomic_write(f"{stem}_replay_buffer.pkl") as temporary:
                model.save_replay_buffer(temporary)
        with atomic_write(path) as temporary:
            model.save(temporary)
            with zipfile.ZipFile(temporary, "a") as archive:
                archive.comment = str(number).encode()
    except BaseException:  # a full disk, Ctrl-C
        if not path.exists():
            remove_checkpoint(path)  # its other files are of no use without the model's
        raise
    return path


def remove_leftovers(folder: Path, prefix: str) -> None:
    """Deletes the files of an interrupted save: truncated ones, and those without a model's file."""
    own = f"{glob.escape(prefix)}_*"
    for leftover in folder.glob(own + UNFINISHED):
        leftover.unlink()
    kinds = "e3b.pt|vecnormalize_inside.pkl|vecnormalize_outside.pkl|replay_buffer.pkl"
    of_checkpoint = re.compile(rf"({re.escape(prefix)}_\d+_steps)_({kinds})")
    for file in folder.glob(own):
        if (match := of_checkpoint.fullmatch(file.name)) and not (folder / f"{match[1]}.zip").exists():
            file.unlink()


def list_checkpoints(folder: Path, prefix: str = "e3b") -> list[Path]:
    """The models' files, in the order of writing; those whose number cannot be read come last."""
    steps = re.compile(rf"{re.escape(prefix)}_(\d+)_steps\.zip")
    found = []
    for path in folder.glob("*.zip"):
        if match := steps.fullmatch(path.name):
            number = _number(path)
            found.append((number is None, number or 0, int(match[1]), path))
    return [path for *_, path in sorted(found)]


def remove_checkpoint(path: Path) -> None:
    """Deletes the files of a checkpoint, the model's first."""
    for file in [path, *path.parent.glob(f"{glob.escape(path.stem)}_*")]:
        file.unlink(missing_ok=True)


def resume(
    folder: str | Path,
    algorithm: type[Algorithm],
    venv: VecEnv,
    name_prefix: str = "e3b",
    *,
    wrapper_objects: dict[str, Any] | None = None,
    **load_options: Any,
) -> tuple[Algorithm, E3BRewardWrapper]:
    """Model and wrapper of the newest checkpoint in `folder`; continue with `learn(..., reset_num_timesteps=False)`.

    A checkpoint that cannot be read is skipped with a warning, and the previous one is loaded.

    Args:
        folder: where E3BCheckpointCallback saved. Load only files that you trust: SB3's own (model, VecNormalize,
            replay buffer) can run code when loaded.
        algorithm: the class of the model, such as PPO.
        venv: the environment, without E3BRewardWrapper and VecNormalize.
        name_prefix: prefix of the files.
        wrapper_objects: what `E3BRewardWrapper.load` needs in addition to the file, such as `{"encoder": MyNetwork()}`.
        **load_options: passed to `algorithm.load`.

    Raises:
        FileNotFoundError: there is no checkpoint.
        DamagedFileError: there are checkpoints, but none can be read.
    """
    found = list_checkpoints(Path(folder), name_prefix)
    if not found:
        raise FileNotFoundError(f"no checkpoint {name_prefix}_<steps>_steps.zip in {folder}")
    problems: list[str] = []
    for path in reversed(found):
        try:
            loaded = _load(path, algorithm, venv, wrapper_objects or {}, load_options)
        except DamagedFileError as error:
            problems.append(str(error))
            continue
        if problems:
            warnings.warn(f"resuming from {path.name}, because {'; '.join(problems)}", stacklevel=2)
        return loaded
    raise DamagedFileError(f"no checkpoint in {folder} can be read: {'; '.join(problems)}")


def _load(
    path: Path, algorithm: type[Algorithm], venv: VecEnv, objects: dict[str, Any], load_options: dict[str, Any]
) -> tuple[Algorithm, E3BRewardWrapper]:
    stem = str(path.with_suffix(""))
    inside, outside, replay = (
        Path(f"{stem}_{part}.pkl") for part in ("vecnormalize_inside", "vecnormalize_outside", "replay_buffer")
    )
    _require_intact(path)
    if inside.exists():
        venv = _load_normalizer(inside, venv)
    try:
        wrapper = E3BRewardWrapper.load(f"{stem}_e3b.pt", venv, **objects)
    except FileNotFoundError as error:
        raise DamagedFileError(f"{path.name} has no {path.stem}_e3b.pt next to it") from error
    outermost = _load_normalizer(outside, wrapper) if outside.exists() else wrapper
    model = algorithm.load(path, env=outermost, **load_options)
    if replay.exists() and isinstance(model, OffPolicyAlgorithm):
        try:
            model.load_replay_buffer(replay)
        except Exception as error:  # a damaged pickle may raise anything
            raise DamagedFileError(f"{replay.name} is damaged ({error!r})") from error
    return model, wrapper


def _require_intact(path: Path) -> None:
    try:
        with _archive(path) as archive:
            damaged = archive.testzip()
    except Exception as error:  # a damaged archive may raise anything
        raise DamagedFileError(f"{path.name} is damaged ({error!r})") from error
    if damaged is not None:
        raise DamagedFileError(f"{path.name} is damaged (its part {damaged})")


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """A model's file. One that was cut short can look like the archive of weights inside it."""
    with zipfile.ZipFile(path) as archive:
        if "data" not in archive.namelist():
            raise zipfile.BadZipFile("it has no entry 'data'")
        yield archive


def _load_normalizer(path: Path, venv: VecEnv) -> VecNormalize:
    try:
        with path.open("rb") as file:
            normalizer = pickle.load(file)
    except Exception as error:  # a damaged pickle may raise anything
        raise DamagedFileError(f"{path.name} is damaged ({error!r})") from error
    if not isinstance(normalizer, VecNormalize):
        raise DamagedFileError(f"{path.name} holds a {type(normalizer).__name__}, not a VecNormalize")
    normalizer.set_venv(venv)
    return normalizer


def _number(path: Path) -> int | None:
    """The checkpoint's number in its folder; 0 where it has none, None where the file is damaged."""
    try:
        with _archive(path) as archive:
            return int(archive.comment or 0)
    except (OSError, ValueError, zipfile.BadZipFile):
        return None


def _wrapper_of(model: BaseAlgorithm) -> E3BRewardWrapper:
    wrapper = find_wrapper(model.get_env())
    if wrapper is None:
        raise ValueError("the model's environment has no E3BRewardWrapper; use SB3's CheckpointCallback instead")
    return wrapper
