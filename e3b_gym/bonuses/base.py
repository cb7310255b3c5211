"""The interface of an exploration bonus, and how bonuses combine.

    embed(unroll)                    -> features          one forward pass, with gradients when training
    score(features, unroll, memory)  -> bonus [T, B]      never trains; advances memory
    loss(features, unroll)           -> {name: scalar}    self-supervised losses; empty for counts

A bonus is an nn.Module that holds weights only. Its memory of the running episodes is a separate object that the caller
owns, with one slot per environment, like the state of an LSTM. Bonuses combine: `a * b`, `a + b`, `0.5 * a`.
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
    """State of a bonus, one slot per environment. Its state_dict holds tensors and numbers only."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class NoMemory:
    """Memory of a bonus that keeps no state."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state:
            raise ValueError(
                f"this bonus has no memory, but the saved state has {', '.join(sorted(state))}; build the bonus that "
                "the state was saved from"
            )


class Bonus(nn.Module):
    """Base class of every bonus. A subclass must define `score`; all other methods have defaults.

    Examples:
        >>> import gymnasium
        >>> from e3b_gym import Bonus, check_bonus
        >>> class FirstStep(Bonus):
        ...     def score(self, features, unroll, memory):
        ...         return unroll.masked(unroll.first.float())
        >>> check_bonus(FirstStep(), gymnasium.spaces.Discrete(5), gymnasium.spaces.Discrete(2))
    """

    independent_envs: bool = True
    """The bonus of an environment depends on the experience of that environment only."""

    episodic: bool = True
    """The memory is cleared when an episode starts."""

    observation_space: gym.Space[Any] | None = None
    """Observation space of one environment, if set by `built_for`."""

    action_space: gym.Space[Any] | None = None
    """Action space of one environment, if set by `built_for`."""

    num_envs: int | None = None
    """Number of environments, if set by `built_for`."""

    def new_memory(self, num_envs: int) -> Memory:
        """Returns an empty memory for `num_envs` environments."""
        return NoMemory()

    def embed(self, unroll: Unroll, previous: Any = None) -> Any:
        """Runs one forward pass over the unroll and returns its features.

        Args:
            unroll: the experience.
            previous: features of the preceding unroll, computed by this method with the same weights; None: not known.
        """
        return None

    def score(self, features: Any, unroll: Unroll, memory: Any) -> Tensor:
        """Returns the bonus [T, B] of every step; 0 where the next observation is not known (`unroll.masked`)."""
        raise NotImplementedError(f"{type(self).__name__} must define score(features, unroll, memory)")

    def loss(self, features: Any, unroll: Unroll) -> dict[str, Tensor]:
        """Returns weighted scalar losses by name; the optimiser minimises their sum."""
        return {}

    def diagnostics(self, features: Any, unroll: Unroll) -> dict[str, float]:
        """Returns numbers to log, such as the accuracy of an inverse model."""
        return {}

    def policy_terms(self, features: Any, unroll: Unroll) -> tuple[Tensor, Tensor] | None:
        """Returns what a learner adds to the advantage and to the value target, each [T, B]; None unless AGAC."""
        return None

    def bind_policy(self, policy: Any) -> None:
        """Passes the acting policy to the submodules that use it, such as `PolicyFeatures`."""
        for part in self.modules():
            bind = getattr(part, "bind_policy", None)
            if part is not self and callable(bind):
                bind(policy)

    def built_for(
        self, observation_space: gym.Space[Any], action_space: gym.Space[Any], num_envs: int | None = None
    ) -> Self:
        """Stores the spaces that this bonus was built for; wrapping another environment then raises an error."""
        self.observation_space, self.action_space, self.num_envs = observation_space, action_space, num_envs
        return self

    def __mul__(self, other: Bonus | float) -> Bonus:
        return Product([self, other]) if isinstance(other, Bonus) else Scaled(self, other)

    __rmul__ = __mul__

    def __add__(self, other: Bonus) -> Bonus:
        return Sum([self, other])


class NoBonus(Bonus):
    """A bonus that is always 0: the baseline without exploration.

    Examples:
        >>> import gymnasium as gym
        >>> from e3b_gym import check_bonus
        >>> from e3b_gym.bonuses import NoBonus
        >>> space, actions = gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(3)
        >>> bonus = NoBonus()
        >>> check_bonus(bonus, space, actions)
    """

    def score(self, features: None, unroll: Unroll, memory: object) -> Tensor:
        return torch.zeros(unroll.done.shape, device=unroll.done.device)


class Memories:
    """The memories of the terms of a composition."""

    def __init__(self, parts: Sequence[Memory]) -> None:
        self.parts = list(parts)

    def state_dict(self) -> dict[str, Any]:
        return {str(i): part.state_dict() for i, part in enumerate(self.parts)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if len(state) != len(self.parts):
            raise ValueError(
                f"the saved memory has {len(state)} terms, this bonus has {len(self.parts)}; build the bonus that the "
                "memory was saved from"
            )
        for i, part in enumerate(self.parts):
            part.load_state_dict(state[str(i)])


class _Composition(Bonus):
    """Several terms, each with its own features and memory."""

    terms: nn.ModuleList

    def __init__(self, terms: Sequence[Bonus]) -> None:
        super().__init__()
        for term in terms:
            if not isinstance(term, Bonus):
                raise ValueError(f"a bonus can be combined with bonuses and numbers; got {type(term).__name__}")
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
    """The product of several bonuses, such as global term x episodic term (Table 1 of the paper).

    Examples:
        >>> import gymnasium as gym
        >>> from e3b_gym import check_bonus
        >>> from e3b_gym.bonuses import RND, FirstVisit, make_key
        >>> from e3b_gym.encoders import make_encoder
        >>> space, actions = gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(3)
        >>> rnd = RND(make_encoder(space, 16), make_encoder(space, 16))
        >>> bonus = rnd * FirstVisit(make_key("full", space))
        >>> check_bonus(bonus, space, actions)
    """

    def score(self, features: list[Any], unroll: Unroll, memory: Memories) -> Tensor:
        return self.scores(features, unroll, memory).prod(dim=0)


class Sum(_Composition):
    """The sum of several bonuses.

    Examples:
        >>> import gymnasium as gym
        >>> from e3b_gym import check_bonus
        >>> from e3b_gym.bonuses import RND, FirstVisit, make_key
        >>> from e3b_gym.encoders import make_encoder
        >>> space, actions = gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(3)
        >>> rnd = RND(make_encoder(space, 16), make_encoder(space, 16))
        >>> bonus = rnd + FirstVisit(make_key("full", space))
        >>> check_bonus(bonus, space, actions)
    """

    def score(self, features: list[Any], unroll: Unroll, memory: Memories) -> Tensor:
        return self.scores(features, unroll, memory).sum(dim=0)


class Scaled(_Composition):
    """A bonus times a constant. The losses are not scaled.

    Examples:
        >>> import gymnasium as gym
        >>> from e3b_gym import check_bonus
        >>> from e3b_gym.bonuses import FirstVisit, make_key
        >>> space, actions = gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(3)
        >>> bonus = 0.5 * FirstVisit(make_key("full", space))
        >>> check_bonus(bonus, space, actions)
    """

    def __init__(self, term: Bonus, factor: float) -> None:
        if not isinstance(factor, (int, float)):
            raise ValueError(f"a bonus can be multiplied by a bonus or a number; got {type(factor).__name__}")
        super().__init__([term])
        self.factor = float(factor)

    def score(self, features: list[Any], unroll: Unroll, memory: Memories) -> Tensor:
        return self.factor * self.scores(features, unroll, memory)[0]

    def policy_terms(self, features: list[Any], unroll: Unroll) -> tuple[Tensor, Tensor] | None:
        terms = super().policy_terms(features, unroll)
        return None if terms is None else (self.factor * terms[0], self.factor * terms[1])
