"""Training of an encoder on recorded experience: settings, minibatches, and passes over them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from e3b_gym.explorer import Explorer
from e3b_gym.options import Count, Positive, check_fields
from e3b_gym.unroll import Unroll


@dataclass(frozen=True)
class TrainerConfig:
    """Settings of the encoder's training."""

    learning_rate: Positive = 1e-3
    """Step size of Adam."""
    epochs: Count = 1
    """Passes over each recorded rollout."""
    batch_size: Count = 1024
    """Transitions per minibatch, about."""
    window: Count = 32
    """At least this many consecutive steps stay together in a minibatch. Inside a window every observation is embedded
    once, although it ends one step and begins the next."""
    max_grad_norm: Positive = 40.0
    """Gradients are clipped to this norm."""
    seed: int = 0
    """Seed of the order of the minibatches."""

    def __post_init__(self) -> None:
        check_fields(self)


def minibatches(unroll: Unroll, config: TrainerConfig, order: torch.Generator) -> Iterator[Unroll]:
    """Every transition once: windows of time x groups of environments, in random order."""
    # With few environments the windows are longer.
    window = min(unroll.num_steps, max(config.window, math.ceil(config.batch_size / unroll.num_envs)))
    group = max(1, config.batch_size // window)
    pieces = [
        (start, columns)
        for start in range(0, unroll.num_steps, window)
        for columns in torch.split(torch.randperm(unroll.num_envs, generator=order), group)
    ]
    for i in torch.randperm(len(pieces), generator=order).tolist():
        start, columns = pieces[i]
        yield unroll.window(start, min(start + window, unroll.num_steps)).columns(columns)


def train_on(unroll: Unroll, explorer: Explorer, config: TrainerConfig, order: torch.Generator) -> dict[str, float]:
    """Trains the bonus in `epochs` passes over `unroll`; returns the mean losses and the bonus's diagnostics."""
    seen: list[dict[str, float]] = []
    with explorer.training_mode():
        for _ in range(config.epochs if explorer.optimizer is not None else 0):
            for part in minibatches(unroll, config, order):
                batch = part.to(explorer.device)
                seen.append(explorer.backward(explorer.embed(batch, graph=True), batch)[0])
                explorer.update()
    names = seen[0] if seen else {}
    means = {f"{name}_loss": sum(losses[name] for losses in seen) / len(seen) for name in names}
    return means | _diagnostics(unroll, explorer, config, order)


@torch.no_grad()
def _diagnostics(unroll: Unroll, explorer: Explorer, config: TrainerConfig, order: torch.Generator) -> dict[str, float]:
    """Diagnostics of one minibatch; those of a whole rollout would cost a forward pass."""
    batch = next(minibatches(unroll, config, order)).to(explorer.device)
    return explorer.bonus.diagnostics(explorer.bonus.embed(batch), batch)
