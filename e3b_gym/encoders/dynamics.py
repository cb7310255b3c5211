"""Dynamics heads: predict the action between two states (inverse), or the next state from an action (forward).

inverse:  -log p(a_t | phi(s_t), phi(s_{t+1})), one hidden layer of 256 ReLU units on both embeddings
forward:  phi(s_{t+1}) from phi(s_t) and the encoded action, one hidden layer

The inverse head is that of Henaff et al. 2022; the paper has discrete actions only. Other action spaces use the same likelihood:

| action space | encoding of an action | negative log likelihood | accuracy in [0, 1] |
|---|---|---|---|
| Discrete | one-hot | cross entropy | 1 if the most likely action is right |
| MultiDiscrete | one-hot per component | sum of cross entropies | share of components right |
| MultiBinary | bits | sum over Bernoulli bits | share of bits right |
| Box | scaled by its bounds to [-1, 1], symlog if unbounded | half squared error, summed (Gaussian of variance 1) | share of components within 0.2, a tenth of the range |
| Dict, Tuple | concatenated | sum over the parts | mean over the parts |

For uniform actions the accuracy of a random guess is 1/n, 1/n, 1/2 and 0.2. All functions take any leading dimensions.
"""  # noqa: E501 (a table row is one line)

from collections.abc import Iterator
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional as F

from e3b_gym.encoders.generic import Path, leaf_spaces, path_name
from e3b_gym.encoders.leaves import OneHot, Scale
from e3b_gym.errors import UnsupportedSpaceError
from e3b_gym.unroll import Tree

BOX_TOLERANCE = 0.2
_REMEDY = "use Box, Discrete, MultiDiscrete or MultiBinary actions, or a Dict or Tuple of these"


class Choices(nn.Module):
    """Discrete and MultiDiscrete: one categorical distribution per component; parameters are their logits."""

    def __init__(self, sizes: list[int], starts: list[int]) -> None:
        super().__init__()
        self.sizes, self.starts = sizes, starts
        self.one_hot = OneHot(sizes, starts)
        self.width = sum(sizes)

    def forward(self, action: Tensor) -> Tensor:
        return self.one_hot(action)  # type: ignore[no-any-return]

    def nll(self, logits: Tensor, action: Tensor) -> Tensor:
        total = logits.new_zeros(())
        for part, chosen, start in zip(
            torch.split(logits, self.sizes, -1), action.unbind(-1), self.starts, strict=True
        ):
            loss = F.cross_entropy(part.flatten(0, -2), (chosen.long() - start).flatten(), reduction="none")
            total = total + loss.view(chosen.shape)
        return total

    def accuracy(self, logits: Tensor, action: Tensor) -> Tensor:
        parts = zip(torch.split(logits, self.sizes, -1), action.unbind(-1), self.starts, strict=True)
        right = [part.argmax(-1) + start == chosen for part, chosen, start in parts]
        return torch.stack(right, -1).float().mean(-1)


