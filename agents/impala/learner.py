"""The learner: one unroll in, one better policy out.

    embed once -> score with the memories of those slots -> mix the reward -> encoder step -> policy step (`losses`)

The encoder's half and the policy's half of an update meet twice: the policy's losses need the bonus, and the optimisers
step only when both sides' gradients are finite. In between they may run in two threads.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import gymnasium as gym
import torch
from torch import Tensor

from agents.impala.config import Config
from agents.impala.losses import Batch, Rewards, policy_losses
from agents.impala.networks import networks_for
from agents.impala.policy import Output, Policy
from agents.impala.rmsprop import RMSprop
from agents.impala.rollout import Rollout
from e3b_gym.bonuses import PolicyDivergence
from e3b_gym.config import BonusConfig
from e3b_gym.errors import DivergedError, NonFiniteError
from e3b_gym.unroll import Unroll

Stats = dict[str, float]
T = TypeVar("T")
# Updates between two looks at the encoder (accuracy, rank), which cost as much as a small update.
DIAGNOSE_EVERY = 32


class Learner:
    """Policy, bonus and their optimisers.

    Args:
        config: the run.
        observation_space, action_space: of one environment.
    """

    def __init__(self, config: Config, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:
        self.config = config
        networks, slots = networks_for(config), config.actors * config.n_envs
        bonus = BonusConfig.of(config.method, config.bonus_preset, **config.bonus).with_encoder(networks.phi)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)  # one stream for both, so that policy and encoder start with other weights
            self.policy = Policy(networks, observation_space, action_space, config.value_heads)
            self.bonus = bonus.make_bonus(observation_space, action_space, slots)
        self.bonus.bind_policy(self.policy)
        for part in self.bonus.modules():
            if isinstance(part, PolicyDivergence):
                part.in_reward = False  # it comes in through the advantage and the value target
        self.mixer = bonus.make_mixer()
        self.memory = self.bonus.new_memory(slots)
        self.policy_optimizer = _policy_optimizer(config, self.policy)
        weights = [weight for weight in self.bonus.parameters() if weight.requires_grad]
        self.encoder_optimizer = (
            torch.optim.Adam(weights, lr=config.encoder_learning_rate, fused=True) if weights else None
        )
        # PyTorch's operations release Python's lock, so encoder and policy can learn at the same time.
        share = (max(config.threads // 2, 1),)
        self._encoder_thread = (
            ThreadPoolExecutor(1, "encoder", torch.set_num_threads, share) if config.threads > 1 else None
        )
        self.version = 0
        self.frames = 0
        self._updates = 0
        self._ent_coef = config.ent_coef
        self.seconds: dict[str, float] = defaultdict(float)

    def learn(self, rollout: Rollout) -> list[Stats]:
        """Updates on all columns of a rollout, `config.columns` at a time; returns the statistics of each update."""
        common = {"policy_lag": float(self.version - rollout.version), **self._follow_schedules()}
        batches, rewards, stats = self._batches(rollout), list[Rewards](), list[Stats]()
        for batch in batches:
            found, numbers = self._first_pass(batch)
            rewards.append(found)
            stats.append(numbers | common)
        for _ in range(1, self.config.n_epochs):
            stats += [self._another_pass(*known) | common for known in zip(batches, rewards, strict=True)]
        self.version += 1
        self.frames += rollout.steps * rollout.num_envs
        return stats

    def _follow_schedules(self) -> Stats:
        """Sets what changes linearly over the run to its value at this frame; returns those values."""
        config, stats = self.config, Stats()
        progress = min(self.frames / config.steps, 1.0)
        if config.ent_coef_final is not None:
            self._ent_coef = stats["ent_coef"] = _between(config.ent_coef, config.ent_coef_final, progress)
        if config.learning_rate_final is not None:
            rate = stats["learning_rate"] = _between(config.learning_rate, config.learning_rate_final, progress)
            for group in self.policy_optimizer.param_groups:
                group["lr"] = rate
        return stats

    def _batches(self, rollout: Rollout) -> list[Batch]:
        unroll, (h, c) = rollout.unroll(), rollout.lstm_state()
        reward, truncated = torch.from_numpy(rollout.reward), torch.from_numpy(rollout.truncated)
        _require_finite("reward", reward)
        if self.config.columns == rollout.num_envs:
            return [Batch(unroll, (h, c), reward, truncated)]
        parts = torch.split(torch.arange(rollout.num_envs), self.config.columns)
        return [
            Batch(unroll.columns(part), (h[:, part], c[:, part]), reward[:, part], truncated[:, part]) for part in parts
        ]

    def _first_pass(self, batch: Batch) -> tuple[Rewards, Stats]:
        """Scores the bonus; trains encoder and policy."""
        scored = self._submit(self._score, batch)
        out = self._policy_forward(batch)
        features, rewards, stats = scored()
        encoder = self._submit(self._encoder_gradients, features, batch.unroll)
        stats |= self._policy_gradients(batch, rewards, out)
        stats |= encoder()
        with self._timed("optimisers"):  # both only now, when every term is known to be finite
            self.policy_optimizer.step()
            if self.encoder_optimizer is not None:
                self.encoder_optimizer.step()
        self._updates += 1
        return rewards, stats

    def _another_pass(self, batch: Batch, rewards: Rewards) -> Stats:
        """Trains the policy once more."""
        stats = self._policy_gradients(batch, rewards, self._policy_forward(batch))
        with self._timed("optimisers"):
            self.policy_optimizer.step()
        return stats

    def _submit(self, task: Callable[..., T], *args: Any) -> Callable[[], T]:
        """Runs `task`, on the encoder thread if there is one; returns a callable that waits for the result."""
        if self._encoder_thread is None:
            result = task(*args)
            return lambda: result
        future: Future[T] = self._encoder_thread.submit(task, *args)
        return future.result

    def _score(self, batch: Batch) -> tuple[Any, Rewards, Stats]:
        """The bonus's features, with a graph for the encoder, the rewards with the bonus, and statistics."""
        unroll = batch.unroll
        with self._timed("embed"), torch.set_grad_enabled(self.encoder_optimizer is not None):
            features = self.bonus.embed(unroll)
        with self._timed("score"), torch.no_grad():
            bonus = self._bonus_of(features, unroll)  # [T, B]
            rewards = Rewards(list(self._streams(batch.reward, bonus)), self.bonus.policy_terms(features, unroll))
        return features, rewards, {"bonus": float(bonus.mean()), "sigma": self.mixer.sigma}

    def _bonus_of(self, features: Any, unroll: Unroll) -> Tensor:
        try:
            bonus = self.bonus.score(features, unroll, self.memory)  # [T, B]
        except NonFiniteError as error:  # a memory refuses embeddings that are not numbers
            raise DivergedError(f"the bonus cannot be computed, so training stops: {error}") from error
        _require_finite("bonus", bonus)
        self.mixer.update(bonus[unroll.valid])
        return bonus

    def _encoder_gradients(self, features: Any, unroll: Unroll) -> Stats:
        if self.encoder_optimizer is None:
            return {}
        with self._timed("encoder"):
            losses, limit = self.bonus.loss(features, unroll), self.config.encoder_max_grad_norm
            diagnosed = self._updates % DIAGNOSE_EVERY == 0
            stats = self.bonus.diagnostics(features, unroll) if diagnosed else {}
            return stats | _backward(self.encoder_optimizer, losses, limit, "encoder_grad_norm")

    def _policy_forward(self, batch: Batch) -> Output:
        unroll = batch.unroll
        with self._timed("policy"):
            starts = torch.cat([unroll.starts[None], unroll.done])  # [T+1, B]
            bootstrapped = self.config.bootstrap_truncated and bool(batch.time_limits.any())
            finals = batch.finals() if bootstrapped else None
            return self.policy(unroll.obs, starts, batch.state, finals)  # type: ignore[no-any-return]

    def _policy_gradients(self, batch: Batch, rewards: Rewards, out: Output) -> Stats:
        with self._timed("policy"):
            losses, stats = policy_losses(self.config, batch, rewards, out, self._ent_coef)
            return _backward(self.policy_optimizer, losses, self.config.max_grad_norm, "policy_grad_norm") | stats

    def _streams(self, reward: Tensor, bonus: Tensor) -> Iterator[tuple[Tensor, float]]:
        """The rewards of each value head with their discounts; with two heads a clip applies to each."""
        config, mixer = self.config, self.mixer
        if config.value_heads == 1:
            yield mixer(reward, bonus), config.gamma
            return
        yield mixer(reward, torch.zeros_like(bonus)), config.gamma
        gamma = config.gamma if config.intrinsic_gamma is None else config.intrinsic_gamma
        yield mixer(torch.zeros_like(reward), bonus), gamma

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        """Adds the seconds to the stage's."""
        start = time.perf_counter()
        yield
        self.seconds[stage] += time.perf_counter() - start

    def state_dict(self) -> dict[str, Any]:
        return {
            "policy": self.policy.state_dict(),
            "policy_optimizer": self.policy_optimizer.state_dict(),
            "bonus": self.bonus.state_dict(),
            "encoder_optimizer": None if self.encoder_optimizer is None else self.encoder_optimizer.state_dict(),
            "mixer": self.mixer.state_dict(),
            "memory": self.memory.state_dict(),
            "version": self.version,
            "frames": self.frames,
            "updates": self._updates,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.policy.load_state_dict(state["policy"])
        self.policy_optimizer.load_state_dict(state["policy_optimizer"])
        self.bonus.load_state_dict(state["bonus"])
        if self.encoder_optimizer is not None:
            self.encoder_optimizer.load_state_dict(state["encoder_optimizer"])
        self.mixer.load_state_dict(state["mixer"])
        self.memory.load_state_dict(state["memory"])
        self.version, self.frames, self._updates = state["version"], state["frames"], state["updates"]


def _backward(optimizer: torch.optim.Optimizer, losses: Mapping[str, Tensor], limit: float, norm: str) -> Stats:
    """Leaves the gradients of the losses' sum, clipped to the length `limit`, with the optimiser's weights."""
    for name, loss in losses.items():
        _require_finite(f"loss {name!r}", loss)
    optimizer.zero_grad(set_to_none=True)
    torch.autograd.backward(list(losses.values()))
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    length = torch.stack([torch.linalg.vector_norm(gradient) for gradient in gradients]).norm()
    _require_finite(f"gradient of {' + '.join(losses)}", length)
    if length > limit:  # most need no clipping, and a pass over all gradients costs as much as a step
        for gradient in gradients:
            gradient *= limit / length
    return {f"loss_{name}": loss.item() for name, loss in losses.items()} | {norm: float(length)}


def _between(first: float, last: float, progress: float) -> float:
    return first + (last - first) * progress


def _policy_optimizer(config: Config, policy: Policy) -> torch.optim.Optimizer:
    if config.optimizer == "adam":
        return torch.optim.Adam(policy.parameters(), lr=config.learning_rate, fused=True)
    return RMSprop(policy.parameters(), lr=config.learning_rate, alpha=config.rms_alpha, eps=config.rms_eps)


def _require_finite(name: str, values: Tensor) -> None:
    if not bool(torch.isfinite(values).all()):
        raise DivergedError(
            f"the {name} has NaN or infinite values, so training stops before it spoils the weights; lower the "
            "learning rate, or look for the environment's own NaN"
        )
