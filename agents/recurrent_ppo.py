"""RecurrentPPO of sb3-contrib with the same results and without its Python loop over time.

contrib cuts a minibatch into sequences, pads them to the longest and, because each sequence may begin with an
episode, steps the LSTM once per time step in Python; every step then adds its own full-size weight gradient. Here

    h_t, c_t = LSTM(x_t, (1 - start_t) h_{t-1}, (1 - start_t) c_{t-1})

runs over the real rows of a minibatch in one call: a sequence can only start an episode in its first row, so a reset
is a mask on the initial state. No row is padded: the buffer hands out sequences back to back with their lengths.

Everything else (losses, minibatch order, random numbers, parameter names, saved files) is contrib's own code. Where
dropping the padding could change results (batch norm, dropout, an overridden `evaluate_actions`), minibatches stay
padded and one nn.LSTM call serves; where an episode starts in mid-sequence, or the LSTM has dropout or two
directions, contrib's loop runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import sb3_contrib
import torch as th
from sb3_contrib.common.recurrent.buffers import RecurrentDictRolloutBuffer, RecurrentRolloutBuffer
from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
from sb3_contrib.common.recurrent.type_aliases import (
    RecurrentDictRolloutBufferSamples,
    RecurrentRolloutBufferSamples,
    RNNStates,
)
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from agents.recurrent_lstm import is_plain, lstm_sequences, lstm_step

__all__ = ["FusedLstmPolicy", "RecurrentPPO", "SequenceStates"]


class SequenceStates(NamedTuple):
    """Initial states of sequences that lie back to back, in place of contrib's (hidden, cell) of padded ones."""

    hidden: th.Tensor  # [layers, S, H]
    cell: th.Tensor  # [layers, S, H]
    lengths: np.ndarray  # [S], sum N


class FusedLstmPolicy(RecurrentActorCriticPolicy):
    """Any recurrent policy of contrib, with `_process_sequence` in one call per batch."""

    @staticmethod
    def _process_sequence(features, lstm_states, episode_starts, lstm):
        """contrib's contract; with SequenceStates the rows come unpadded and the new states are not worked out."""
        if isinstance(lstm_states, SequenceStates):
            hidden, cell, lengths = lstm_states
            keep = 1.0 - episode_starts[np.cumsum(lengths) - lengths][:, None]  # [S, 1]
            return lstm_sequences(lstm, features, keep * hidden, keep * cell, lengths), (hidden, cell)
        hidden, cell = lstm_states
        starts = episode_starts.reshape(hidden.shape[1], -1)  # [S, L]
        if not is_plain(lstm) or starts[:, 1:].any():
            return RecurrentActorCriticPolicy._process_sequence(features, lstm_states, episode_starts, lstm)
        keep = 1.0 - starts[:, :1]
        if starts.shape[1] == 1:
            return lstm_step(lstm, features, keep * hidden, keep * cell)
        sequence = features.reshape(*starts.shape, lstm.input_size).swapaxes(0, 1)  # [L, S, F]
        out, states = lstm(sequence, (keep * hidden, keep * cell))
        return out.swapaxes(0, 1).flatten(0, 1), states


class _RowSamples:
    """A minibatch's sequences back to back instead of padded; rows, order and random numbers are contrib's."""

    def _get_samples(self, batch_inds: np.ndarray, env_change: np.ndarray, env: Any = None) -> Any:
        starts = np.logical_or(self.episode_starts[batch_inds], env_change[batch_inds]).ravel()
        starts[0] = True
        first = np.flatnonzero(starts)
        lengths = np.diff(first, append=len(batch_inds))

        def states(hidden: np.ndarray, cell: np.ndarray) -> SequenceStates:
            at_start = (array[batch_inds[first]].swapaxes(0, 1) for array in (hidden, cell))  # [layers, S, H]
            return SequenceStates(*(self.to_torch(array).contiguous() for array in at_start), lengths)

        def rows(array: np.ndarray) -> th.Tensor:
            return self.to_torch(array[batch_inds])

        if isinstance(self.observations, dict):
            observations = {key: rows(value) for key, value in self.observations.items()}
        else:
            observations = rows(self.observations)
        scalars = (self.values, self.log_probs, self.advantages, self.returns)
        return self.samples_class(
            observations,
            rows(self.actions),
            *(rows(array).flatten() for array in scalars),
            RNNStates(
                states(self.hidden_states_pi, self.cell_states_pi), states(self.hidden_states_vf, self.cell_states_vf)
            ),
            rows(self.episode_starts).flatten(),
            th.ones(len(batch_inds), device=self.device),
        )


