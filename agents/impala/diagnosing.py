"""Episodes of an IMPALA run for `make doctor`: its agent plays, and each step is recorded with values and rewards."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv

from agents.impala.config import Config
from agents.impala.losses import reward_streams
from agents.impala.run import ImpalaPlayer
from e3b_gym.buffer import EndingReader
from e3b_gym.diagnosis import End, Episode, Probe, Recording, Setup, bonus_setup
from e3b_gym.unroll import Tree


def record(
    config: Config, player: ImpalaPlayer, envs: VectorEnv[Any, Any, Any], seeds: list[int], episodes: int, seed: int
) -> tuple[list[Episode], Setup]:
    """Plays; records what the value heads predict, with the learner's mix of rewards. The player has its `seed`."""
    explorer = player.bonus_explorer(len(seeds))
    probe, recording = Probe(explorer.bonus, explorer.mixer, len(seeds)), Recording(len(seeds), episodes)
    endings = EndingReader(type(envs.unwrapped).__name__)
    obs, _ = envs.reset(seed=seeds)  # type: ignore[arg-type]  # lists are fine, too
    probe.reset(obs)
    done, gammas = np.ones(len(seeds), dtype=np.bool_), tuple[float, ...]()
    while not recording.complete:
        action = player.act(obs, done)
        obs, reward, terminated, truncated, infos = envs.step(action)
        done = np.logical_or(terminated, truncated)
        last = endings.from_vector(done, obs, infos, AutoresetMode.SAME_STEP)
        scored = probe.step(action, obs, reward, done, last, policy_logits=player.logits)
        said = {"probabilities": player.logits.double().softmax(-1).numpy(), "values": player.values.double().numpy()}
        outer, inner = torch.from_numpy(scored.extrinsic), torch.from_numpy(scored.bonus)
        streams = reward_streams(config, probe, outer, inner)
        rewards = torch.stack([stream for stream, _ in streams], -1).double().numpy()  # [N, heads]
        gammas = tuple(gamma for _, gamma in streams)
        limits = truncated & ~terminated
        ends = {env: _end(config, player, env, bool(limits[env]), last, infos) for env in np.flatnonzero(done).tolist()}
        recording.add({**probe.step_parts, "rewards": rewards, **said}, ends)
    return recording.episodes, Setup("", gammas=gammas, **bonus_setup(explorer.bonus, explorer.mixer))


def _end(
    config: Config, player: ImpalaPlayer, env: int, limit: bool, last: dict[int, Tree], infos: dict[str, Any]
) -> End:
    """How the episode ended, and the value of its last observation where the learner bootstraps from it."""
    final = infos.get("final_info", {})
    success = bool(final["is_success"][env]) if "is_success" in final else None
    bootstrapped = config.bootstrap_truncated and limit and env in last
    return End(limit, success, player.value_of(env, last[env]) if bootstrapped else None)
