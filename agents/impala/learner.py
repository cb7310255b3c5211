"""The learner: scores a rollout and trains encoder and policy on it.

    embed once -> score with the memories of those slots -> mix the reward -> encoder step -> policy step (`losses`)

The encoder's half and the policy's half of an update wait for each other twice: the policy's losses need the bonus, and
the optimisers step only when both halves' gradients are finite. In between they may run in two threads.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import gymnasium as gym
import torch
import xxhash

from agents.impala.config import Config
from agents.impala.group import Group
from agents.impala.losses import Batch, Rewards, policy_losses, reward_streams
from agents.impala.policy import Output, Policy
from agents.impala.rmsprop import RMSprop
from agents.impala.rollout import Count, Rollout
from agents.impala.schedules import scheduled
from agents.networks import networks_for
from agents.protocols import Stats
from e3b_gym.bonuses import PolicyDivergence
from e3b_gym.devices import find_device
from e3b_gym.errors import DivergedError, NonFiniteError
from e3b_gym.explorer import ALONE, Explorer, Peers, start_backward
from e3b_gym.optimizers import load_optimizer
from e3b_gym.options import check
from e3b_gym.reward import require_finite
from e3b_gym.unroll import Unroll

T = TypeVar("T")
DIAGNOSE_EVERY = 32  # updates between two measurements of the encoder (accuracy, rank), which cost as much as an update


class Learner:
    """Policy, bonus and their optimisers.

    Args:
        config: the run.
        observation_space, action_space: spaces of one environment.

    Attributes:
        group: the learners that it learns with, if any; see `join`.
        version: number of rollouts learned from.
        frames: environment steps learned from, those of the other learners included.
    """

    def __init__(self, config: Config, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:
        self.config = config
        networks, slots = networks_for(config), config.actors * config.n_envs
        bonus = config.bonus.with_encoder(networks.phi)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)  # one stream for both, so that policy and encoder start with other weights
            self.policy = Policy(networks, observation_space, action_space, config.value_heads)
            made = bonus.make_bonus(observation_space, action_space, slots)
        self.device = find_device(config.device)
        self.policy.to(self.device)  # made on the CPU, so that the first weights are the same on every device
        made.bind_policy(self.policy)
        for part in made.modules():
            if isinstance(part, PolicyDivergence):
                part.in_reward = False  # it comes in through the advantage and the value target
        self.explorer = Explorer(
            made,
            bonus.make_mixer(),
            slots,
            learning_rate=config.encoder_learning_rate,
            max_grad_norm=config.encoder_max_grad_norm,
            fused=True,
        ).to(self.device)
        self.policy_optimizer = _policy_optimizer(config, self.policy)
        # PyTorch's operations release Python's lock, so encoder and policy can learn at the same time.
        share = (max(config.threads // 2, 1),)
        self._encoder_thread = (
            ThreadPoolExecutor(1, "encoder", torch.set_num_threads, share) if config.threads > 1 else None
        )
        self.group: Group | None = None
        self._peers: Peers = ALONE
        self.version = 0
        self.frames = 0
        self._updates = 0
        self._scheduled = config  # with the present values of what changes over the run
        self.seconds: dict[str, float] = defaultdict(float)

    def join(self, group: Group | None) -> None:
        """Joins a group of learners, which must have the same weights; None leaves it."""
        self.group = group
        self._peers, self.explorer.peers = (ALONE, ALONE) if group is None else (group.policy, group.encoder)

    def learn(self, rollout: Rollout) -> list[Stats]:
        """Updates on all columns of a rollout, `config.columns` at a time; returns the statistics of each update.

        Raises:
            DivergedError: A reward, a bonus, a loss or a gradient is NaN or infinite; weights and optimisers are as
                before that update.
        """
        try:
            stats = self._updates_on(rollout)
        except NonFiniteError as error:
            raise DivergedError(f"training stopped; the weights are as before the failed update: {error}") from error
        self.version += 1
        self.frames += rollout.steps * rollout.num_envs * (1 if self.group is None else self.group.size)
        return stats

    def _updates_on(self, rollout: Rollout) -> list[Stats]:
        common = {"policy_lag": float(self.version - rollout.version), **self._follow_schedules()}
        batches, rewards, stats = self._batches(rollout), list[Rewards](), list[Stats]()
        for batch in batches:
            found, numbers = self._first_pass(batch)
            rewards.append(found)
            stats.append(numbers | common)
        for _ in range(1, self.config.n_epochs):
            stats += [self._another_pass(*known) | common for known in zip(batches, rewards, strict=True)]
        return stats

    def _follow_schedules(self) -> Stats:
        """Sets what changes over the run to its value at this frame; returns those values."""
        values = scheduled(self.config, self.frames)
        changes: dict[str, Any] = {name: value for name, value in values.items() if name != "beta"}
        self._scheduled = replace(self.config, **changes) if changes else self.config
        self.explorer.mixer.beta = values.get("beta", self.explorer.mixer.beta)
        if "learning_rate" in values:
            for group in self.policy_optimizer.param_groups:
                group["lr"] = values["learning_rate"]
        return values

    def _batches(self, rollout: Rollout) -> list[Batch]:
        require_finite("the reward", rollout.reward, "fix the environment")
        unroll = rollout.unroll().to(self.device)
        arrays = (*rollout.lstm_state(), torch.from_numpy(rollout.reward), torch.from_numpy(rollout.truncated))
        h, c, reward, truncated = (array.to(self.device) for array in arrays)
        if self.config.columns == rollout.num_envs:
            batches = [Batch(unroll, (h, c), reward, truncated)]
        else:
            batches = [
                Batch(unroll.columns(part), (h[:, part], c[:, part]), reward[:, part], truncated[:, part])
                for part in torch.split(torch.arange(rollout.num_envs, device=self.device), self.config.columns)
            ]
        return batches if self.group is None else _counted_together(batches, self.group)

    def _first_pass(self, batch: Batch) -> tuple[Rewards, Stats]:
        """Scores the bonus; trains encoder and policy."""
        scored = self._submit(self._score, batch)
        out = self._policy_forward(batch)
        features, rewards, stats = scored()
        encoder = self._submit(self._encoder_gradients, features, batch.unroll)
        policy = self._policy_gradients(batch, rewards, out)
        stats |= encoder()() | policy()
        with self._timed("optimisers"):  # both only now, when every term is known to be finite
            self.policy_optimizer.step()
            self.explorer.update()
        self._updates += 1
        return rewards, stats

    def _another_pass(self, batch: Batch, rewards: Rewards) -> Stats:
        """Trains the policy once more."""
        stats = self._policy_gradients(batch, rewards, self._policy_forward(batch))()
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
        explorer, unroll = self.explorer, batch.unroll
        with self._timed("embed"):
            features = explorer.embed(unroll, graph=True)
        with self._timed("score"), torch.no_grad():
            bonus = explorer.score(features, unroll)  # [T, B]
            terms = explorer.bonus.policy_terms(features, unroll)
            rewards = Rewards(reward_streams(self.config, explorer, batch.reward, bonus), terms)
        return features, rewards, {"bonus": float(bonus.mean()), "sigma": explorer.mixer.sigma}

    def _encoder_gradients(self, features: Any, unroll: Unroll) -> Callable[[], Stats]:
        """Starts the exchange; the returned function waits for the other learners' part and clips the gradients."""
        with self._timed("encoder"):
            diagnosed = self.explorer.optimizer is not None and self._updates % DIAGNOSE_EVERY == 0
            stats = self.explorer.bonus.diagnostics(features, unroll) if diagnosed else {}
            finish = self.explorer.start_backward(features, unroll)

        def finished() -> Stats:
            if self.explorer.optimizer is None:
                return {}
            with self._timed("encoder"):
                losses, norm = finish()
            return stats | _loss_stats(losses) | {"encoder_grad_norm": norm}

        return finished

    def _policy_forward(self, batch: Batch) -> Output:
        unroll = batch.unroll
        with self._timed("policy"):
            starts = torch.cat([unroll.starts[None], unroll.done])  # [T+1, B]
            bootstrapped = self.config.bootstrap_truncated and bool(batch.time_limits.any())
            finals = batch.finals() if bootstrapped else None
            return self.policy(unroll.obs, starts, batch.state, finals)  # type: ignore[no-any-return]

    def _policy_gradients(self, batch: Batch, rewards: Rewards, out: Output) -> Callable[[], Stats]:
        """As `_encoder_gradients`."""
        config = self._scheduled
        with self._timed("policy"):
            losses, stats = policy_losses(config, batch, rewards, out, self._peers)
            finish = start_backward(losses, self.policy_optimizer, config.max_grad_norm, self._peers)

        def finished() -> Stats:
            with self._timed("policy"):
                values, norm = finish()
            return _loss_stats(values) | {"policy_grad_norm": norm} | stats

        return finished

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        """Adds the seconds to the stage's."""
        start = time.perf_counter()
        yield
        self.seconds[stage] += time.perf_counter() - start

    def checksum(self) -> int:
        """Checksum of what is the same in all learners: weights, and the scale of the bonus."""
        digest = xxhash.xxh3_64()
        for part in (self.policy, self.explorer.bonus):
            for tensor in part.state_dict().values():
                digest.update(tensor.detach().cpu().contiguous().numpy())
        digest.update(repr(self.explorer.mixer.state_dict()).encode())
        return digest.intdigest()

    def state_dict(self) -> dict[str, Any]:
        return {
            "policy": self.policy.state_dict(),
            "policy_optimizer": self.policy_optimizer.state_dict(),
            "explorer": self.explorer.state_dict(),
            "version": self.version,
            "frames": self.frames,
            "updates": self._updates,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.policy.load_state_dict(state["policy"])
        load_optimizer(self.policy_optimizer, state["policy_optimizer"])
        self.explorer.load_state_dict(state["explorer"])
        counts = (check(name, state[name], Count) for name in ("version", "frames", "updates"))
        self.version, self.frames, self._updates = counts
        self._follow_schedules()

    def load_exported(self, state: Mapping[str, Any], frames: int) -> None:
        """Takes over policy, bonus and scale; the optimisers keep their own state."""
        self.policy.load_state_dict(state["policy"])
        self.explorer.load_learned(state["explorer"])
        self.frames = frames
        self._follow_schedules()


def _counted_together(batches: list[Batch], group: Group) -> list[Batch]:
    """The batches, whose means count the steps of all learners; see `Unroll.mean_count`."""
    counts = torch.tensor([float(batch.unroll.valid.sum()) for batch in batches])
    counts = group.control.mean(counts).clamp(min=1)
    return [
        replace(batch, unroll=replace(batch.unroll, mean_count=count.to(batch.reward.device)))
        for batch, count in zip(batches, counts, strict=True)
    ]


def _loss_stats(losses: Mapping[str, float]) -> Stats:
    return {f"loss_{name}": loss for name, loss in losses.items()}


def _policy_optimizer(config: Config, policy: Policy) -> torch.optim.Optimizer:
    if config.optimizer == "adam":
        return torch.optim.Adam(policy.parameters(), lr=config.learning_rate, fused=True)
    return RMSprop(policy.parameters(), lr=config.learning_rate, alpha=config.rms_alpha, eps=config.rms_eps)
