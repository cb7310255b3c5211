"""Environments by id: `make` for one, `make_vec` for a vector environment. Simulators are imported only when used.

All suites give the same guarantees, which `tests/envs/test_contract.py` checks:
    seeds         `reset(seed=s)` fixes this episode and all later ones, in any instance and any process
    episode ends  `terminated` for success and death, `truncated` for the time limit, never both;
                  `info["is_success"]` at the end of an episode, if the suite has a success criterion
    last obs      in a vector environment, `info["final_obs"][i]` is the terminal observation of the episode that ended
                  (reset in the same step; Gymnasium's SAME_STEP)
    ownership     observations are new arrays that are never overwritten
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Iterable
from functools import partial
from typing import Any, Literal

import gymnasium
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper

from e3b_gym.envs.noise import Clock, NoisyObservation, NoisyVectorObservation
from e3b_gym.envs.registry import (
    Suite,
    SuiteNotInstalledError,
    Task,
    UnknownEnvironmentError,
    register_suite,
    suite_of,
    unknown,
)
from e3b_gym.options import Count, WholeNumber, check, closest

__all__ = [
    "NoisyObservation",
    "NoisyVectorObservation",
    "Suite",
    "SuiteNotInstalledError",
    "Task",
    "UnknownEnvironmentError",
    "check_options",
    "default_options",
    "make",
    "make_vec",
    "option_type",
    "register_suite",
]

_ARGUMENTS = ("id", "num_envs", "seed")
# Set by the callers of `make` and `make_vec`, not by the options of a run.
_INTERNAL = ("source", "spawn", "kind", "start_method", "copy", "render_mode")
# Of `gymnasium.make`, which does not check them.
_GYMNASIUMS: dict[str, Any] = {"max_episode_steps": Count | None, "disable_env_checker": bool | None}


def check_options(names: Iterable[str]) -> None:
    """Checks that no option has the name of an argument of `make_vec`.

    Raises:
        ValueError: Names the argument.
    """
    taken = [name for name in names if name in _ARGUMENTS]
    if taken:
        raise ValueError(
            f"{', '.join(taken)}: no option of an environment; use the arguments for id, number of environments "
            "and seed (in commands: ENV=, n_envs=, SEED=)"
        )


def make(
    id: str, *, max_steps: int | None = None, clock: Clock = False, noise: int = 0, **options: Any
) -> gymnasium.Env[Any, Any]:
    """Makes one environment.

    Args:
        id: An id of this library (`python -m e3b_gym.envs` lists them) or any other id registered with Gymnasium,
            including `module:id`.
        max_steps: Steps until truncation; None: the limit of the id.
        clock: Adds an uncontrollable step counter to the observation: True for 10 bits, a number for that
            many bits, "scalar" for the count.
        noise: Adds this many fair random bits, drawn at every step.
        **options: Options of the suite (docs/environments.md), or of the environment's constructor.

    Raises:
        UnknownEnvironmentError: The id is unknown; the message suggests the closest ones.
        SuiteNotInstalledError: The simulator is not installed; the message has the pip command.
    """
    options |= _limit(id, max_steps)
    if _suite_adds_noise(id, clock):
        return _make_plain(id, clock=clock, noise=noise, **options)
    env = _make_plain(id, **options)
    return NoisyObservation(env, clock, noise) if clock or noise else env


def make_vec(
    id: str,
    num_envs: int,
    seed: int | None = None,
    kind: Literal["inline", "process"] = "inline",
    *,
    max_steps: int | None = None,
    clock: Clock = False,
    noise: int = 0,
    start_method: str | None = None,
    **options: Any,
) -> VectorEnv[Any, Any, Any]:
    """Makes a vector environment that resets in the step that ends an episode (Gymnasium's SAME_STEP).

    Args:
        id: As in `make`.
        num_envs: Number of environments.
        seed: Seed of the first `reset` that has none: environment i gets `seed + i`.
        kind: "inline": all environments in this process, in one loop if the suite has one; "process": one process per
            environment, with observations in shared memory.
        max_steps: As in `make`.
        clock: As in `make`.
        noise: As in `make`.
        start_method: How processes start ("fork", "forkserver", "spawn"); None: chosen automatically.
        **options: As in `make`.
    """
    if kind not in ("inline", "process"):
        raise ValueError(f"kind must be 'inline' or 'process', got {kind!r}")
    num_envs = check("num_envs", num_envs, Count)
    if start_method is not None and kind == "inline":
        raise ValueError(f"start_method={start_method!r} has no effect: kind='inline' starts no processes; remove it")
    options |= _limit(id, max_steps)
    if kind == "inline":
        envs = _make_inline(id, num_envs, clock, noise, options)
    else:
        envs = AsyncVectorEnv(
            [partial(make, id, clock=clock, noise=noise, **options)] * num_envs,
            context=start_method or _safe_start_method(),
            autoreset_mode=AutoresetMode.SAME_STEP,
        )
    return envs if seed is None else FirstSeed(envs, seed)


def option_type(id: str, name: str) -> Any:
    """Returns the annotation of an option of an environment; Any if its type is not known.

    Raises:
        ValueError: The environment has no such option.
        SuiteNotInstalledError: The simulator is not installed.
    """
    check_options([name])
    types: dict[str, Any] = {"max_steps": Count | None, "clock": Clock, "noise": WholeNumber}
    suite = suite_of(id)
    known = suite is not None and suite.serves(id) and bool(suite.options)
    if suite is not None and known:
        suite.require_simulator()
        types = {**suite.option_types(), **types}
    else:
        types = {**_GYMNASIUMS, **types}
    if name in types and name not in _INTERNAL:
        return types[name]
    if not known and name in _INTERNAL:
        raise ValueError(f"env.{name} is set by the command and cannot be an option")
    if suite is not None and known and not suite.other_options:
        choices = set(types) - set(_INTERNAL)
        raise ValueError(f"{id} has no option env.{name}; {closest(name, choices)}")
    return Any


def default_options(id: str) -> dict[str, Any]:
    """Returns the options of an environment of this library with their defaults; {} for ids of other packages.

    Raises:
        SuiteNotInstalledError: The simulator is not installed.
    """
    suite = suite_of(id)
    if suite is None or not suite.serves(id) or not suite.options:
        return {}
    suite.require_simulator()
    found = suite.option_defaults()
    limited = suite.limit_option in found or suite.other_options
    defaults = {"clock": False, "noise": 0, **({"max_steps": None} if limited else {}), **found}
    task = suite.load_tasks().get(id)
    defaults = {name: getattr(task, name, value) for name, value in defaults.items()}  # an id may fix some
    skipped = {*_INTERNAL, suite.limit_option} - {"max_steps"}
    return {name: value for name, value in defaults.items() if value is not None and name not in skipped}


def _make_plain(id: str, **options: Any) -> gymnasium.Env[Any, Any]:
    """Makes an environment with its suite, or with Gymnasium if no suite lists the id."""
    suite = suite_of(id)
    if suite is not None and suite.serves(id):
        env: gymnasium.Env[Any, Any] = suite.load().make(id, **options)
        return env
    if suite is not None and suite.registers is not None:
        suite.require_simulator()
        importlib.import_module(suite.registers)
    try:
        env = gymnasium.make(id, **options)
    except gymnasium.error.DependencyNotInstalled as error:
        raise ImportError(f"{id} cannot be made: {error}") from error
    except gymnasium.error.Error as error:  # unregistered, deprecated or malformed
        raise unknown(id) from error
    if suite is not None:
        warnings.warn(
            f"{id} is an unmodified environment of {suite.name}: the guarantees of this library on seeds, episode ends "
            "and terminal observations hold for the ids that `python -m e3b_gym.envs` lists",
            stacklevel=3,
        )
    return env


def _make_inline(id: str, num_envs: int, clock: Clock, noise: int, options: dict[str, Any]) -> VectorEnv[Any, Any, Any]:
    suite = suite_of(id)
    if suite is None or not suite.serves(id) or not hasattr(suite.load(), "make_vec"):
        single = partial(make, id, clock=clock, noise=noise, **options)
        return SyncVectorEnv([single] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)
    make_batch = suite.load().make_vec
    if _suite_adds_noise(id, clock):
        batch: VectorEnv[Any, Any, Any] = make_batch(id, num_envs, clock=clock, noise=noise, **options)
        return batch
    batch = make_batch(id, num_envs, **options)
    return NoisyVectorObservation(batch, clock, noise) if clock or noise else batch


def _limit(id: str, max_steps: int | None) -> dict[str, int]:
    max_steps = check("max_steps", max_steps, Count | None)
    if max_steps is None:
        return {}
    suite = suite_of(id)
    return {suite.limit_option if suite is not None and suite.serves(id) else "max_episode_steps": max_steps}


def _suite_adds_noise(id: str, clock: Clock) -> bool:
    suite = suite_of(id)
    return suite is not None and suite.adds_noise and isinstance(clock, bool)


def _safe_start_method() -> str:
    """Returns fork on Linux (8 workers start in 0.1-0.5 s; forkserver and spawn import everything again, 15-35 s),
    forkserver if this process has a CUDA context, which a fork would break, and spawn elsewhere, where fork is unsafe
    or missing."""
    if not sys.platform.startswith("linux"):
        return "spawn"
    torch = sys.modules.get("torch")
    return "forkserver" if torch is not None and torch.cuda.is_initialized() else "fork"


class FirstSeed(VectorWrapper):
    """Seeds the first reset that has no seed; later resets continue the random streams."""

    def __init__(self, env: VectorEnv[Any, Any, Any], seed: int) -> None:
        super().__init__(env)
        self._seed: int | None = int(seed)

    def reset(
        self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        if seed is None:
            seed = self._seed
        self._seed = None
        return self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]  # lists are fine, too
