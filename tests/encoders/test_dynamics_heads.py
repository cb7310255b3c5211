"""Dynamics heads: likelihoods against closed forms, and tasks in which they must learn what is controlled."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, distributions, nn

from e3b_gym.encoders import (
    ActionCode,
    Encoder,
    ForwardHead,
    InverseHead,
    make_encoder,
    sample_rows,
    seeded_init,
)
from e3b_gym.errors import UnsupportedSpaceError
from e3b_gym.unroll import tree_map

ACTIONS = {
    "discrete": spaces.Discrete(5, start=3),
    "multidiscrete": spaces.MultiDiscrete([3, 5]),
    "multidiscrete grid": spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[0, 1], [-2, 0]]),
    "bits": spaces.MultiBinary(4),
    "bit grid": spaces.MultiBinary([2, 3]),
    "box": spaces.Box(-2, 2, (3,)),
    "box matrix": spaces.Box(0, 1, (2, 2), np.float64),
    "unbounded box": spaces.Box(-np.inf, np.inf, (2,)),
    "dict": spaces.Dict(move=spaces.Discrete(4), aim=spaces.Tuple([spaces.Box(-1, 1, (2,)), spaces.MultiBinary(2)])),
}


def heads(space: spaces.Space[Any], dim: int = 6) -> tuple[InverseHead, ForwardHead]:
    with seeded_init(0):
        return InverseHead(dim, space, hidden=16), ForwardHead(dim, space, hidden=16)


@pytest.mark.parametrize("lead", [(6,), (3, 2), (3, 2, 1)])
@pytest.mark.parametrize("name", ACTIONS)
def test_leading_dimensions_are_rows(name: str, lead: tuple[int, ...]) -> None:
    space = ACTIONS[name]
    inverse, forward = heads(space)
    phi, next_phi = torch.randn(2, 6, 6, generator=torch.Generator().manual_seed(1))
    action = sample_rows(space, 6, 2)
    folded = tree_map(lambda leaf: leaf.reshape(*lead, *leaf.shape[1:]), action)
    folded_phi, folded_next = phi.view(*lead, 6), next_phi.view(*lead, 6)

    nll, score = inverse(phi, next_phi, action), inverse.accuracy(phi, next_phi, action)
    assert nll.shape == score.shape == (6,)
    assert nll.isfinite().all()
    assert ((score >= 0) & (score <= 1)).all()
    torch.testing.assert_close(inverse(folded_phi, folded_next, folded), nll.view(lead))
    torch.testing.assert_close(inverse.accuracy(folded_phi, folded_next, folded), score.view(lead))
    torch.testing.assert_close(forward(folded_phi, folded), forward(phi, action).view(*lead, 6))
    (nll.sum() + forward(phi, action).square().sum()).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in [*inverse.parameters(), *forward.parameters()])


def test_codes_of_actions() -> None:
    def code(space: spaces.Space[Any], action: Any) -> list[float]:
        return ActionCode(space)(torch.as_tensor(action)).tolist()

    assert code(spaces.Discrete(3, start=5), 6) == [0, 1, 0]
    assert code(spaces.MultiDiscrete([2, 3]), [1, 0]) == [0, 1, 1, 0, 0]
    assert code(spaces.MultiBinary(3), [1, 0, 1]) == [1, 0, 1]
    assert code(spaces.Box(np.float32([0, -4]), np.float32([10, 4])), [2.5, 4.0]) == [-0.5, 1]
    nested = ActionCode(ACTIONS["dict"])
    action = {"move": torch.tensor([2]), "aim": (torch.tensor([[-1.0, 0.5]]), torch.tensor([[1, 0]]))}
    assert nested(action).tolist() == [[0, 0, 1, 0, -1, 0.5, 1, 0]]


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**16))
def test_likelihoods_are_those_of_torch_distributions(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)

    def parameters(space: spaces.Space[Any]) -> tuple[ActionCode, Tensor, Tensor]:
        code = ActionCode(space)
        return code, 2 * torch.randn(7, code.width, generator=generator), sample_rows(space, 7, seed)

    code, logits, action = parameters(ACTIONS["discrete"])
    expected = -distributions.Categorical(logits=logits).log_prob(action - 3)
    torch.testing.assert_close(code.nll(logits, action), expected)

    code, logits, action = parameters(ACTIONS["multidiscrete"])
    first, second = (distributions.Categorical(logits=part) for part in (logits[:, :3], logits[:, 3:]))
    torch.testing.assert_close(code.nll(logits, action), -first.log_prob(action[:, 0]) - second.log_prob(action[:, 1]))

    code, logits, action = parameters(ACTIONS["bits"])
    expected = -distributions.Bernoulli(logits=logits).log_prob(action.float()).sum(-1)
    torch.testing.assert_close(code.nll(logits, action), expected)

    code, mean, action = parameters(ACTIONS["box"])
    gaussian = distributions.Normal(mean, 1.0, validate_args=False)
    constant = 1.5 * np.log(2 * np.pi)
    torch.testing.assert_close(code.nll(mean, action), -gaussian.log_prob(action / 2).sum(-1) - constant)


def test_scores_count_what_was_right() -> None:
    code = ActionCode(spaces.MultiDiscrete([2, 3]))
    logits = torch.tensor([[0.0, 1, 0, 0, 1]]).expand(3, -1)
    assert code.accuracy(logits, torch.tensor([[1, 2], [1, 0], [0, 0]])).tolist() == [1, 0.5, 0]
    code = ActionCode(spaces.MultiBinary(4))
    assert code.accuracy(torch.tensor([[1.0, 1, -1, -1]]), torch.tensor([[1, 0, 0, 0]])).tolist() == [0.75]
    code = ActionCode(spaces.Box(-10, 10, (2,)))
    assert code.accuracy(torch.zeros(1, 2), torch.tensor([[1.9, 2.1]])).tolist() == [0.5]


@pytest.mark.parametrize(
    "space", [spaces.Text(5), spaces.Tuple([]), spaces.Box(0, 1, (0,)), spaces.Sequence(spaces.Discrete(2))]
)
def test_unsupported_actions_are_named_with_a_remedy(space: spaces.Space[Any]) -> None:
    for build in (InverseHead, ForwardHead):
        with pytest.raises(UnsupportedSpaceError, match=r"action_space is .*use Box, Discrete"):
            build(4, space)
    with pytest.raises(UnsupportedSpaceError, match=r'action_space\["say"\]'):
        ActionCode(spaces.Dict(move=spaces.Discrete(2), say=spaces.Text(5)))


def test_actions_of_another_shape_are_refused() -> None:
    inverse, _ = heads(spaces.Box(-1, 1, (3,)))
    phi = torch.zeros(4, 2, 6)
    with pytest.raises(ValueError, match=r"action must have shape \[4, 2, 3\], got \[2, 4, 3\]"):
        inverse(phi, phi, torch.zeros(2, 4, 3))
    inverse, _ = heads(spaces.Discrete(3))
    with pytest.raises(ValueError, match=r"got \[4, 2, 1\]"):
        inverse(phi, phi, torch.zeros(4, 2, 1, dtype=torch.int64))


Pairs = tuple[Tensor, Tensor, Tensor]


def train(encoder: Encoder, head: InverseHead, pairs: Pairs, updates: int, batch: int = 128, seed: int = 0) -> None:
    optimiser = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=1e-3)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(updates):
        rows = torch.randint(len(pairs[0]), (batch,), generator=generator)
        obs, next_obs, action = (part[rows] for part in pairs)
        phi, next_phi = encoder(torch.cat((obs, next_obs))).chunk(2)
        optimiser.zero_grad()
        head(phi, next_phi, action).mean().backward()
        optimiser.step()


@torch.no_grad()
def accuracy(encoder: Encoder, head: InverseHead, pairs: Pairs) -> float:
    obs, next_obs, action = pairs
    return head.accuracy(encoder(obs), encoder(next_obs), action).mean().item()


CONTROLS: dict[str, tuple[spaces.Space[Any], Callable[[Any], Any], float]] = {
    "discrete": (
        spaces.Discrete(5, start=3),
        lambda a: np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]])[a - 3],
        0.93,
    ),
    "multidiscrete": (spaces.MultiDiscrete([3, 3]), lambda a: a - 1.0, 0.95),
    "bits": (spaces.MultiBinary(2), lambda a: 2.0 * a - 1, 0.97),
    "box": (spaces.Box(-2, 2, (2,)), lambda a: a / 2, 0.93),
}


def noisy_vectors(space: spaces.Space[Any], move: Callable[[Any], Any], rows: int, seed: int) -> Pairs:
    """A position moved by the action, next to 16 numbers of fresh noise."""
    rng = np.random.default_rng(seed)
    action = sample_rows(space, rows, seed)
    position = rng.uniform(-5, 5, (rows, 2))

    def observe(position: Any) -> Tensor:
        return torch.tensor(np.hstack([position, rng.standard_normal((rows, 16))]), dtype=torch.float32)

    return observe(position), observe(position + move(action.numpy())), action


@torch.no_grad()
def _moving_over_noise(encoder: Encoder, pairs: Pairs) -> float:
    """How far another position carries the embedding, over how far other noise does."""
    position, *_ = pairs
    noise, moved = position.clone(), position.clone()
    noise[:, 2:], moved[:, :2] = noise[:, 2:].roll(1, 0), moved[:, :2].roll(1, 0)
    by_noise, by_moving = (encoder(other).sub(encoder(position)).norm(dim=1).mean() for other in (noise, moved))
    return float(by_moving / by_noise)


@pytest.mark.parametrize("name", CONTROLS)
def test_the_inverse_head_learns_what_the_agent_controls(name: str) -> None:
    space, move, bar = CONTROLS[name]
    encoder = make_encoder(spaces.Box(-np.inf, np.inf, (18,)), 64, hidden=128, seed=1)
    with seeded_init(2):
        head = InverseHead(64, space)
    held_out = noisy_vectors(space, move, 500, seed=1)
    assert accuracy(encoder, head, held_out) < 0.65  # it cannot know yet
    before = _moving_over_noise(encoder, held_out)
    train(encoder, head, noisy_vectors(space, move, 8000, seed=0), updates=600)
    assert accuracy(encoder, head, held_out) > bar

    # Trained embeddings follow the position more than noise, and more so than at the start.
    assert _moving_over_noise(encoder, held_out) > max(1.0, 1.5 * before)


def boards(rows: int, seed: int) -> Pairs:
    """7x7x3 uint8 boards of small symbols, like MiniGrid's, on which symbol 10 moves one cell per action."""
    rng = np.random.default_rng(seed)
    action = rng.integers(0, 4, rows)
    y, x = rng.integers(1, 6, (2, rows))
    dy, dx = np.array([[1, 0], [-1, 0], [0, 1], [0, -1]])[action].T
    obs, next_obs = np.ones((2, rows, 7, 7, 3), np.uint8)
    obs[np.arange(rows), y, x, 0], next_obs[np.arange(rows), y + dy, x + dx, 0] = 10, 10
    return torch.from_numpy(obs), torch.from_numpy(next_obs), torch.from_numpy(action)


