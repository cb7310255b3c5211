"""The protocol of an exploration bonus, and its algebra.

    embed(unroll)                    -> features          one forward pass, with gradients when training
    score(features, unroll, memory)  -> bonus [T, B]      never trains; advances memory
    loss(features, unroll)           -> {name: scalar}    self-supervised losses; empty for counts

A bonus is an nn.Module that holds weights only. What it remembers of the running episodes lives in a memory that the
caller owns, one slot per environment, like the state of an LSTM. Bonuses combine: `a * b`, `a + b`, `0.5 * a`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self, runtime_checkable

import gymnasium as gym
import torch
from torch import Tensor, nn

from e3b_gym.unroll import Unroll


@runtime_checkable
class Memory(Protocol):
    """What a bonus remembers, one slot per environment. Plain tensors and numbers in its state."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class NoMemory:
    """The memory of a bonus that needs none."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state:
            raise ValueError(f"this bonus keeps no memory, but the saved one holds {', '.join(sorted(state))}")


class Bonus(nn.Module):
    """Base class of every bonus. A subclass must define `score`; the rest has defaults.

    Attributes:
        independent_envs: an environment's bonus depends on that environment's experience alone.
        episodic: nothing outlives an episode in memory.
        observation_space, action_space, num_envs: what the bonus was built for, if it was told (`built_for`).
    """

    independent_envs: bool = True
    episodic: bool = True
    observation_space: gym.Space[Any] | None = None
    action_space: gym.Space[Any] | None = None
    num_envs: int | None = None

    def new_memory(self, num_envs: int) -> Memory:
        """Empty memory for `num_envs` environments."""
        return NoMemory()

    def embed(self, unroll: Unroll, previous: Any = None) -> Any:
        """One forward pass over the unroll. `previous`: its own features of the unroll just before, same weights."""
        return None

    def score(self, features: Any, unroll: Unroll, memory: Any) -> Tensor:
        """The bonus [T, B] of every step. Zero where the arriving observation is not known (`unroll.masked`)."""
        raise NotImplementedError(f"{type(self).__name__} must define score(features, unroll, memory)")

    def loss(self, features: Any, unroll: Unroll) -> dict[str, Tensor]:
        """Scalar losses by name, already weighted: their sum is what the optimiser minimises."""
        return {}

    def diagnostics(self, features: Any, unroll: Unroll) -> dict[str, float]:
        """Numbers worth a curve, such as the accuracy of an inverse model."""
        return {}

    def policy_terms(self, features: Any, unroll: Unroll) -> tuple[Tensor, Tensor] | None:
        """What a learner adds to the advantage and to the value target, each [T, B]; None for most. See AGAC."""
        return None

    def bind_policy(self, policy: Any) -> None:
        """Shows the acting policy to the parts that read it; the rest ignore it. See `PolicyFeatures`."""
        for part in self.modules():
            bind = getattr(part, "bind_policy", None)
            if part is not self and callable(bind):
                bind(policy)

    def built_for(
        self, observation_space: gym.Space[Any], action_space: gym.Space[Any], num_envs: int | None = None
    ) -> Self:
        """Notes the spaces this bonus belongs to, so that wrapping another environment is an error."""
        self.observation_space, self.action_space, self.num_envs = observation_space, action_space, num_envs
        return self

    def __mul__(self, other: Bonus | float) -> Bonus:
        return Product([self, other]) if isinstance(other, Bonus) else Scaled(self, other)

    __rmul__ = __mul__

    def __add__(self, other: Bonus) -> Bonus:
        return Sum([self, other])


class Memories:
    """The memories of a composition, part by part."""

    def __init__(self, parts: Sequence[Memory]) -> None:
        self.parts = list(parts)

    def state_dict(self) -> dict[str, Any]:
        return {str(i): part.state_dict() for i, part in enumerate(self.parts)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if len(state) != len(self.parts):
            raise ValueError(
                f"the saved memory is of {len(state)} terms, this bonus has {len(self.parts)}; rebuild the same bonus"
            )
        for i, part in enumerate(self.parts):
            part.load_state_dict(state[str(i)])


class _Composition(Bonus):
    """Terms evaluated side by side, each with its own features and memory."""

    terms: nn.ModuleList

    def __init__(self, terms: Sequence[Bonus]) -> None:
        super().__init__()
        for term in terms:
            if not isinstance(term, Bonus):
                raise ValueError(f"a bonus combines with bonuses and numbers; got {type(term).__name__}")
        self.terms = nn.ModuleList(terms)
        self.independent_envs = all(term.independent_envs for term in terms)
        self.episodic = all(term.episodic for term in terms)

    def new_memory(self, num_envs: int) -> Memories:
        return Memories([term.new_memory(num_envs) for term in self._terms()])

    def embed(self, unroll: Unroll, previous: Any = None) -> list[Any]:
        before = previous if previous is not None else [None] * len(self.terms)
        return [term.embed(unroll, old) for term, old in zip(self._terms(), before, strict=True)]

    def scores(self, features: list[Any], unroll: Unroll, memory: Memories) -> Tensor:
        """[terms, T, B]."""
        together = zip(self._terms(), features, memory.parts, strict=True)
        return torch.stack([term.score(part, unroll, mem) for term, part, mem in together])

    def loss(self, features: list[Any], unroll: Unroll) -> dict[str, Tensor]:
        return self._merge([term.loss(part, unroll) for term, part in zip(self._terms(), features, strict=True)])

    def diagnostics(self, features: list[Any], unroll: Unroll) -> dict[str, float]:
        return self._merge([term.diagnostics(part, unroll) for term, part in zip(self._terms(), features, strict=True)])

    def policy_terms(self, features: list[Any], unroll: Unroll) -> tuple[Tensor, Tensor] | None:
        parts = [term.policy_terms(part, unroll) for term, part in zip(self._terms(), features, strict=True)]
        given = [part for part in parts if part is not None]
        if not given:
            return None
        return torch.stack([part[0] for part in given]).sum(0), torch.stack([part[1] for part in given]).sum(0)

    def _terms(self) -> list[Bonus]:
        return list(self.terms)  # type: ignore[arg-type]

    @staticmethod
    def _merge(parts: list[dict[str, Any]]) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for i, part in enumerate(parts):
            for name, value in part.items():
                merged[name if name not in merged else f"{name}_{i}"] = value
        return merged


class Product(_Composition):
    """Global term x episodic term (Table 1 of the paper), or any other product."""

    def score(self, features: list[Any], unroll: Unroll, memory: Memories) -> Tensor:
        return self.scores(features, unroll, memory).prod(dim=0)


class Sum(_Composition):
    """The sum of several bonuses."""

    def score(self, features: list[Any], unroll: Unroll, memory: Memories) -> Tensor:
        return self.scores(features, unroll, memory).sum(dim=0)


class Scaled(_Composition):
    """A bonus times a constant. The losses stay as they are."""

    def __init__(self, term: Bonus, factor: float) -> None:
        if not isinstance(factor, (int, float)):
            raise ValueError(f"a bonus is scaled by a number; got {type(factor).__name__}")
        super().__init__([term])
        self.factor = float(factor)

    def score(self, features: list[Any], unroll: Unroll, memory: Memories) -> Tensor:
        return self.factor * self.scores(features, unroll, memory)[0]

    def policy_terms(self, features: list[Any], unroll: Unroll) -> tuple[Tensor, Tensor] | None:
        terms = super().policy_terms(features, unroll)
        return None if terms is None else (self.factor * terms[0], self.factor * terms[1])
