"""Callbacks for Stable-Baselines3: train the encoder of an E3BRewardWrapper, save it with the model, resume both."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any, TypeVar

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecMonitor, VecNormalize

from e3b_gym.wrappers.sb3 import E3BRewardWrapper, find_wrapper
from e3b_gym.wrappers.sb3_policy import LogitsTap, PolicyEncoder, reads_policy_features, reads_policy_logits
from e3b_gym.wrappers.training import TrainerConfig

Algorithm = TypeVar("Algorithm", bound=BaseAlgorithm)


class EncoderUpdateCallback(BaseCallback):
    """Trains the encoder on each rollout (on-policy) or every `every` steps (off-policy), and logs under `e3b/`.

    Args:
        learning_rate, epochs, batch_size, max_grad_norm: of the encoder; None = `TrainerConfig`'s.
        every: steps of each environment between trainings, for algorithms without rollouts.
    """

    def __init__(
        self,
        *,
        learning_rate: float | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        max_grad_norm: float | None = None,
        every: int = 128,
        verbose: int = 0,
    ) -> None:
        super().__init__(verbose)
        if every < 1:
            raise ValueError(f"every must be at least 1 step; got {every}")
        self.every = every
        settings = {
            "learning_rate": learning_rate,
            "epochs": epochs,
            "batch_size": batch_size,
            "max_grad_norm": max_grad_norm,
        }
        self._settings = {name: value for name, value in settings.items() if value is not None}
        TrainerConfig(**self._settings)  # a wrong setting is an error here, not at the first rollout

    def _init_callback(self) -> None:
        wrapper = find_wrapper(self.training_env)
        if wrapper is None:
            raise ValueError("the model's environment has no E3BRewardWrapper; wrap it: E3BRewardWrapper(venv)")
        self.wrapper = wrapper
        self._by_rollout = isinstance(self.model, OnPolicyAlgorithm)
        wrapper.engine.trainer.configure(**self._settings)
        wrapper.engine.record_up_to(self.model.n_steps if isinstance(self.model, OnPolicyAlgorithm) else self.every)
        warn_about_order(self.model, wrapper)
        if reads_policy_features(wrapper.bonus):
            self._require_same_observations()
            wrapper.bonus.bind_policy(PolicyEncoder(self.model))
        if reads_policy_logits(wrapper.bonus):
            wrapper._policy_logits = LogitsTap(self.model)

    def _require_same_observations(self) -> None:
        changed = [type(outer).__name__ for outer in wrappers_outside(self.training_env, self.wrapper)]
        if changed := [name for name in changed if name != "VecTransposeImage"]:
            raise ValueError(
                f"the policy encoder must see what the policy sees, but {', '.join(changed)} stands between them; put "
                "E3BRewardWrapper outermost"
            )

    def _on_step(self) -> bool:
        if not self._by_rollout and self.n_calls % self.every == 0:
            self._train()
        return True

    def _on_rollout_end(self) -> None:
        if self._by_rollout:
            self._train()

    def _train(self) -> None:
        for name, value in self.wrapper.train_encoder().items():
            self.logger.record(f"e3b/{name}", value)


def wrappers_outside(venv: VecEnv, wrapper: E3BRewardWrapper) -> list[VecEnvWrapper]:
    """The VecEnv wrappers around `wrapper`, outermost first."""
    outside = []
    while isinstance(venv, VecEnvWrapper) and venv is not wrapper:
        outside.append(venv)
        venv = venv.venv
    return outside


def wrappers_inside(wrapper: E3BRewardWrapper) -> list[VecEnvWrapper]:
    """The VecEnv wrappers that `wrapper` is around, outermost first."""
    inside, venv = [], wrapper.venv
    while isinstance(venv, VecEnvWrapper):
        inside.append(venv)
        venv = venv.venv
    return inside


def warn_about_order(model: BaseAlgorithm, wrapper: E3BRewardWrapper) -> None:
    """Warns where the order of wrappers would silently drop the bonus or mix it into the wrong number."""
    if any(isinstance(outer, VecMonitor) for outer in wrappers_outside(model.get_env(), wrapper)):  # type: ignore[arg-type]
        warnings.warn(
            "VecMonitor is outside E3BRewardWrapper, so ep_rew_mean will be the environment's reward plus the bonus. "
            "Right order: E3BRewardWrapper(VecMonitor(venv))",
            stacklevel=2,
        )
    inside = any(isinstance(inner, VecNormalize) for inner in wrappers_inside(wrapper))
    if inside and isinstance(model, OffPolicyAlgorithm):
        warnings.warn(
            f"VecNormalize is inside E3BRewardWrapper, and {type(model).__name__} stores VecNormalize's original "
            "reward in its replay buffer: the bonus would be lost. Right order: VecNormalize(E3BRewardWrapper(venv))",
            stacklevel=2,
        )
    if type(model).__name__ == "ARS" and any(wrapper.env_is_wrapped(Monitor)):
        warnings.warn(
            "ARS reads episode rewards from Monitor, which does not see the bonus: it would have no effect. Use "
            "environments without Monitor",
            stacklevel=2,
        )


class E3BCheckpointCallback(BaseCallback):
    """Saves model and wrapper together every `save_freq` calls: `<prefix>_<steps>_steps.zip` and `..._e3b.pt`.

    Args:
        save_freq: calls of `env.step()` between checkpoints (as in SB3's CheckpointCallback).
        save_path: folder, made if missing.
        name_prefix: of the files.
        keep: how many checkpoints stay; None = all.
    """

    def __init__(
        self, save_freq: int, save_path: str | Path, name_prefix: str = "e3b", keep: int | None = None, verbose: int = 0
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

    def _init_callback(self) -> None:
        if find_wrapper(self.training_env) is None:
            raise ValueError("the model's environment has no E3BRewardWrapper; use SB3's CheckpointCallback instead")
        self.folder.mkdir(parents=True, exist_ok=True)

    def _on_step(self) -> bool:
        if self.n_calls % self.save_freq == 0:
            self.save()
        return True

    def save(self) -> Path:
        """Writes a checkpoint now; returns the model's file."""
        stem = self.folder / f"{self.name_prefix}_{self.num_timesteps}_steps"
        wrapper, normalizer = find_wrapper(self.training_env), self.model.get_vec_normalize_env()
        if wrapper is not None:
            wrapper.save(f"{stem}_e3b.pt")
        if normalizer is not None:
            inside = wrapper is not None and normalizer in wrappers_inside(wrapper)
            normalizer.save(f"{stem}_vecnormalize_{'inside' if inside else 'outside'}.pkl")
        # The model comes last: a checkpoint counts once its zip is there.
        self.model.save(f"{stem}.part.zip")
        Path(f"{stem}.part.zip").replace(f"{stem}.zip")
        if self.verbose:
            print(f"checkpoint {stem}.zip")
        for old in _checkpoints(self.folder, self.name_prefix)[: -self.keep] if self.keep else []:
            for file in self.folder.glob(f"{old.stem}*"):
                file.unlink()
        return Path(f"{stem}.zip")


def resume(
    folder: str | Path, algorithm: type[Algorithm], venv: VecEnv, name_prefix: str = "e3b", **load_options: Any
) -> tuple[Algorithm, E3BRewardWrapper]:
    """Model and wrapper of the newest checkpoint in `folder`; go on with `learn(..., reset_num_timesteps=False)`.

    Args:
        folder: where E3BCheckpointCallback saved.
        algorithm: the class of the model, such as PPO.
        venv: the environment without E3BRewardWrapper.
        name_prefix: of the files.
        **load_options: passed to `algorithm.load`.
    """
    found = _checkpoints(Path(folder), name_prefix)
    if not found:
        raise FileNotFoundError(f"no checkpoint {name_prefix}_<steps>_steps.zip in {folder}")
    stem = str(found[-1].with_suffix(""))
    inside, outside = f"{stem}_vecnormalize_inside.pkl", f"{stem}_vecnormalize_outside.pkl"
    if Path(inside).exists():
        venv = VecNormalize.load(inside, venv)
    wrapper = E3BRewardWrapper.load(f"{stem}_e3b.pt", venv)
    outermost = VecNormalize.load(outside, wrapper) if Path(outside).exists() else wrapper
    return algorithm.load(found[-1], env=outermost, **load_options), wrapper


def _checkpoints(folder: Path, prefix: str) -> list[Path]:
    """Oldest first."""
    steps = re.compile(rf"{re.escape(prefix)}_(\d+)_steps\.zip")
    found = [(int(match[1]), path) for path in folder.glob("*.zip") if (match := steps.fullmatch(path.name))]
    return [path for _, path in sorted(found)]
