"""Any Gymnasium VectorEnv as a Stable-Baselines3 VecEnv: `GymnasiumVecEnv(venv)`.

SB3 resets an environment in the step that ends its episode and returns the terminal observation in
`infos[i]["terminal_observation"]`. The autoreset mode of the batch determines how this is done:
    SAME_STEP   the batch does the same under other names (`final_obs`, `final_info`)
    DISABLED    the adapter resets the ended environments (Gymnasium's `reset_mask`)
    NEXT_STEP   the same, if the batch can be reset before it resets itself: Gymnasium's SyncVectorEnv, and its
                AsyncVectorEnv with shared memory; for any other, an error says what to do

Steps, infos and resets are those of a DummyVecEnv around the same environments. Put VecMonitor around it for
SB3's `ep_rew_mean`.
"""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from numpy.typing import NDArray
from stable_baselines3.common.env_util import is_wrapped
from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvIndices, VecEnvObs, VecEnvStepReturn

from e3b_gym.buffer import autoreset_mode

Array = NDArray[Any]


class GymnasiumVecEnv(VecEnv):
    """Drives a Gymnasium VectorEnv through SB3's interface.

    `get_attr`, `set_attr`, `env_method` and `env_is_wrapped` reach the environments of a SyncVectorEnv or
    AsyncVectorEnv. A batch without environments inside (such as Rooms) answers for all of them: `get_attr` gives
    its own attribute once per index, and `env_method(name, *args)` calls `name(i, *args)` for each index i.

    Args:
        venv: The batch. The adapter closes it.

    Raises:
        ValueError: `venv` is not a VectorEnv, or resets in a way that SB3 cannot follow.
    """

    def __init__(self, venv: VectorEnv[Any, Any, Any]) -> None:
        if not isinstance(venv, VectorEnv):
            remedy = "; wrap a single environment in SB3's DummyVecEnv" if isinstance(venv, gymnasium.Env) else ""
            raise ValueError(f"venv must be a gymnasium.vector.VectorEnv, got {type(venv).__name__}{remedy}")
        self.venv = venv
        self._resets_itself = _resets_in_same_step(venv)
        # A batch with copy=False writes every observation into the same arrays, but SB3 keeps the last one.
        self._must_copy = getattr(venv.unwrapped, "copy", True) is False
        self._actions: Array | None = None
        super().__init__(venv.num_envs, venv.single_observation_space, venv.single_action_space)

    def reset(self) -> VecEnvObs:
        observations, infos = self.venv.reset(seed=self._next_seed(), options=self._next_options())
        self.reset_infos = _per_env(infos, self.num_envs)
        self._reset_seeds()
        self._reset_options()
        return self._owned(observations)

    def step_async(self, actions: Array) -> None:
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        observations, rewards, terminated, truncated, batch_infos = self.venv.step(self._actions)
        observations = self._owned(observations)
        dones = np.logical_or(terminated, truncated)
        infos = _per_env(batch_infos, self.num_envs)
        if dones.any():
            if self._resets_itself:
                self._take_final(infos, dones)
            else:
                observations = self._reset_ended(observations, infos, dones)
        timed_out = np.logical_and(truncated, np.logical_not(terminated))
        for info, out_of_time in zip(infos, timed_out.tolist(), strict=True):
            info["TimeLimit.truncated"] = out_of_time
        return observations, np.array(rewards, np.float32), np.array(dones), infos

    def _take_final(self, infos: list[dict[str, Any]], dones: Array) -> None:
        """SAME_STEP: gives the `final_*` entries of ended environments SB3's names."""
        for i in np.flatnonzero(dones):
            reset_info = infos[i]
            if "final_obs" not in reset_info:
                raise ValueError(
                    f"environment {i} ended an episode but its infos hold no final_obs; a batch with "
                    f"autoreset_mode SAME_STEP must report it (got the keys {sorted(reset_info)})"
                )
            infos[i] = {**reset_info.pop("final_info", {}), "terminal_observation": reset_info.pop("final_obs")}
            if "episode" in reset_info:  # added by Gymnasium's RecordEpisodeStatistics, about the episode that ended
                infos[i]["episode"] = reset_info.pop("episode")
            self.reset_infos[i] = reset_info

    def _reset_ended(self, observations: Any, infos: list[dict[str, Any]], dones: Array) -> Any:
        """DISABLED and NEXT_STEP: stores the terminal observations, resets, and returns the new observations of all."""
        fresh, batch_infos = self.venv.reset(options={"reset_mask": np.array(dones)})
        reset_infos = _per_env(batch_infos, self.num_envs)
        for i in np.flatnonzero(dones):
            infos[i]["terminal_observation"] = _row(observations, i)
            self.reset_infos[i] = reset_infos[i]
        return self._owned(fresh)

    def _owned(self, observations: VecEnvObs) -> VecEnvObs:
        return copy.deepcopy(observations) if self._must_copy else observations

    def _next_seed(self) -> Any:
        """One int if the seeds are consecutive, which every batch supports; otherwise the list."""
        first = self._seeds[0]
        if first is None:
            return None if all(seed is None for seed in self._seeds) else list(self._seeds)
        return first if self._seeds == [first + i for i in range(self.num_envs)] else list(self._seeds)

    def _next_options(self) -> dict[str, Any] | None:
        if any(options != self._options[0] for options in self._options):
            raise ValueError("a Gymnasium batch takes one set of reset options; got different ones per environment")
        return self._options[0] or None

    def close(self) -> None:
        self.venv.close()

    def get_images(self) -> list[Array | None]:
        frames: tuple[Array, ...] | None = self.venv.render()
        return [None] * self.num_envs if frames is None else list(frames)

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        chosen = self._get_indices(indices)
        if (envs := self._sub_envs()) is not None:
            return [envs[i].get_wrapper_attr(attr_name) for i in chosen]
        if isinstance(self.venv.unwrapped, AsyncVectorEnv):
            values = self.venv.unwrapped.get_attr(attr_name)
            return [values[i] for i in chosen]
        value = getattr(self._layer_with(attr_name), attr_name)
        return [value for _ in chosen]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        chosen = list(self._get_indices(indices))
        if (envs := self._sub_envs()) is not None:
            for i in chosen:
                envs[i].set_wrapper_attr(attr_name, value)
            return
        self._require_all(chosen, "set an attribute of")
        if isinstance(self.venv.unwrapped, AsyncVectorEnv):
            self.venv.unwrapped.set_attr(attr_name, [value] * self.num_envs)
        else:
            setattr(self.venv.unwrapped, attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> list[Any]:
        chosen = list(self._get_indices(indices))
        if (envs := self._sub_envs()) is not None:
            return [envs[i].get_wrapper_attr(method_name)(*method_args, **method_kwargs) for i in chosen]
        if isinstance(self.venv.unwrapped, AsyncVectorEnv):
            self._require_all(chosen, "call a method of")
            return list(self.venv.unwrapped.call(method_name, *method_args, **method_kwargs))
        if method_name == "render":
            images = self.get_images()
            return [images[i] for i in chosen]
        method = getattr(self._layer_with(method_name), method_name)
        return [method(i, *method_args, **method_kwargs) for i in chosen]

    def env_is_wrapped(
        self, wrapper_class: type[gymnasium.Wrapper[Any, Any, Any, Any]], indices: VecEnvIndices = None
    ) -> list[bool]:
        """Whether each environment has the wrapper; False if the batch cannot tell."""
        envs = self._sub_envs()
        return [envs is not None and is_wrapped(envs[i], wrapper_class) for i in self._get_indices(indices)]

    def _sub_envs(self) -> list[gymnasium.Env[Any, Any]] | None:
        """The environments in this process; None where there are none."""
        return getattr(self.venv.unwrapped, "envs", None)

    def _layer_with(self, name: str) -> Any:
        """The outermost vector wrapper, or the batch itself, that has the attribute."""
        layer: Any = self.venv
        while not hasattr(layer, name) and layer is not self.venv.unwrapped:
            layer = layer.env
        return layer

    def _require_all(self, chosen: list[int], what: str) -> None:
        if sorted(chosen) != list(range(self.num_envs)):
            batch = type(self.venv.unwrapped).__name__
            raise ValueError(f"{batch} can only {what} all environments at once; leave out `indices`")


def _resets_in_same_step(venv: VectorEnv[Any, Any, Any]) -> bool:
    """True for SAME_STEP, False if the adapter can reset the environments.

    Raises:
        ValueError: The batch would reset at another time.
    """
    batch = venv.unwrapped
    mode = autoreset_mode(venv)
    if mode == AutoresetMode.SAME_STEP:
        return True
    obeys_reset_mask = isinstance(batch, SyncVectorEnv) or (
        isinstance(batch, AsyncVectorEnv) and batch.shared_memory  # without it, 1.2 resets a second time
    )
    if mode == AutoresetMode.DISABLED or (mode == AutoresetMode.NEXT_STEP and obeys_reset_mask):
        return False
    raise ValueError(
        f"{type(batch).__name__} has autoreset mode {mode}, but SB3 needs environments to reset in the step that ends "
        "the episode; build it with autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP, e.g. gymnasium.make_vec("
        'id, num_envs, vectorization_mode="sync", vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP})'
    )


def _per_env(infos: dict[str, Any], num_envs: int) -> list[dict[str, Any]]:
    """Gymnasium's dict of arrays, with a mask `_key` for each `key`, as one dict per environment."""
    rows: list[dict[str, Any]] = [{} for _ in range(num_envs)]
    for key, values in infos.items():
        if key.startswith("_") and key[1:] in infos:
            continue
        mask = infos.get(f"_{key}")
        owners = range(num_envs) if mask is None else np.flatnonzero(mask).tolist()
        if isinstance(values, dict):
            values = _per_env(values, num_envs)
        elif isinstance(values, np.ndarray) and values.ndim == 1:
            values = values.tolist()  # Python scalars, as the environment returned them
        elif np.ndim(values) == 0:
            values = [values] * num_envs
        for i in owners:
            rows[i][key] = values[i]
    return rows


def _row(observations: Any, i: int) -> Any:
    """Returns the observation of environment i."""
    if isinstance(observations, dict):
        return {name: _row(part, i) for name, part in observations.items()}
    return observations[i]
