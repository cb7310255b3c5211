"""Explorer: an exploration bonus with its memory, its place in the reward and its optimiser.

    features = explorer.embed(unroll)            one forward pass
    bonus = explorer.score(features, unroll)     [T, B]; advances the memory and the running scale
    total, _ = explorer.mix(reward, bonus)       what the agent optimises
    explorer.backward(features, unroll)          gradients of the bonus's losses, clipped
    explorer.update()                            the optimiser's step

A learner that trains on whole unrolls owns an `Explorer`. A wrapper, which sees one step at a time, owns an
`OnlineExplorer` (`e3b_gym.online`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from e3b_gym.bonuses import Bonus, Memory
from e3b_gym.devices import device_of, find_device
from e3b_gym.errors import NonFiniteError
from e3b_gym.optimizers import load_optimizer
from e3b_gym.reward import RewardMixer, require_finite
from e3b_gym.unroll import Unroll


class Peers(Protocol):
    """The other learners, seen from one of them. All take the same optimiser steps, each from its own experience.

    Attributes:
        size: how many there are, this one included.
    """

    size: int

    def pool(self, values: Tensor) -> Tensor:
        """Returns the columns of all learners, [T, K B], of values [T, B] that each of them has."""

    def add_up(self, weights: list[Tensor]) -> Callable[[], None]:
        """Starts to add up the gradients of the weights over the learners.

        Returns:
            A function that waits for the sums and replaces the gradients, which must not be used before.
        """


class Alone:
    """The peers of a single learner: every exchange is a no-op."""

    size = 1

    def pool(self, values: Tensor) -> Tensor:
        return values

    def add_up(self, weights: list[Tensor]) -> Callable[[], None]:
        return lambda: None


ALONE = Alone()


class Explorer:
    """A bonus with its memory, mixer and optimiser.

    Args:
        bonus: the bonus. Scoring puts it into evaluation mode: dropout would make a known state look new.
        mixer: how the bonus enters the reward.
        num_envs: how many environments the memory has room for.
        learning_rate: learning rate of the encoder's Adam.
        max_grad_norm: the encoder's gradients are clipped to this norm.
        fused: Adam steps in one kernel: faster for large networks, the same up to rounding.

    Attributes:
        optimizer: None for a bonus without trained weights (a count, a random encoder).
        peers: learners that share the running scale of the bonus and the gradients of its losses.
    """

    def __init__(
        self,
        bonus: Bonus,
        mixer: RewardMixer,
        num_envs: int,
        *,
        learning_rate: float = 1e-3,
        max_grad_norm: float = 40.0,
        fused: bool = False,
    ) -> None:
        self.bonus = bonus
        self.mixer = mixer
        self.num_envs = num_envs
        self.max_grad_norm = max_grad_norm
        self._training = True
        self._modes = {part: part.training for part in bonus.modules()}  # a part in evaluation mode stays in it
        bonus.eval()
        self._fused = fused
        weights = any(weight.requires_grad for weight in bonus.parameters())
        self.optimizer = self._new_optimizer(learning_rate) if weights else None
        self.peers: Peers = ALONE
        self._device = device_of(bonus)
        self._memory: Memory | None = None
        self._saved_memory: dict[str, Any] | None = None  # loaded, and given to the memory when that is made

    @property
    def training(self) -> bool:
        """Whether the running scale of the bonus is updated."""
        return self._training

    @training.setter
    def training(self, value: bool) -> None:
        self._training = value

    @property
    def device(self) -> torch.device:
        """Where the encoder, its optimiser and the memory are, and where unrolls must be."""
        return self._device

    def to(self, device: str | torch.device) -> Self:
        """Moves everything to a device; see `e3b_gym.devices.find_device`."""
        found = find_device(device)
        if found != self._device:
            memory = self._saved_memory if self._memory is None else self._memory.state_dict()
            self.bonus.to(found)
            if self.optimizer is not None:
                before, self.optimizer = self.optimizer.state_dict(), self._new_optimizer()
                load_optimizer(self.optimizer, before)
            self._device, self._memory, self._saved_memory = found, None, memory
        return self

    def _new_optimizer(self, learning_rate: float = 1e-3) -> torch.optim.Adam:
        weights = [weight for weight in self.bonus.parameters() if weight.requires_grad]
        return torch.optim.Adam(weights, lr=learning_rate, fused=self._fused or None)

    @property
    def memory(self) -> Memory:
        """Made when first needed: a policy encoder has no size before the policy is bound."""
        if self._memory is None:
            self._memory = self.bonus.new_memory(self.num_envs)
            if self._saved_memory is not None:
                self._memory.load_state_dict(self._saved_memory)
                self._saved_memory = None
        return self._memory

    def make_memory(self) -> None:
        """Makes the memory now, so that too large a one and loaded content that does not fit are refused early."""
        self._memory = self.memory

    def embed(self, unroll: Unroll, previous: Any = None, *, graph: bool = False) -> Any:
        """The bonus's features of an unroll.

        Args:
            unroll: T steps of B environments.
            previous: the features of the unroll just before, with the same weights; saves a forward pass.
            graph: keep what `backward` needs.
        """
        with torch.set_grad_enabled(graph and self.optimizer is not None):
            return self.bonus.embed(unroll, previous)

    @torch.no_grad()
    def score(self, features: Any, unroll: Unroll) -> Tensor:
        """The bonus [T, B] of every step; advances the memory, and the running scale while `training`.

        Raises:
            NonFiniteError: The bonus is NaN or infinite. The memory holds finite numbers only.
        """
        try:
            bonus = self.bonus.score(features, unroll, self.memory).float()
        except NonFiniteError as error:  # a memory refuses embeddings that are not numbers
            raise NonFiniteError(f"the bonus cannot be computed: {error}") from error
        require_finite("the bonus", bonus, "check the observations and the encoder's loss")
        if self.training:
            # A step whose next observation is unknown has no bonus, so it is not part of the running scale.
            known = self.peers.pool(bonus.masked_fill(~unroll.valid, torch.nan))
            self.mixer.update(known[~known.isnan()])
        return bonus

    def mix(self, reward: Tensor, bonus: Tensor) -> tuple[Tensor, Tensor]:
        """The reward that the agent optimises, and the bonus's part of it before clipping; each in the given shape."""
        intrinsic = self.mixer.intrinsic(bonus)
        return self.mixer.combine(reward, intrinsic), intrinsic

    def backward(self, features: Any, unroll: Unroll) -> tuple[dict[str, float], float]:
        """Computes the clipped gradients of the bonus's losses; returns the losses and the norm of the gradients."""
        return self.start_backward(features, unroll)()

    @torch.enable_grad()  # ARS steps its environments, and so calls back, under no_grad
    def start_backward(self, features: Any, unroll: Unroll) -> Callable[[], tuple[dict[str, float], float]]:
        """`backward` in two steps; returns a function that waits for the peers and does the rest."""
        if self.optimizer is None:
            return lambda: ({}, 0.0)
        return start_backward(self.bonus.loss(features, unroll), self.optimizer, self.max_grad_norm, self.peers)

    @contextmanager
    def training_mode(self) -> Iterator[None]:
        """Dropout and batch normalisation work as in training inside the block, and as in evaluation after it."""
        for part, mode in self._modes.items():
            part.training = mode
        try:
            yield
        finally:
            self.bonus.eval()

    def update(self) -> None:
        """Steps the optimiser with the gradients of `backward`."""
        if self.optimizer is not None:
            self.optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        return {
            "num_envs": self.num_envs,
            "bonus": self.bonus.state_dict(),
            "mixer": self.mixer.state_dict(),
            "memory": self._saved_memory if self._memory is None else self._memory.state_dict(),
            "optimizer": None if self.optimizer is None else self.optimizer.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over what was learned, and the optimiser."""
        self.load_learned(state)
        if self.optimizer is not None and state["optimizer"] is not None:
            load_optimizer(self.optimizer, state["optimizer"])

    def load_learned(self, state: Mapping[str, Any]) -> None:
        """Takes over bonus and scale; the memory where there is one, of the same number of environments."""
        self.bonus.load_state_dict(state["bonus"])
        self.mixer.load_state_dict(state["mixer"])
        self._memory = None
        self._saved_memory = state["memory"] if state.get("num_envs") == self.num_envs else None


def start_backward(
    losses: Mapping[str, Tensor], optimizer: torch.optim.Optimizer, limit: float, peers: Peers = ALONE
) -> Callable[[], tuple[dict[str, float], float]]:
    """Computes the gradients of the losses' sum, and starts to average them over all learners.

    Returns:
        A function that waits for the average and stores it, clipped to the norm `limit`, as the gradients of the
        optimiser's weights. It returns the losses by name and the norm before clipping.

    Raises:
        NonFiniteError: A loss is NaN or infinite; the second step raises it for a gradient. The weights are as before.
    """
    for name, loss in losses.items():
        require_finite(f"the loss {name!r}", loss, "lower its learning rate")
    optimizer.zero_grad(set_to_none=True)
    if not losses:
        return lambda: ({}, 0.0)
    # The learners' average: a sum of shares, which costs no pass over all gradients.
    torch.autograd.backward([loss / peers.size for loss in losses.values()] if peers.size > 1 else [*losses.values()])
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    wait = peers.add_up(weights)

    def finish() -> tuple[dict[str, float], float]:
        wait()
        length = _clip([weight.grad for weight in weights if weight.grad is not None], limit)
        require_finite(f"the gradient of {' + '.join(losses)}", length, "lower its learning rate")
        return {name: loss.item() for name, loss in losses.items()}, length

    return finish


def _clip(gradients: list[Tensor], limit: float) -> float:
    """Returns the norm of the gradients; scales them if it exceeds the limit."""
    length = torch.stack([torch.linalg.vector_norm(gradient) for gradient in gradients]).norm()
    if torch.isfinite(length) and length > limit:  # most need none, and a pass over all costs as much as a step
        for gradient in gradients:
            gradient *= limit / length
    return float(length)
