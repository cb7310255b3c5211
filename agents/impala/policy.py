"""The policy: trunk -> LSTM -> logits and values.

The value function has one output, or two where the bonus has its own value.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from agents.impala.lstm import ResetLSTM
from e3b_gym.encoders import Networks
from e3b_gym.unroll import Tree, kept_as, tree_leaves, tree_map

State = tuple[Tensor, Tensor]  # h and c, each [layers, B, H]


class Output(NamedTuple):
    """Outputs of the policy for an unroll.

    Attributes:
        logits: [T, B, A].
        values: [T, B, heads].
        state: state of the LSTM after the last row.
        final_values: [K, heads], of the terminal observations that were passed, without gradients; None without them.
    """

    logits: Tensor
    values: Tensor
    state: State
    final_values: Tensor | None = None


class Finals(NamedTuple):
    """Terminal observations of an unroll whose values are needed.

    Attributes:
        obs: tree of [K, ...].
        steps: row and column of the steps that arrived there, [K] each: steps (t, b) of an unroll.
    """

    obs: Tree
    steps: tuple[Tensor, Tensor]


@torch.no_grad()
def act(
    policy: Policy, obs: Tree, starts: NDArray[np.bool_], state: State, generator: torch.Generator | None = None
) -> tuple[NDArray[np.int64], Output]:
    """Actions [N] for one step of N environments, and the full output of the policy.

    Args:
        policy: whose actions.
        obs: tree of numpy arrays [N, ...].
        starts: [N], the observation opens an episode.
        state: state of the LSTM before it.
        generator: draws the actions; None takes the most probable ones.
    """
    device = policy.device
    rows = tree_map(lambda leaf: _as_row(leaf).to(device), obs)
    first = torch.from_numpy(np.asarray(starts, np.bool_))[None].to(device)
    out = policy(rows, first, (state[0].to(device), state[1].to(device)))
    logits = out.logits[0].cpu()
    actions = logits.argmax(-1) if generator is None else sample_actions(logits, generator)
    return actions.numpy(), out


def as_batch(obs: Tree, space: gym.Space[Any]) -> tuple[Tree, bool]:
    """`obs` with a first axis for environments, tree of [N, ...], and whether it had one before."""
    part: Any = space
    leaf = obs
    while isinstance(part, (gym.spaces.Dict, gym.spaces.Tuple)):
        key: Any = next(iter(part.spaces)) if isinstance(part, gym.spaces.Dict) else 0
        leaf, part = leaf[key], part.spaces[key]
    axes, single = np.ndim(leaf), len(part.shape)
    if axes not in (single, single + 1):
        raise ValueError(f"an observation has {single} axes, or one more for a batch; got the shape {np.shape(leaf)}")
    return (obs, True) if axes > single else (tree_map(lambda part: np.asarray(part)[None], obs), False)


def _as_row(leaf: Any) -> Tensor:
    array = np.asarray(leaf)
    return torch.from_numpy(np.ascontiguousarray(array.astype(kept_as(array.dtype), copy=False)))[None]


def sample_actions(logits: Tensor, generator: torch.Generator) -> Tensor:
    """Actions [N] drawn from the policy with logits [N, A].

    The same draws as torch.multinomial, which raises an error for NaN. Here NaN gives some action, and the learner,
    which gets the logits, raises the error with the cause.
    """
    noise = torch.empty_like(logits).exponential_(generator=generator)
    return (logits.softmax(-1) / noise).argmax(-1)


class Policy(nn.Module):
    """A recurrent actor-critic for discrete actions.

    Args:
        networks: what to build.
        observation_space, action_space: spaces of one environment.
        value_heads: how many value functions.
    """

    def __init__(
        self,
        networks: Networks,
        observation_space: gym.Space[object],
        action_space: gym.Space[object],
        value_heads: int = 1,
    ) -> None:
        super().__init__()
        if not isinstance(action_space, gym.spaces.Discrete) or action_space.start != 0:
            raise ValueError(
                f"IMPALA acts in Discrete action spaces that count from 0; got {action_space}. Use PPO for others"
            )
        self.trunk = networks.trunk(observation_space)
        self.dim = int(self.trunk.dim)  # type: ignore[arg-type]
        self.lstm = ResetLSTM(self.dim, networks.lstm, networks.lstm_layers)
        self.heads = nn.Linear(networks.lstm, int(action_space.n) + value_heads)
        self.num_actions = int(action_space.n)
        extra = networks.action_scores
        self.action_scores = None if extra is None else extra(observation_space, self.num_actions, networks.lstm)

    @property
    def device(self) -> torch.device:
        return self.heads.weight.device

    def forward(self, obs: Tree, starts: Tensor, state: State, finals: Finals | None = None) -> Output:
        """Over an unroll.

        Args:
            obs: tree of [T, B, ...].
            starts: [T, B] bool, the row opens an episode.
            state: state of the LSTM before row 0.
            finals: terminal observations, each valued with the LSTM's state after the row that its step left.
        """
        shape = tree_leaves(obs)[0].shape[:2]
        features = self.encode(tree_map(lambda leaf: leaf.flatten(0, 1), obs)).reshape(*shape, self.dim)  # [T, B, dim]
        hidden, (h, c) = self.lstm.trajectory(features, starts, state)  # [T, B, H]
        logits, values = self.heads(hidden).split([self.num_actions, self.heads.out_features - self.num_actions], -1)
        if self.action_scores is not None:
            logits = logits + self.action_scores(obs, hidden)

        def state_after(row: Any) -> State:
            return torch.stack([rows[row] for rows in h]), torch.stack([rows[row] for rows in c])

        final_values = None if finals is None else self._values_after(finals.obs, state_after(finals.steps))
        return Output(logits, values, state_after(-1), final_values)

    @torch.no_grad()
    def _values_after(self, obs: Tree, state: State) -> Tensor:
        """V(obs) [K, heads] for obs, tree of [K, ...], each with its own LSTM state before it."""
        one_row = tree_map(lambda leaf: leaf[None], obs)
        count = len(tree_leaves(obs)[0])
        values: Tensor = self.forward(
            one_row, torch.zeros(1, count, dtype=torch.bool, device=self.device), state
        ).values[0]
        return values

    def encode(self, obs: Tree) -> Tensor:
        """The features below the LSTM: tree of [rows, ...] -> [rows, dim]. The paper's "policy encoder"."""
        return self.trunk(obs)  # type: ignore[no-any-return]

    def initial_state(self, batch: int) -> State:
        zeros = torch.zeros(self.lstm.num_layers, batch, self.lstm.hidden_size, device=self.device)
        return zeros, zeros.clone()

    def remember_rows(self) -> None:
        """Lets the trunk cache its outputs while acting, until `weights_changed`."""
        for part in self.trunk.modules():
            if hasattr(part, "memoise"):
                part.memoise = True  # type: ignore[assignment]

    def weights_changed(self) -> None:
        """Must be called after the weights of an acting policy were replaced."""
        for part in self.trunk.modules():
            if callable(clear := getattr(part, "clear_memo", None)):
                clear()
