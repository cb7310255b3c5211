"""diagnose: why a Stable-Baselines3 model behind E3BRewardWrapper does or does not explore.

    report = e3b_gym.diagnose(model, venv)
    print(report)                    # one screen
    report.save("doctor")            # doctor.json and doctor.png

Runs episodes with the model. Nothing is trained, and the running scale of the bonus does not change.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecNormalize

from e3b_gym.buffer import last_of_sb3
from e3b_gym.diagnosis import Diagnosis, End, Episode, Probe, Recording, Setup, bonus_setup
from e3b_gym.diagnosis.episodes import MAX_STEPS
from e3b_gym.sb3.actors import Actor, make_actor
from e3b_gym.sb3.wrapper import E3BRewardWrapper, find_wrapper

OPTIONS = ("learning_rate", "ent_coef", "vf_coef")


def diagnose(
    model: BaseAlgorithm, venv: VecEnv | None = None, episodes: int = 20, *, seed: int = 0, max_steps: int = MAX_STEPS
) -> Diagnosis:
    """Runs some episodes and reports why the agent does or does not explore.

    `venv` is reset before and after. If it is the model's own, the next `learn()` starts new episodes.

    Args:
        model: any Stable-Baselines3 model. What it does not have (DQN has no entropy) is left out.
        venv: environments with an E3BRewardWrapper among their wrappers; None for the model's own.
        episodes: how many, spread over the environments.
        seed: seed of the actions.
        max_steps: steps per environment after which episodes are cut.
    """
    return Diagnosis.of(*record(model, venv, episodes, seed=seed, max_steps=max_steps))


def record(
    model: BaseAlgorithm, venv: VecEnv | None = None, episodes: int = 20, *, seed: int = 0, max_steps: int = MAX_STEPS
) -> tuple[list[Episode], Setup]:
    """Records the data that `diagnose` computes its findings from; same arguments."""
    venv = model.get_env() if venv is None else venv
    wrapper = find_wrapper(venv)
    if venv is None or wrapper is None:
        raise ValueError("diagnose needs environments with a bonus; wrap them: E3BRewardWrapper(venv)")
    recording = Recording(venv.num_envs, episodes, max_steps)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        _play(model, venv, wrapper, recording)
    return recording.episodes, _setup(model, wrapper)


def _play(model: BaseAlgorithm, venv: VecEnv, wrapper: E3BRewardWrapper, recording: Recording) -> None:
    with _probing(venv, wrapper) as probe:
        actor = make_actor(model, venv)
        obs, starts = venv.reset(), np.ones(venv.num_envs, dtype=np.bool_)
        while not recording.complete:
            actions = actor.act(obs, starts)
            obs, rewards, starts, infos = venv.step(actions)
            ends = {env: _end(actor, env, infos[env]) for env in np.flatnonzero(starts).tolist()}
            outermost = np.asarray(rewards, dtype=np.float64)[:, None]  # what the value function learns to predict
            seen = {"probabilities": actor.probabilities, "values": actor.values}
            recording.add({**probe.step_parts, "rewards": outermost, **seen}, ends)
    if find_wrapper(model.get_env()) is wrapper:
        model._last_obs = None  # learn() must not continue from where the environments were before


def _setup(model: BaseAlgorithm, wrapper: E3BRewardWrapper) -> Setup:
    given = {name: getattr(model, name, None) for name in OPTIONS}
    options = {name: float(value) for name, value in given.items() if isinstance(value, (int, float))}
    return Setup(
        title=f"{type(model).__name__} after {model.num_timesteps:,} steps",
        gammas=(float(getattr(model, "gamma", 1.0)),),
        options=options,
        train_encoder="pass callback=EncoderUpdateCallback() to learn(); if it is there, raise its learning_rate",
        **bonus_setup(wrapper.bonus, wrapper.explorer.mixer),
    )


@contextmanager
def _probing(venv: VecEnv, wrapper: E3BRewardWrapper) -> Iterator[Probe]:
    """Meanwhile a Probe scores the wrapper's steps, and VecNormalize does not update its moments; then a reset."""
    explorer = wrapper.explorer
    memory = None if explorer.bonus.episodic else explorer.memory.state_dict()
    probe = Probe(explorer.bonus, explorer.mixer, venv.num_envs, memory)
    normalisers = [(layer, layer.training) for layer in _layers(venv) if isinstance(layer, VecNormalize)]
    watched = wrapper.watched
    wrapper.explorer, wrapper.watched = probe, True
    for normaliser, _ in normalisers:
        normaliser.training = False
    try:
        yield probe
    finally:
        wrapper.explorer, wrapper.watched = explorer, watched
        try:
            venv.reset()
        finally:
            for normaliser, training in normalisers:
                normaliser.training = training


def _layers(venv: VecEnv) -> Iterator[VecEnv]:
    yield venv
    while isinstance(venv, VecEnvWrapper):
        venv = venv.venv
        yield venv


def _end(actor: Actor, env: int, info: dict[str, Any]) -> End:
    """How the episode ended, and the value of its last observation if a time limit ended it."""
    truncated, success = bool(info.get("TimeLimit.truncated", False)), info.get("is_success")
    last = last_of_sb3(info)
    follows = actor.value_of(env, last) if truncated and last is not None else None
    return End(truncated, None if success is None else bool(success), follows)
