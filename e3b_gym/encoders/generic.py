"""An encoder phi for any Gymnasium observation space, and the check of a user's own encoder.

phi(s) = sqrt(dim) v / |v|,   v = W2 relu(W1 [leaf features])

Every leaf of the observation tree becomes flat features, these are concatenated, and an MLP maps them to `dim` numbers.
phi of Henaff et al. 2022 ends in a linear layer for VizDoom and in a ReLU for MiniHack, in the authors' later code in
LayerNorm. Here phi can point in any direction and has a fixed length: otherwise inverse-dynamics training inflates a few
directions thirtyfold until they dominate its norm (docs/defaults.md has the measurement). Networks other than phi
(policy, RND) end in the linear layer, and have a second hidden layer on vectors.

| leaf | features |
|---|---|
| Box, half range <= 1000 | scaled by its bounds to [-1, 1], element by element |
| Box, unbounded or wider | symlog(x) = sign(x) log(1 + abs(x)) |
| Box, rank 3 (or 4: stacked frames first) | convolutions; channels first or last is inferred from the shape; scaled to [0, 1], uint8 by 255 |
| Box, rank 2 | integers, or bounded floats with both sides >= 16: an image with one channel; otherwise a vector |
| Box of integers, rank 2 to 4, other than uint8 0..255 with a side >= 32 | a grid of symbols: a table of embeddings per channel (values outside the bounds are clamped), then convolutions where a side is over 10. MiniGrid's 0..10 divided by 255 is hard to learn from (random policy in DoorKey-8x8, 60 updates of 512 pairs, 3 seeds: inverse accuracy .29 to .32, with symbols .48 to .49, chance is 1/7) |
| Box thinner than 3, rank 1, rank > 4 | a vector, as in the first two rows |
| Discrete, MultiDiscrete | one-hot up to 1,024 values in total, embeddings up to 65,536, beyond that binary digits |
| MultiBinary | a Box from 0 to 1 |
| Dict, Tuple | their leaves, concatenated |

There are no running statistics: an embedding is a pure function of the observation and the weights.
"""  # noqa: E501 (a table row is one line)

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, pairwise
from typing import Any, TypeAlias

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from e3b_gym.encoders.leaves import Board, Grid, make_leaf
from e3b_gym.errors import NonFiniteError, UnsupportedSpaceError
from e3b_gym.unroll import Tree, tree_leaves, tree_map

Path: TypeAlias = tuple[str | int, ...]

_REMEDY = (
    "drop it with gymnasium.wrappers.FilterObservation, convert it to numbers with "
    "gymnasium.wrappers.TransformObservation, or pass your own encoder if its samples are numeric arrays"
)


class Encoder(nn.Module):
    """Maps an observation tree, each leaf [rows, *leaf_shape], to embeddings [rows, dim] in float32."""

    dim: int

    def forward(self, obs: Tree) -> Tensor:
        raise NotImplementedError


