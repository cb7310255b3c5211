"""Why does a run explore, or why not? Its agent plays some episodes, and one screen says what to change.

    make doctor RUN=runs/... [EPISODES=20] [SEED=0] [CHECKPOINT=latest|best]

Prints how episodes end, the bonus by phase of an episode, the value function, the policy and the encoder, each with its
healthy range, the likely cause and the option to change (docs/doctor.md). Writes the same to the run's folder as
`doctor-<checkpoint>-seed<k>.json` and `.png`. Episodes are played in environments that training did not use.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from agents.impala.config import Config
from agents.impala.run import ImpalaPlayer
from agents.networks import env_options_for
from agents.protocols import Player
from agents.registry import find_agent
from agents.run_config import RunConfig
from e3b_gym.command import answer
from e3b_gym.diagnosis import Diagnosis, End, Episode, Probe, Recording, Setup, bonus_setup
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
    if find_agent(settings.agent).trainer is None:
        raise ValueError(f"AGENT={settings.agent} learns nothing, so there is nothing to diagnose")
    torch.set_num_threads(config.threads)
    num_envs = min(MOST_ENVS, episodes)
    envs = make_vec(config.env, num_envs, **env_options_for(config))
    try:
        spaces = envs.single_observation_space, envs.single_action_space
        player = load_player(folder, settings, which, spaces, seed=seed)
        seeds = fresh_seeds(config, num_envs, seed)
        played, setup = _play(config, player, envs, seeds, episodes, seed)
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


def _play(
    config: RunConfig,
    player: Player,
    envs: VectorEnv[Any, Any, Any],
    seeds: list[int],
    episodes: int,
    seed: int,
) -> tuple[list[Episode], Setup]:
    if isinstance(config, Config) and isinstance(player, ImpalaPlayer):
        return play_impala(config, player, envs, seeds, episodes)
    from agents.ppo.model import SB3Player
    from e3b_gym.sb3 import E3BRewardWrapper, GymnasiumVecEnv
    from e3b_gym.sb3.diagnosing import record

    if not isinstance(player, SB3Player):
        raise ValueError(f"doctor examines IMPALA, PPO and RecurrentPPO; got {type(player).__name__}")
    venv = E3BRewardWrapper(GymnasiumVecEnv(envs), "none")
    venv.explorer = player.bonus_explorer(len(seeds))
    venv.venv.seed(seeds[0])
    return record(player.model, venv, episodes, seed=seed)


def play_impala(
    config: Config, player: ImpalaPlayer, envs: VectorEnv[Any, Any, Any], seeds: list[int], episodes: int
) -> tuple[list[Episode], Setup]:
    """Plays with an IMPALA policy; records what its value heads predict, with the learner's mix of rewards."""
    explorer = player.bonus_explorer(len(seeds))
    probe, recording = Probe(explorer.bonus, explorer.mixer, len(seeds)), Recording(len(seeds), episodes)
    obs, _ = envs.reset(seed=seeds)  # type: ignore[arg-type]  # lists are fine, too
    probe.reset(obs)
    done = np.ones(len(seeds), dtype=np.bool_)
    while not recording.complete:
        action = player.act(obs, done)
        obs, reward, terminated, truncated, infos = envs.step(action)
        done = np.logical_or(terminated, truncated)
        final = infos.get("final_info", {})
        seen = done & final.get("final_observation_valid", True)
        last = {env: infos["final_obs"][env] for env in np.flatnonzero(seen).tolist()}
        scored = probe.step(action, obs, reward, done, last, policy_logits=player.logits)
        said = {"probabilities": player.logits.double().softmax(-1).numpy(), "values": player.values.double().numpy()}
        rewards = _streams(config, probe, reward, scored.bonus)
        ends = {}
        for env in np.flatnonzero(done).tolist():
            success = bool(final["is_success"][env]) if "is_success" in final else None
            cut = bool(truncated[env] and not terminated[env])
            bootstrapped = config.bootstrap_truncated and cut and env in last
            follows = player.value_of(env, last[env]) if bootstrapped else None
            ends[env] = End(cut, success, follows)
        recording.add({**probe.step_parts, "rewards": rewards, **said}, ends)
    gamma = config.gamma if config.intrinsic_gamma is None else config.intrinsic_gamma
    gammas = (config.gamma, gamma)[: config.value_heads]
    return recording.episodes, Setup("", gammas=gammas, **bonus_setup(explorer.bonus, explorer.mixer))


def _streams(config: Config, probe: Probe, reward: Any, bonus: NDArray[np.float32]) -> NDArray[np.float64]:
    """[N, heads]: the rewards of each value head."""
    outer, inner = torch.as_tensor(reward, dtype=torch.float32), torch.from_numpy(bonus)
    if config.value_heads == 1:
        return probe.mixer(outer, inner)[:, None].double().numpy()
    heads = probe.mixer(outer, torch.zeros_like(inner)), probe.mixer(torch.zeros_like(outer), inner)
    return torch.stack(heads, -1).double().numpy()


if __name__ == "__main__":
    sys.exit(main())
