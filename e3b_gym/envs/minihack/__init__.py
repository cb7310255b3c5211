"""MiniHack for exploration research: the paper's sixteen tasks with working seeds, true terminal observations, fast.

`TASKS` lists the ids without importing NetHack; `make` and `make_vec` import it when they are called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from e3b_gym.envs.minihack.tasks import PAPER_IDS, TASKS, Task

if TYPE_CHECKING:
    from e3b_gym.envs.minihack.env import MiniHackEnv
    from e3b_gym.envs.minihack.vector import MiniHackVectorEnv

__all__ = ["PAPER_IDS", "TASKS", "Task", "make", "make_vec"]

_MISSING = "MiniHack needs the packages nle, minihack and minigrid: pip install 'e3b-gym[minihack]' ({})"


def make(task: str | Task, **options: Any) -> MiniHackEnv:
    """Makes one MiniHack environment.

    Args:
        task: An id of `TASKS`, or your own `Task`.
        **options: `observation_keys`, `crop_size`, `crop_pad`, `max_episode_steps`, `level_pool`,
            `layout`, `render_mode`; see `e3b_gym.envs.minihack.env.Options`.
    """
    try:
        from e3b_gym.envs.minihack.env import MiniHackEnv

        return MiniHackEnv(task, **options)
    except ImportError as error:
        raise ImportError(_MISSING.format(error)) from error


def make_vec(task: str | Task, num_envs: int, *, copy: bool = True, **options: Any) -> MiniHackVectorEnv:
    """Makes `num_envs` MiniHack environments that step in this process and write directly into one batch.

    Args:
        task: An id of `TASKS`, or your own `Task`.
        num_envs: How many games.
        copy: False returns the batch arrays themselves, which the next step overwrites.
        **options: As for `make`.
    """
    try:
        from e3b_gym.envs.minihack.vector import MiniHackVectorEnv

        return MiniHackVectorEnv(task, num_envs, copy, **options)
    except ImportError as error:
        raise ImportError(_MISSING.format(error)) from error
