"""Why does a run explore, or not? Plays some episodes with its agent and shows on one screen what to change.

    make doctor RUN=runs/... [EPISODES=20] [SEED=0] [CHECKPOINT=latest|best]

Prints how episodes end, the bonus by phase of an episode, the value function, the policy and the encoder, each with its
healthy range, the likely cause and the option to change (docs/doctor.md). Writes the same to the run's folder as
`doctor-<checkpoint>-seed<k>.json` and `.png`. Episodes are played in environments that training did not use.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence

import torch

from agents.networks import env_options_for
from agents.registry import find_agent
from e3b_gym.command import answer
from e3b_gym.diagnosis import Diagnosis
from e3b_gym.envs import make_vec
from e3b_gym.envs.registry import all_tasks
from experiments.command import options_and_seed, positive
from experiments.players import fresh_seeds, load_player
from experiments.runs import RunFolder

OPTIONS = ("RUN", "EPISODES", "CHECKPOINT")
MOST_ENVS = 20
SHOWN = ("learning_rate", "ent_coef", "vf_coef", "encoder_learning_rate")
"""Options of the agent that a finding may name."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit code."""
    return answer(arguments, __doc__, _run)


def _run(given: list[str]) -> int:
    options, seed = options_and_seed(given, OPTIONS, "doctor")
    which, folder = options.get("CHECKPOINT", "latest"), RunFolder.existing(options.get("RUN"))
    diagnosis = examine(folder, positive(options, "EPISODES", "20"), seed, which)
    print(diagnosis)
    data, picture = diagnosis.save(folder.path / f"doctor-{which}-seed{seed}")
    print(f"written to {data} and {picture.name}")
    return 0


def examine(folder: RunFolder, episodes: int, seed: int = 0, which: str = "latest") -> Diagnosis:
    """Plays `episodes` episodes of a run's checkpoint."""
    settings, _ = folder.load()
    config = settings.config
    agent = find_agent(settings.agent)
    if agent.recorder is None:
        reason = "learns nothing" if agent.trainer is None else "has no recorder"
        raise ValueError(f"AGENT={settings.agent} {reason}, so it cannot be diagnosed")
    torch.set_num_threads(config.threads)
    num_envs = min(MOST_ENVS, episodes)
    envs = make_vec(config.env, num_envs, **env_options_for(config))
    try:
        spaces = envs.single_observation_space, envs.single_action_space
        player = load_player(folder, settings, which, spaces, seed=seed)
        seeds = fresh_seeds(config, num_envs, seed)
        played, setup = agent.record(config, player, envs, seeds, episodes, seed)
    finally:
        envs.close()
    _, task = all_tasks().get(config.env, (None, None))
    complete = dataclasses.replace(
        setup,
        title=f"{config.env}: {config.method} with {settings.agent} after {player.frames:,} steps",
        options={name: getattr(config, name) for name in SHOWN if hasattr(config, name)},
        action_names=task.actions if task is not None else (),
        train_encoder=f"raise encoder_learning_rate={getattr(config, 'encoder_learning_rate', 0):g}, or train longer",
    )
    return Diagnosis.of(played, complete)


if __name__ == "__main__":
    sys.exit(main())