class SpaceEncoder(Encoder):
    """The default encoder of an observation space; see the table above. Build it with `make_encoder`."""

    def __init__(self, observation_space: spaces.Space[Any], dim: int, hidden: int, phi: bool) -> None:
        super().__init__()
        self.dim = dim
        self.places: list[tuple[Path, tuple[int, ...]]] = []
        leaves = []
        for path, space in leaf_spaces(observation_space):
            leaf = make_leaf(space)
            if leaf is None or space.shape is None:
                raise UnsupportedSpaceError(path_name("observation_space", path), space, _REMEDY)
            if leaf.width:
                self.places.append((path, space.shape))
                leaves.append(leaf)
        if not leaves:
            raise UnsupportedSpaceError("observation_space", observation_space, "it holds no numbers to embed")
        self.leaves = nn.ModuleList(leaves)
        seen = any(isinstance(leaf, (Board, Grid)) for leaf in leaves)
        sizes = [sum(leaf.width for leaf in leaves)] + [hidden] * (1 if seen or phi else 2)
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(sizes):
            layers += [nn.Linear(inputs, outputs), nn.ReLU(inplace=True)]
        layers.append(nn.Linear(sizes[-1], dim))
        if phi:
            layers.append(nn.RMSNorm(dim, elementwise_affine=False))
        self.trunk = nn.Sequential(*layers)
        if seen:
            he_init(self)

    def forward(self, obs: Tree) -> Tensor:
        features = []
        for (path, shape), leaf in zip(self.places, self.leaves, strict=True):
            x: Any = obs
            for key in path:
                x = x[key]
            if x.shape[1:] != shape:
                where, want, got = path_name("observation", path), ["rows", *shape], list(x.shape)
                raise ValueError(f"{where} must have shape {want}, got {got}; pass the batch the space describes")
            features.append(leaf(x))
        flat = features[0] if len(features) == 1 else torch.cat(features, 1)  # [rows, features]
        return self.trunk(flat)  # type: ignore[no-any-return]


def he_init(*networks: nn.Module, zero_bias: bool = True) -> None:
    """Initialises as He et al. 2015: every layer keeps the variance of its input through the ReLU.

    PyTorch's default reduces the variance to a sixth in every layer. Two grids often differ in one cell of fifty:
    inverse dynamics then stays at chance for hundreds of updates.

    Args:
        networks: their linear and convolutional layers, in the order of `modules()`.
        zero_bias: set the biases to zero; False keeps them.
    """
    for layer in chain.from_iterable(network.modules() for network in networks):
        if isinstance(layer, (nn.Linear, nn.Conv1d, nn.Conv2d)):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if zero_bias and layer.bias is not None:
                nn.init.zeros_(layer.bias)


class ModuleEncoder(Encoder):
    """A user's module with the `Encoder` interface; build it with `as_encoder`."""

    def __init__(self, module: nn.Module, dim: int) -> None:
        super().__init__()
        self.module = module
        self.dim = dim

    def forward(self, obs: Tree) -> Tensor:
        return self.module(obs).float()  # type: ignore[no-any-return]


def make_encoder(
    observation_space: spaces.Space[Any],
    dim: int = 256,
    *,
    hidden: int = 256,
    seed: int | None = None,
    phi: bool = True,
) -> Encoder:
    """Builds an encoder for any observation space that consists of the spaces in the table above.

    Args:
        observation_space: Space of one environment.
        dim: Length of the embedding.
        hidden: Units of each hidden layer after the leaves.
        seed: Seed of the initial weights; torch's global generator is not changed. None: the weights are drawn from
            the global generator, like those of any module.
        phi: True for an embedding of fixed length; False for a network that ends in a linear layer.

    Raises:
        UnsupportedSpaceError: Names the part of the space that cannot be embedded.

    Examples:
        >>> import torch
        >>> from gymnasium import spaces
        >>> from e3b_gym.encoders import make_encoder
        >>> encoder = make_encoder(spaces.Box(-1.0, 1.0, (3,)), dim=8, seed=0)
        >>> encoder(torch.zeros(5, 3)).shape  # five observations
        torch.Size([5, 8])
    """
    if dim < 1 or hidden < 1:
        raise ValueError(f"dim and hidden must be at least 1, got dim={dim} and hidden={hidden}")
    with seeded_init(seed):
        return SpaceEncoder(observation_space, dim, hidden, phi)