class Bits(nn.Module):
    """MultiBinary: independent Bernoulli bits; parameters are their logits."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, action: Tensor) -> Tensor:
        return action.float()

    def nll(self, logits: Tensor, action: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(logits, action.float(), reduction="none").sum(-1)

    def accuracy(self, logits: Tensor, action: Tensor) -> Tensor:
        return ((logits > 0) == action.bool()).float().mean(-1)


class Values(nn.Module):
    """Box: a Gaussian of variance 1 on the scaled action; parameters are its means."""

    def __init__(self, space: spaces.Box) -> None:
        super().__init__()
        self.scale = Scale(space.low.ravel(), space.high.ravel())
        self.width = int(space.low.size)

    def forward(self, action: Tensor) -> Tensor:
        return self.scale(action)  # type: ignore[no-any-return]

    def nll(self, mean: Tensor, action: Tensor) -> Tensor:
        return 0.5 * (mean - self(action)).square().sum(-1)  # type: ignore[no-any-return]

    def accuracy(self, mean: Tensor, action: Tensor) -> Tensor:
        close = (mean - self(action)).abs() <= BOX_TOLERANCE
        return close.float().mean(-1)  # type: ignore[no-any-return]


class ActionCode(nn.Module):
    """Encodes actions as [..., width]; evaluates distributions over actions, given by `width` parameters."""

    def __init__(self, action_space: spaces.Space[Any]) -> None:
        super().__init__()
        self.places: list[tuple[Path, tuple[int, ...]]] = []
        parts = []
        for path, space in leaf_spaces(action_space):
            part = _make_part(space)
            if part is None or not part.width or space.shape is None:
                raise UnsupportedSpaceError(path_name("action_space", path), space, _REMEDY)
            self.places.append((path, space.shape))
            parts.append(part)
        if not parts:
            raise UnsupportedSpaceError("action_space", action_space, _REMEDY)
        self.parts = nn.ModuleList(parts)
        self.widths = [part.width for part in parts]
        self.width = sum(self.widths)

    def forward(self, action: Tree) -> Tensor:
        codes = [part(leaf) for part, leaf in zip(self.parts, self.flat_leaves(action), strict=True)]
        return codes[0] if len(codes) == 1 else torch.cat(codes, -1)  # [..., width]

    def nll(self, parameters: Tensor, action: Tree) -> Tensor:
        """Negative log likelihood [...] of `action` under `parameters` [..., width], constants dropped."""
        return torch.stack([part.nll(p, leaf) for part, p, leaf in self._split(parameters, action)]).sum(0)

    def accuracy(self, parameters: Tensor, action: Tree) -> Tensor:
        """Agreement of the most likely action with `action`, [...] in [0, 1]; see the table above."""
        return torch.stack([part.accuracy(p, leaf) for part, p, leaf in self._split(parameters, action)]).mean(0)

    def _split(self, parameters: Tensor, action: Tree) -> Iterator[tuple[Any, Tensor, Tensor]]:
        """Yields each part of the action space with its parameters and its leaf of the action."""
        leaves = self.flat_leaves(action, parameters.shape[:-1])
        return zip(self.parts, torch.split(parameters, self.widths, -1), leaves, strict=True)

    def flat_leaves(self, action: Tree, lead: torch.Size | None = None) -> list[Tensor]:
        """Returns the leaves of an action as [*lead, size]; None accepts any leading dimensions."""
        leaves = []
        for path, shape in self.places:
            leaf: Any = action
            for key in path:
                leaf = leaf[key]
            before = leaf.shape[: leaf.ndim - len(shape)]
            if leaf.shape[len(before) :] != shape or (lead is not None and before != lead):
                want = [*(lead if lead is not None else ["..."]), *shape]
                raise ValueError(f"{path_name('action', path)} must have shape {want}, got {list(leaf.shape)}")
            leaves.append(leaf.reshape(*before, -1) if shape else leaf.unsqueeze(-1))
        return leaves


def _make_part(space: spaces.Space[Any]) -> Choices | Bits | Values | None:
    if isinstance(space, spaces.Discrete):
        return Choices([int(space.n)], [int(space.start)])
    if isinstance(space, spaces.MultiDiscrete):
        return Choices([int(n) for n in space.nvec.flat], [int(start) for start in space.start.flat])
    if isinstance(space, spaces.MultiBinary):
        size = 1
        for side in space.shape:
            size *= side
        return Bits(size)
    if isinstance(space, spaces.Box):
        return Values(space)
    return None


class InverseHead(nn.Module):
    """Predicts the action from the embeddings before and after it."""

    def __init__(self, dim: int, action_space: spaces.Space[Any], hidden: int = 256) -> None:
        super().__init__()
        self.action = ActionCode(action_space)
        self.net = nn.Sequential(nn.Linear(2 * dim, hidden), nn.ReLU(), nn.Linear(hidden, self.action.width))

    def predict(self, phi: Tensor, next_phi: Tensor) -> Tensor:
        """Returns the parameters [..., width] of the distribution over actions: logits, or means for Box."""
        return self.net(torch.cat((phi, next_phi), -1))  # type: ignore[no-any-return]

    def forward(self, phi: Tensor, next_phi: Tensor, action: Tree) -> Tensor:
        """Negative log likelihood [...] of the actions, for embeddings [..., dim]."""
        return self.action.nll(self.predict(phi, next_phi), action)

    def accuracy(self, phi: Tensor, next_phi: Tensor, action: Tree) -> Tensor:
        """Share [...] in [0, 1] of the action that is predicted right; see the module's table."""
        return self.action.accuracy(self.predict(phi, next_phi), action)


class ForwardHead(nn.Module):
    """Predicts the next embedding [..., dim] from the embedding and the action."""

    def __init__(self, dim: int, action_space: spaces.Space[Any], hidden: int = 256) -> None:
        super().__init__()
        self.action = ActionCode(action_space)
        self.net = nn.Sequential(nn.Linear(dim + self.action.width, hidden), nn.ReLU(), nn.Linear(hidden, dim))

    def forward(self, phi: Tensor, action: Tree) -> Tensor:
        return self.net(torch.cat((phi, self.action(action)), -1))  # type: ignore[no-any-return]
