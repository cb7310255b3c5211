"""The learner: one unroll in, one better policy out.

    embed once -> score with the memories of those slots -> mix the reward -> encoder step -> V-trace -> policy step

    policy loss  = sum_t [ -advantage_t log pi(a_t|s_t) + baseline / 2 (v_t - V(s_t))^2 - entropy H(pi(.|s_t)) ]

summed over time and averaged over environments, as IMPALA and the authors do. AGAC adds its adversary's terms to the
advantage and to the value target.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from agents.impala.config import Config
from agents.impala.networks import networks_for
from agents.impala.policy import Policy, State
from agents.impala.rollout import Rollout
from agents.impala.vtrace import vtrace
from e3b_gym.bonuses import PolicyDivergence, make_bonus
from e3b_gym.reward import RewardMixer
from e3b_gym.unroll import Unroll
from e3b_gym.wrappers.building import Recipe

Stats = dict[str, float]
# Updates between two looks at the encoder (accuracy, rank), which cost as much as a small update.
DIAGNOSE_EVERY = 32


class DivergedError(RuntimeError):
    """A loss, a gradient or a reward is not a number; the weights are as they were before."""


class Learner:
    """Policy, bonus and their optimisers.

    Args:
        config: the run.
        observation_space, action_space: of one environment.
    """

    def __init__(self, config: Config, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:
        self.config = config
        networks, slots = networks_for(config), config.actors * config.num_envs
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            self.policy = Policy(networks, observation_space, action_space, config.value_heads)
        recipe = Recipe.of(config.method, config.bonus_preset, config.seed, **config.bonus)
        options = {**recipe.options, "encoder": networks.phi}
        options.pop("dim", None)
        self.bonus = make_bonus(config.method, observation_space, action_space, slots, seed=config.seed, **options)
        self.bonus.bind_policy(self.policy)
        for part in self.bonus.modules():
            if isinstance(part, PolicyDivergence):
                part.in_reward = False  # it comes in through the advantage and the value target
        self.mixer = RewardMixer(**recipe.mixer)
        self.memory = self.bonus.new_memory(slots)
        self.policy_optimizer = torch.optim.RMSprop(
            self.policy.parameters(), lr=config.learning_rate, alpha=config.rms_alpha, eps=config.rms_eps
        )
        weights = [weight for weight in self.bonus.parameters() if weight.requires_grad]
        self.encoder_optimizer = (
            torch.optim.Adam(weights, lr=config.encoder_learning_rate, fused=True) if weights else None
        )
        self.version = 0
        self.frames = 0
        self._updates = 0
        self.seconds: dict[str, float] = defaultdict(float)

    def learn(self, rollout: Rollout) -> list[Stats]:
        """Updates on all columns of a rollout, `config.columns` at a time; returns what is worth a curve of each."""
        unroll, (h, c), reward = rollout.unroll(), rollout.lstm_state(), torch.from_numpy(rollout.reward)
        stats = []
        for columns in torch.arange(rollout.num_envs).split(self.config.columns):
            everything = len(columns) == rollout.num_envs
            part = unroll if everything else unroll.columns(columns)
            state = (h[:, columns], c[:, columns])
            stats.append(self._update(part, state, reward[:, columns]))
        self.version += 1
        self.frames += rollout.steps * rollout.num_envs
        return stats

    def _update(self, unroll: Unroll, state: State, reward: Tensor) -> Stats:
        with self._timed("embed"), torch.set_grad_enabled(self.encoder_optimizer is not None):
            features = self.bonus.embed(unroll)
        with self._timed("score"), torch.no_grad():
            bonus = self.bonus.score(features, unroll, self.memory)  # [T, B]
            _require_finite("bonus", bonus)
            _require_finite("reward", reward)
            self.mixer.update(bonus[unroll.valid])
            terms = self.bonus.policy_terms(features, unroll)
        stats: Stats = {"bonus": float(bonus.mean()), "sigma": self.mixer.sigma}
        with self._timed("encoder"):
            stats |= self._train_encoder(features, unroll)
        with self._timed("policy"):
            stats |= self._train_policy(unroll, state, reward, bonus, terms)
        self._updates += 1
        return stats

    def _train_encoder(self, features: Any, unroll: Unroll) -> Stats:
        if self.encoder_optimizer is None:
            return {}
        losses = self.bonus.loss(features, unroll)
        stats = self._step(self.encoder_optimizer, losses, self.config.encoder_max_grad_norm, "encoder_grad_norm")
        if self._updates % DIAGNOSE_EVERY == 0:
            stats |= self.bonus.diagnostics(features, unroll)
        return stats

    def _train_policy(
        self, unroll: Unroll, state: State, reward: Tensor, bonus: Tensor, terms: tuple[Tensor, Tensor] | None
    ) -> Stats:
        config = self.config
        starts = torch.cat([unroll.starts[None], unroll.done])  # [T+1, B]
        out = self.policy(unroll.obs, starts, state)
        logits, values = out.logits[:-1], out.values  # [T, B, A], [T+1, B, heads]
        log_pi = F.log_softmax(logits, -1)
        chosen = log_pi.gather(-1, unroll.action[..., None])[..., 0]  # [T, B]
        behaviour = F.log_softmax(unroll.policy_logits, -1).gather(-1, unroll.action[..., None])[..., 0]
        log_ratio = (chosen - behaviour).detach()
        advantage, value_loss = torch.zeros_like(log_ratio), torch.zeros(())
        for head, (stream, gamma) in enumerate(self._streams(reward, bonus)):
            value, last = values[:-1, :, head], values[-1, :, head].detach()
            targets, head_advantage = vtrace(
                log_ratio, gamma * (~unroll.done).float(), stream, value, last, config.rho_bar, config.c_bar
            )
            if terms is not None and head == 0:
                targets = targets + config.agac_coef * terms[1]
            advantage = advantage + head_advantage
            value_loss = value_loss + 0.5 * (targets - value).square().sum(0).mean()
        if terms is not None:
            advantage = advantage + config.agac_coef * terms[0]
        entropy = -(log_pi.exp() * log_pi).sum(-1)  # [T, B]
        losses = {
            "policy_gradient": -(advantage * chosen).sum(0).mean(),
            "value": config.baseline * value_loss,
            "entropy": -config.entropy * entropy.sum(0).mean(),
        }
        stats = self._step(self.policy_optimizer, losses, config.max_grad_norm, "policy_grad_norm")
        return stats | {
            "policy_entropy": float(entropy.mean()),
            "value_mean": float(values.mean()),
            "importance_ratio": float(log_ratio.exp().mean()),
        }

    def _streams(self, reward: Tensor, bonus: Tensor) -> Iterator[tuple[Tensor, float]]:
        """The rewards of each value head with their discounts."""
        config, mixer = self.config, self.mixer
        if config.value_heads == 1:
            yield mixer(reward, bonus), config.discount
            return
        yield mixer(reward, torch.zeros_like(bonus)), config.discount
        gamma = config.discount if config.intrinsic_discount is None else config.intrinsic_discount
        yield mixer(torch.zeros_like(reward), bonus), gamma

    def _step(self, optimizer: torch.optim.Optimizer, losses: Mapping[str, Tensor], limit: float, norm: str) -> Stats:
        for name, loss in losses.items():
            _require_finite(f"loss {name!r}", loss)
        optimizer.zero_grad(set_to_none=True)
        torch.stack(list(losses.values())).sum().backward()
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        length = nn.utils.clip_grad_norm_(weights, limit, foreach=True)
        _require_finite(f"gradient of {' + '.join(losses)}", length)
        optimizer.step()
        return {f"loss_{name}": float(loss) for name, loss in losses.items()} | {norm: float(length)}

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
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.policy.load_state_dict(state["policy"])
        self.policy_optimizer.load_state_dict(state["policy_optimizer"])
        self.bonus.load_state_dict(state["bonus"])
        if self.encoder_optimizer is not None:
            self.encoder_optimizer.load_state_dict(state["encoder_optimizer"])
        self.mixer.load_state_dict(state["mixer"])
        self.memory.load_state_dict(state["memory"])
        self.version, self.frames = state["version"], state["frames"]


def _require_finite(name: str, values: Tensor) -> None:
    if not bool(torch.isfinite(values).all()):
        raise DivergedError(
            f"the {name} has NaN or infinite values, so training stops before it spoils the weights; lower the "
            "learning rate, or look for the environment's own NaN"
        )
