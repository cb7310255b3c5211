"""Training an encoder on recorded experience: minibatches, an optimiser of its own, and numbers worth a curve."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from e3b_gym.bonuses import Bonus
from e3b_gym.errors import NonFiniteError
from e3b_gym.unroll import Unroll


@dataclass(frozen=True)
class TrainerConfig:
    """How the encoder learns.

    Attributes:
        learning_rate: of Adam.
        epochs: passes over each recorded rollout.
        batch_size: transitions per minibatch, about.
        window: at least so many consecutive steps stay together in a minibatch. Inside a window every observation is
            embedded once although it ends one step and begins the next.
        max_grad_norm: gradients are clipped to this norm.
        seed: of the order of the minibatches.
    """

    learning_rate: float = 1e-3
    epochs: int = 1
    batch_size: int = 1024
    window: int = 32
    max_grad_norm: float = 40.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("learning_rate", "max_grad_norm"):
            object.__setattr__(self, name, float(getattr(self, name)))  # numpy's numbers cannot be saved
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise ValueError(f"{name} must be a positive number; got {getattr(self, name)}")
        for name in ("epochs", "batch_size", "window", "seed"):
            object.__setattr__(self, name, operator.index(getattr(self, name)))
        for name in ("epochs", "batch_size", "window"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}")


class EncoderTrainer:
    """Minimises a bonus's losses on unrolls. A bonus without losses (a count, a random encoder) is left alone."""

    def __init__(self, bonus: Bonus, config: TrainerConfig | None = None) -> None:
        self.bonus = bonus
        self.config = config or TrainerConfig()
        weights = [weight for weight in bonus.parameters() if weight.requires_grad]
        self.optimizer = torch.optim.Adam(weights, lr=self.config.learning_rate) if weights else None
        self._order = torch.Generator().manual_seed(self.config.seed)
        self._modes = {part: part.training for part in bonus.modules()}  # a part in eval mode stays in it

    def configure(self, **changes: Any) -> None:
        """Changes settings between rollouts; Adam's moments stay."""
        if not changes:
            return
        self.config = replace(self.config, **changes)
        if self.optimizer is not None:
            for group in self.optimizer.param_groups:
                group["lr"] = self.config.learning_rate

    def train(self, unroll: Unroll) -> dict[str, float]:
        """One visit to the unroll; returns the mean losses, and the bonus's diagnostics after training."""
        if unroll.num_steps == 0:
            return {}
        totals: dict[str, float] = {}
        batches = 0
        if self.optimizer is not None:
            with self._training_mode():
                for _ in range(self.config.epochs):
                    for batch in self._minibatches(unroll):
                        for name, loss in self._update(batch, self.optimizer).items():
                            totals[name] = totals.get(name, 0.0) + loss
                        batches += 1
        means = {f"{name}_loss": total / batches for name, total in totals.items()}
        return means | self._diagnostics(unroll)

    @contextmanager
    def _training_mode(self) -> Iterator[None]:
        """Dropout and batch normalisation work as in training inside the block, and as in evaluation after it."""
        for part, mode in self._modes.items():
            part.training = mode
        try:
            yield
        finally:
            self.bonus.eval()

    @torch.enable_grad()  # ARS steps its environments, and so calls back, under no_grad
    def _update(self, batch: Unroll, optimizer: torch.optim.Optimizer) -> dict[str, float]:
        losses = self.bonus.loss(self.bonus.embed(batch), batch)
        total = torch.stack(list(losses.values())).sum()
        if not bool(torch.isfinite(total)):
            bad = [name for name, loss in losses.items() if not bool(torch.isfinite(loss))]
            raise NonFiniteError(f"the {', '.join(bad)} loss of the bonus is NaN or infinite; lower its learning rate")
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(total)
        torch.nn.utils.clip_grad_norm_(self.bonus.parameters(), self.config.max_grad_norm)
        optimizer.step()
        return {name: loss.item() for name, loss in losses.items()}

    def _minibatches(self, unroll: Unroll) -> Iterator[Unroll]:
        """Every transition once: windows of time x groups of environments, in random order."""
        # Few environments make up for it with longer windows.
        window = min(unroll.num_steps, max(self.config.window, math.ceil(self.config.batch_size / unroll.num_envs)))
        group = max(1, self.config.batch_size // window)
        pieces = [
            (start, columns)
            for start in range(0, unroll.num_steps, window)
            for columns in torch.split(torch.randperm(unroll.num_envs, generator=self._order), group)
        ]
        for i in torch.randperm(len(pieces), generator=self._order).tolist():
            start, columns = pieces[i]
            yield unroll.window(start, min(start + window, unroll.num_steps)).columns(columns)

    @torch.no_grad()
    def _diagnostics(self, unroll: Unroll) -> dict[str, float]:
        """On one minibatch: these are for curves, and a whole rollout would cost a forward pass."""
        batch = next(self._minibatches(unroll))
        return self.bonus.diagnostics(self.bonus.embed(batch), batch)

    def state_dict(self) -> dict[str, Any]:
        return {
            "optimizer": self.optimizer.state_dict() if self.optimizer is not None else None,
            "order": self._order.get_state(),
            "config": asdict(self.config),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self.optimizer is not None and state["optimizer"] is not None:
            self.optimizer.load_state_dict(state["optimizer"])
        self._order.set_state(state["order"])
        self.config = TrainerConfig(**state["config"])