class _RowBuffer(_RowSamples, RecurrentRolloutBuffer):
    samples_class = RecurrentRolloutBufferSamples


class _DictRowBuffer(_RowSamples, RecurrentDictRolloutBuffer):
    samples_class = RecurrentDictRolloutBufferSamples


@cache
def _fused(policy_class: type[RecurrentActorCriticPolicy]) -> type[RecurrentActorCriticPolicy]:
    """policy_class with FusedLstmPolicy slipped in just before contrib's base class, so that overrides keep winning."""
    if policy_class is RecurrentActorCriticPolicy:
        return FusedLstmPolicy
    if not issubclass(policy_class, RecurrentActorCriticPolicy) or issubclass(policy_class, FusedLstmPolicy):
        return policy_class
    return type(policy_class.__name__, (policy_class, FusedLstmPolicy), {"__module__": policy_class.__module__})


def _takes_rows(policy: RecurrentActorCriticPolicy) -> bool:
    """Whether dropping the padding leaves results alone: contrib's evaluation, no layer that mixes or draws rows."""
    kind = type(policy)
    return (
        kind.evaluate_actions is RecurrentActorCriticPolicy.evaluate_actions
        and kind._process_sequence is FusedLstmPolicy._process_sequence
        and all(is_plain(m) for m in policy.modules() if isinstance(m, nn.LSTM))
        and not any(isinstance(m, (_BatchNorm, _DropoutNd)) for m in policy.modules())
    )


@contextmanager
def _fused_adam(optimizer: th.optim.Optimizer) -> Iterator[None]:
    """Step Adam in one kernel meanwhile; the flag is put back so that saved optimisers stay as contrib writes them."""
    groups = [
        group
        for group in optimizer.param_groups
        if type(optimizer) in (th.optim.Adam, th.optim.AdamW)
        and not any(group.get(flag) for flag in ("fused", "foreach", "capturable", "differentiable"))
        and all(p.device.type == "cpu" and p.is_floating_point() for p in group["params"])
    ]
    saved = [group["fused"] for group in groups]
    for group in groups:
        group["fused"] = True
    try:
        yield
    finally:
        for group, flag in zip(groups, saved, strict=True):
            group["fused"] = flag


class RecurrentPPO(sb3_contrib.RecurrentPPO):
    """sb3_contrib.RecurrentPPO: same arguments, same results up to rounding, saved files that either class loads."""

    def _setup_model(self) -> None:
        declared = self.policy_class
        self.policy_class = _fused(declared)
        try:
            super()._setup_model()
        finally:
            self.policy_class = declared  # what a saved file names
        if _takes_rows(self.policy):
            buffer, buffer_class = self.rollout_buffer, _RowBuffer
            if isinstance(buffer, RecurrentDictRolloutBuffer):
                buffer_class = _DictRowBuffer
            self.rollout_buffer = buffer_class(
                self.n_steps,
                self.observation_space,
                self.action_space,
                buffer.hidden_state_shape,
                self.device,
                gamma=self.gamma,
                gae_lambda=self.gae_lambda,
                n_envs=self.n_envs,
            )

    def train(self) -> None:
        with _fused_adam(self.policy.optimizer):
            super().train()