def pictures(rows: int, seed: int) -> Pairs:
    """Noisy 36x36 uint8 pictures in which a bright 6x6 square moves 6 pixels per action."""
    rng = np.random.default_rng(seed)
    action = rng.integers(0, 4, rows)
    y, x = rng.integers(6, 25, (2, rows))
    dy, dx = 6 * np.array([[1, 0], [-1, 0], [0, 1], [0, -1]])[action].T
    obs, next_obs = rng.integers(0, 80, (2, rows, 36, 36, 1)).astype(np.uint8)
    for i in range(rows):
        obs[i, y[i] : y[i] + 6, x[i] : x[i] + 6] = 255
        next_obs[i, y[i] + dy[i] : y[i] + dy[i] + 6, x[i] + dx[i] : x[i] + dx[i] + 6] = 255
    return torch.from_numpy(obs), torch.from_numpy(next_obs), torch.from_numpy(action)


@pytest.mark.parametrize(("make_pairs", "shape"), [(boards, (7, 7, 3)), (pictures, (36, 36, 1))])
def test_control_is_learnt_from_grids(make_pairs: Callable[[int, int], Pairs], shape: tuple[int, ...]) -> None:
    encoder = make_encoder(spaces.Box(0, 255, shape, np.uint8), 64, hidden=128, seed=11)
    with seeded_init(111):
        head = InverseHead(64, spaces.Discrete(4))
    pairs, held_out = make_pairs(4000, 0), make_pairs(300, 1)
    # Over four seeds pictures take 50 updates, boards 150 to 350.
    for seed in range(10):
        train(encoder, head, pairs, updates=100, batch=32, seed=seed)
        if accuracy(encoder, head, held_out) > 0.9:
            return
    pytest.fail(f"accuracy {accuracy(encoder, head, held_out):.2f} after 1,000 updates")


def test_the_forward_head_learns_the_effect_of_actions() -> None:
    space = spaces.Discrete(5, start=3)
    moves = torch.tensor([[0.0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]])
    with seeded_init(0):
        head = ForwardHead(2, space, hidden=64)
    optimiser = torch.optim.Adam(head.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(400):
        phi = 3 * torch.randn(256, 2, generator=generator)
        action = torch.randint(3, 8, (256,), generator=generator)
        loss = nn.functional.mse_loss(head(phi, action), phi + moves[action - 3])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.02  # ignoring the action leaves 0.32