def as_encoder(module: nn.Module, observation_space: spaces.Space[Any]) -> Encoder:
    """Checks a user's module on two sampled observations and returns it as an `Encoder` with its `dim`.

    The module gets unscaled observations (a tree of uint8, int64, float32 ... tensors, each [rows, *leaf_shape]) and
    must return floats [rows, dim]. The check runs in evaluation mode, so normalisation statistics do not change.
    """
    weight = next(module.parameters(), None)
    batch = sample_rows(observation_space, 2, seed=0)
    if weight is not None:
        batch = tree_map(lambda leaf: leaf.to(weight.device), batch)
    training = {part: part.training for part in module.modules()}
    module.eval()
    try:
        with torch.no_grad():
            phi = module(batch)
    except Exception as error:
        raise ValueError(
            f"the encoder {type(module).__name__} failed on two observations ({_describe(batch)}): "
            f"{type(error).__name__}: {error}; "
            "it gets the observations batched, unscaled and in the environment's dtype"
        ) from error
    finally:
        for part, mode in training.items():
            part.training = mode
    _check_embedding(type(module).__name__, phi)
    if isinstance(module, Encoder):
        return module
    return ModuleEncoder(module, int(phi.shape[1]))


def _describe(tree: Tree) -> str:
    return ", ".join(f"{leaf.dtype} {list(leaf.shape)}" for leaf in tree_leaves(tree))


def _check_embedding(name: str, phi: object) -> None:
    wanted = f"the encoder {name} must return a float tensor [rows, dim]; for two observations it returned"
    if not isinstance(phi, Tensor):
        raise ValueError(f"{wanted} {type(phi).__name__}; return the embedding alone")
    if phi.ndim != 2:
        raise ValueError(
            f"{wanted} shape {list(phi.shape)}; flatten all dimensions after the first, e.g. with nn.Flatten()"
        )
    if phi.shape[0] != 2 or phi.shape[1] < 1:
        raise ValueError(f"{wanted} shape {list(phi.shape)}; keep the first dimension, one row per observation")
    if not phi.is_floating_point():
        raise ValueError(f"{wanted} dtype {phi.dtype}; return floats, which can be trained")
    if not bool(phi.isfinite().all()):
        raise NonFiniteError(
            f"{wanted} NaN or infinity; scale the observations inside the module (symlog, bounds, 1/255)"
        )


def sample_rows(space: spaces.Space[Any], rows: int, seed: int) -> Tree:
    """Returns a tree of samples, each leaf [rows, *leaf_shape]; does not advance the generator of `space`."""
    space = copy.deepcopy(space)
    space.seed(seed)
    samples = [space.sample() for _ in range(rows)]

    def stack(part: spaces.Space[Any], values: list[Any], path: Path) -> Tree:
        if isinstance(part, spaces.Dict):
            return {key: stack(sub, [v[key] for v in values], (*path, key)) for key, sub in part.spaces.items()}
        if isinstance(part, spaces.Tuple):
            return tuple(stack(sub, [v[i] for v in values], (*path, i)) for i, sub in enumerate(part.spaces))
        if part.shape is None or part.dtype is None or part.dtype.kind not in "biuf":
            raise UnsupportedSpaceError(path_name("observation_space", path), part, _REMEDY)
        return torch.from_numpy(np.asarray(values, dtype=part.dtype).reshape(rows, *part.shape))

    return stack(space, samples, ())


def leaf_spaces(space: spaces.Space[Any], path: Path = ()) -> Iterator[tuple[Path, spaces.Space[Any]]]:
    """Yields the leaves of nested Dict and Tuple spaces, each with its path of keys."""
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            yield from leaf_spaces(part, (*path, key))
    elif isinstance(space, spaces.Tuple):
        for index, part in enumerate(space.spaces):
            yield from leaf_spaces(part, (*path, index))
    else:
        yield path, space


def path_name(root: str, path: Path) -> str:
    """Returns the path as a Python expression, e.g. `observation_space["camera"][0]`."""
    return root + "".join(f'["{key}"]' if isinstance(key, str) else f"[{key}]" for key in path)


@contextmanager
def seeded_init(seed: int | None) -> Iterator[None]:
    """Context in which torch's CPU generator is seeded with `seed`; its state is restored at exit. None: no effect."""
    if seed is None:
        yield
        return
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
