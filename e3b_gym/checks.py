"""check_bonus: tests a bonus against the contract that every bonus must satisfy.

    check_bonus(my_bonus, env.observation_space, env.action_space)      # raises ContractError, or returns None

The bonus scores random experience with repeated observations, episode ends and missing terminal observations. Each
requirement of the contract is one function below.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from e3b_gym.bonuses.base import Bonus, Memory
from e3b_gym.encoders import sample_rows
from e3b_gym.errors import ContractError
from e3b_gym.unroll import Tree, Unroll, tree_map

_STEPS, _ENVS, _DIFFERENT_OBSERVATIONS = 12, 4, 6


def check_bonus(
    bonus: Bonus,
    observation_space: gym.Space[Any] | None = None,
    action_space: gym.Space[Any] | None = None,
    *,
    seed: int = 0,
) -> None:
    """Checks a bonus against the contract.

    Args:
        bonus: the bonus; the checks run on copies of it.
        observation_space: observation space of one environment; not needed if the bonus has it (`built_for`).
        action_space: action space of one environment; not needed if the bonus has it.
        seed: seed of the random experience.

    Raises:
        ContractError: names the first requirement that the bonus violates.

    Examples:
        >>> from gymnasium import spaces
        >>> from e3b_gym import check_bonus
        >>> from e3b_gym.bonuses import InverseSqrtCount, make_key
        >>> observations, actions = spaces.MultiDiscrete([5, 5]), spaces.Discrete(4)
        >>> check_bonus(InverseSqrtCount(make_key("full", observations)), observations, actions)
    """
    observation_space = observation_space or bonus.observation_space
    action_space = action_space or bonus.action_space
    if observation_space is None or action_space is None:
        raise ValueError("this bonus has no spaces; call check_bonus(bonus, observation_space, action_space)")
    unroll = sample_unroll(observation_space, action_space, seed=seed)
    for requirement in REQUIREMENTS:
        requirement(copy.deepcopy(bonus), unroll)


def sample_unroll(
    observation_space: gym.Space[Any],
    action_space: gym.Space[Any],
    *,
    steps: int = _STEPS,
    envs: int = _ENVS,
    seed: int = 0,
) -> Unroll:
    """Returns random experience drawn from a few different observations.

    One step in six ends its episode; half of the terminal observations are known.
    """
    rng = np.random.default_rng(seed)
    pool = sample_rows(observation_space, _DIFFERENT_OBSERVATIONS, seed)

    def draw(*shape: int) -> Tree:
        index = torch.as_tensor(rng.integers(_DIFFERENT_OBSERVATIONS, size=shape))
        return tree_map(lambda leaf: leaf[index], pool)

    done = torch.as_tensor(rng.random((steps, envs)) < 1 / 6)
    known = done & torch.as_tensor(rng.random((steps, envs)) < 1 / 2)
    rows = int(known.sum())
    action = sample_rows(action_space, steps * envs, seed)
    choices = int(action_space.n) if isinstance(action_space, gym.spaces.Discrete) else 1
    logits = torch.as_tensor(rng.normal(size=(steps, envs, choices)), dtype=torch.float32)
    return Unroll(
        obs=draw(steps + 1, envs),
        action=action.unflatten(0, (steps, envs)),
        done=done,
        starts=torch.ones(envs, dtype=torch.bool),
        terminal_obs=draw(rows) if rows else None,
        terminal_known=known,
        policy_logits=logits,
    )


def run(bonus: Bonus, unrolls: Sequence[Unroll], memory: Memory | None = None) -> Tensor:
    """Scores consecutive unrolls, each with a new forward pass."""
    memory = memory if memory is not None else bonus.new_memory(_ENVS)
    scores = [bonus.score(bonus.embed(unroll), unroll, memory) for unroll in unrolls]
    return torch.cat(scores)


def scores_every_step(bonus: Bonus, unroll: Unroll) -> None:
    score = run(bonus, [unroll])
    if score.shape != unroll.done.shape or not score.is_floating_point():
        raise ContractError(
            f"score must be floating [T, B] = {tuple(unroll.done.shape)}; got {score.dtype} {tuple(score.shape)}"
        )
    if not bool(torch.isfinite(score).all()):
        raise ContractError("score has NaN or infinite values on ordinary observations")
    if score.requires_grad:
        raise ContractError("score must not carry gradients; decorate it with @torch.no_grad() and detach the features")


def scoring_does_not_train(bonus: Bonus, unroll: Unroll) -> None:
    before = {name: value.clone() for name, value in bonus.state_dict().items()}
    run(bonus, [unroll])
    for name, value in bonus.state_dict().items():
        if not torch.equal(value, before[name]):
            raise ContractError(f"scoring changed {name!r}; weights and statistics may only change in training")


def splitting_changes_nothing(bonus: Bonus, unroll: Unroll) -> None:
    whole = run(bonus, [unroll])
    for cut in (1, unroll.num_steps // 2, unroll.num_steps - 1):
        parts = [unroll.window(0, cut), unroll.window(cut, unroll.num_steps)]
        _same(run(bonus, parts), whole, f"splitting an unroll at step {cut} changed the bonus")
    single = [unroll.window(t, t + 1) for t in range(unroll.num_steps)]
    _same(run(bonus, single), whole, "scoring one step at a time changed the bonus")


def earlier_features_may_be_reused(bonus: Bonus, unroll: Unroll) -> None:
    cut = unroll.num_steps // 2
    one, two = unroll.window(0, cut), unroll.window(cut, unroll.num_steps)
    memory = bonus.new_memory(_ENVS)
    features = bonus.embed(one)
    first = bonus.score(features, one, memory)
    second = bonus.score(bonus.embed(two, features), two, memory)
    _same(torch.cat([first, second]), run(bonus, [unroll]), "embed(unroll, previous) changed the bonus")


def order_of_environments_changes_nothing(bonus: Bonus, unroll: Unroll) -> None:
    order = torch.tensor([2, 0, 3, 1])
    whole = run(bonus, [unroll])[:, order]
    _same(run(bonus, [unroll.columns(order)]), whole, "reordering the environments changed the bonus")


def environments_do_not_leak(bonus: Bonus, unroll: Unroll) -> None:
    if not bonus.independent_envs:
        return
    memory = bonus.new_memory(_ENVS)
    apart = [run(bonus, [unroll.columns(torch.tensor([env]))], memory) for env in range(_ENVS)]
    _same(
        torch.cat(apart, dim=1),
        run(bonus, [unroll]),
        "the bonus of one environment depends on the others, but independent_envs = True",
    )


def a_new_episode_clears_memory(bonus: Bonus, unroll: Unroll) -> None:
    if not bonus.episodic:
        return
    again = run(bonus, [unroll, unroll])[unroll.num_steps :]
    _same(again, run(bonus, [unroll]), "the bonus remembers earlier episodes, but episodic = True")


def unknown_next_observations_score_zero(bonus: Bonus, unroll: Unroll) -> None:
    score = run(bonus, [unroll])
    if bool((score[~unroll.valid] != 0).any()):
        raise ContractError("the bonus must be 0 where the terminal observation is unknown; use unroll.masked(...)")


def losses_are_scalars_with_gradients(bonus: Bonus, unroll: Unroll) -> None:
    losses = bonus.loss(bonus.embed(unroll), unroll)
    for name, loss in losses.items():
        if loss.ndim != 0 or not bool(torch.isfinite(loss)):
            raise ContractError(f"loss {name!r} must be a finite scalar; got {loss}")
    if losses:
        torch.autograd.backward(torch.stack(list(losses.values())).sum())
        gradients = [weights.grad for weights in bonus.parameters() if weights.grad is not None]
        if not gradients or not all(bool(torch.isfinite(gradient).all()) for gradient in gradients):
            raise ContractError("the losses give the weights no gradient, or one with NaN; connect them to the encoder")


def saved_memory_continues(bonus: Bonus, unroll: Unroll) -> None:
    cut = unroll.num_steps // 2
    memory, restored = bonus.new_memory(_ENVS), bonus.new_memory(_ENVS)
    run(bonus, [unroll.window(0, cut)], memory)
    file = io.BytesIO()
    torch.save(memory.state_dict(), file)
    file.seek(0)
    restored.load_state_dict(torch.load(file, weights_only=True))
    rest = [unroll.window(cut, unroll.num_steps)]
    _same(
        run(bonus, rest, restored),
        run(bonus, rest, memory),
        "a memory that was saved and loaded gives other bonuses",
    )


REQUIREMENTS: tuple[Callable[[Bonus, Unroll], None], ...] = (
    scores_every_step,
    scoring_does_not_train,
    splitting_changes_nothing,
    earlier_features_may_be_reused,
    order_of_environments_changes_nothing,
    environments_do_not_leak,
    a_new_episode_clears_memory,
    unknown_next_observations_score_zero,
    losses_are_scalars_with_gradients,
    saved_memory_continues,
)


def _same(got: Tensor, expected: Tensor, violation: str) -> None:
    """Raises ContractError with `violation` unless the bonuses agree to 1e-4 of the largest."""
    scale = float(expected.abs().max()) or 1.0
    difference = float((got - expected).abs().max())
    if difference > 1e-4 * scale:
        raise ContractError(f"{violation}: by up to {difference:.3g}, where the largest bonus is {scale:.3g}")
