"""Saving a Stable-Baselines3 model together with its E3BRewardWrapper, and going on from there.

PPO("MlpPolicy", E3BRewardWrapper(venv)).learn(1_000_000, callback=[EncoderUpdateCallback(),
    E3BCheckpointCallback(10_000, "checkpoints")])
...
model, wrapper = resume("checkpoints", PPO, venv)
model.learn(500_000, callback=EncoderUpdateCallback(), reset_num_timesteps=False)
"""

from __future__ import annotations

import glob
import re
from pathlib import Path
from typing import Any, TypeVar

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from e3b_gym.sb3.order import wrappers_inside
from e3b_gym.sb3.wrapper import E3BRewardWrapper, find_wrapper

Algorithm = TypeVar("Algorithm", bound=BaseAlgorithm)


class E3BCheckpointCallback(BaseCallback):
    """Saves model and wrapper together: `<prefix>_<steps>_steps.zip`, `..._e3b.pt`, and VecNormalize if there is one.

    Written when the next rollout starts: then the algorithm has stored, or learned from, everything it has seen.

    Args:
        save_freq: calls of `env.step()` between checkpoints, at least (as in SB3's CheckpointCallback).
        save_path: folder, made if missing.
        name_prefix: of the files.
        keep: how many checkpoints stay; None = all.
        save_replay_buffer: an off-policy algorithm's replay buffer is saved too. It can be large.
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
        if save_freq < 1:
            raise ValueError(f"save_freq must be at least 1; got {save_freq}")
        if keep is not None and keep < 1:
            raise ValueError(f"keep must be at least 1, or None for all; got {keep}")
        self.save_freq = save_freq
        self.folder = Path(save_path)
        self.name_prefix = name_prefix
        self.keep = keep
        self.save_replay_buffer = save_replay_buffer
        self._due = False

    def _init_callback(self) -> None:
        wrapper = find_wrapper(self.training_env)
        if wrapper is None:
            raise ValueError("the model's environment has no E3BRewardWrapper; use SB3's CheckpointCallback instead")
        self.wrapper = wrapper
        self.folder.mkdir(parents=True, exist_ok=True)

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
        stem = self.folder / f"{self.name_prefix}_{self.num_timesteps}_steps"
        self.wrapper.save(f"{stem}_e3b.pt")
        if (normalizer := self.model.get_vec_normalize_env()) is not None:
            side = "inside" if normalizer in wrappers_inside(self.wrapper) else "outside"
            normalizer.save(f"{stem}_vecnormalize_{side}.pkl")
        if self.save_replay_buffer and isinstance(self.model, OffPolicyAlgorithm):
            self.model.save_replay_buffer(f"{stem}_replay_buffer.pkl")
        # The model comes last: a checkpoint counts once its zip is there.
        self.model.save(f"{stem}.part.zip")
        Path(f"{stem}.part.zip").replace(f"{stem}.zip")
        if self.verbose:
            print(f"checkpoint {stem}.zip")
        for old in _checkpoints(self.folder, self.name_prefix)[: -self.keep] if self.keep else []:
            for file in [old, *self.folder.glob(f"{glob.escape(old.stem)}_*")]:
                file.unlink()
        return Path(f"{stem}.zip")


def resume(
    folder: str | Path,
    algorithm: type[Algorithm],
    venv: VecEnv,
    name_prefix: str = "e3b",
    *,
    wrapper_objects: dict[str, Any] | None = None,
    **load_options: Any,
) -> tuple[Algorithm, E3BRewardWrapper]:
    """Model and wrapper of the newest checkpoint in `folder`; go on with `learn(..., reset_num_timesteps=False)`.

    Args:
        folder: where E3BCheckpointCallback saved. Only from people you trust: the files of SB3's own (model,
            VecNormalize, replay buffer) can run code when loaded.
        algorithm: the class of the model, such as PPO.
        venv: the environment, without E3BRewardWrapper and VecNormalize.
        name_prefix: of the files.
        wrapper_objects: what `E3BRewardWrapper.load` needs besides the file, such as `{"encoder": MyNetwork()}`.
        **load_options: passed to `algorithm.load`.
    """
    found = _checkpoints(Path(folder), name_prefix)
    if not found:
        raise FileNotFoundError(f"no checkpoint {name_prefix}_<steps>_steps.zip in {folder}")
    stem = str(found[-1].with_suffix(""))
    inside, outside, replay = (
        Path(f"{stem}_{part}.pkl") for part in ("vecnormalize_inside", "vecnormalize_outside", "replay_buffer")
    )
    if inside.exists():
        venv = VecNormalize.load(str(inside), venv)
    wrapper = E3BRewardWrapper.load(f"{stem}_e3b.pt", venv, **(wrapper_objects or {}))
    outermost = VecNormalize.load(str(outside), wrapper) if outside.exists() else wrapper
    model = algorithm.load(found[-1], env=outermost, **load_options)
    if replay.exists() and isinstance(model, OffPolicyAlgorithm):
        model.load_replay_buffer(replay)
    return model, wrapper


def _checkpoints(folder: Path, prefix: str) -> list[Path]:
    """Oldest first."""
    steps = re.compile(rf"{re.escape(prefix)}_(\d+)_steps\.zip")
    found = [(int(match[1]), path) for path in folder.glob("*.zip") if (match := steps.fullmatch(path.name))]
    return [path for _, path in sorted(found)]
