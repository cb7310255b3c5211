"""RecurrentPPO of sb3-contrib with the same results and without its Python loop over time.

contrib splits a minibatch into sequences, pads them to the longest one and, because each sequence may begin with an
episode, calls the LSTM once per time step in Python; each call adds a full-size weight gradient. Here

    h_t, c_t = LSTM(x_t, (1 - start_t) h_{t-1}, (1 - start_t) c_{t-1})

runs over the real rows of a minibatch in one call: a sequence can only start an episode in its first row, so a reset
is a mask on the initial state. No row is padded: the buffer concatenates the sequences and adds their lengths.

Everything else (losses, minibatch order, random numbers, parameter names, saved files) is contrib's own code. Where
dropping the padding could change results (batch norm, dropout, an overridden `evaluate_actions`), minibatches stay
padded and one nn.LSTM call processes them; where an episode starts in mid-sequence, or the LSTM has dropout or two
directions, contrib's loop runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import sb3_contrib
import torch as th
from gymnasium import spaces
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

from e3b_gym.encoders.lstm import Indices, lstm_sequences, lstm_step

__all__ = ["FusedLstmPolicy", "RecurrentPPO", "SequenceStates"]


class SequenceStates(NamedTuple):
    """Initial states of concatenated sequences, in place of contrib's (hidden, cell) of padded ones."""

    hidden: th.Tensor  # [layers, S, H]
    cell: th.Tensor  # [layers, S, H]
    lengths: Indices  # [S], sum N


def _is_plain(lstm: nn.LSTM) -> bool:
    """Whether one call over time equals one call per step (dropout would draw other random numbers)."""
    return not (lstm.bidirectional or lstm.batch_first or lstm.dropout or lstm.proj_size)


class FusedLstmPolicy(RecurrentActorCriticPolicy):
    """Any recurrent policy of contrib, with `_process_sequence` in one call per batch."""

    @staticmethod
    def _process_sequence(
        features: th.Tensor, lstm_states: Any, episode_starts: th.Tensor, lstm: nn.LSTM
    ) -> tuple[th.Tensor, Any]:
        """As in contrib; with SequenceStates the rows are not padded and the new states are not computed."""
        if isinstance(lstm_states, SequenceStates):
            hidden, cell, lengths = lstm_states
            keep = 1.0 - episode_starts[np.cumsum(lengths) - lengths][:, None]  # [S, 1]
            return lstm_sequences(lstm, features, keep * hidden, keep * cell, lengths), (hidden, cell)
        hidden, cell = lstm_states
        starts = episode_starts.reshape(hidden.shape[1], -1)  # [S, L]
        if not _is_plain(lstm) or starts[:, 1:].any():
            return RecurrentActorCriticPolicy._process_sequence(features, lstm_states, episode_starts, lstm)
        keep = 1.0 - starts[:, :1]
        if starts.shape[1] == 1:
            return lstm_step(lstm, features, keep * hidden, keep * cell)
        sequence = features.reshape(*starts.shape, lstm.input_size).swapaxes(0, 1)  # [L, S, F]
        out, states = lstm(sequence, (keep * hidden, keep * cell))
        return out.swapaxes(0, 1).flatten(0, 1), states


def _row_fields(
    buffer: RecurrentRolloutBuffer | RecurrentDictRolloutBuffer, batch_inds: Indices, env_change: Any
) -> Any:
    """The fields of contrib's samples, its rows in its order, with concatenated instead of padded sequences."""
    starts = np.logical_or(buffer.episode_starts[batch_inds], env_change[batch_inds]).ravel()
    starts[0] = True
    first = np.flatnonzero(starts)
    lengths = np.diff(first, append=len(batch_inds))

    def rows(array: npt.NDArray[Any]) -> th.Tensor:
        return buffer.to_torch(array[batch_inds])

    def states(hidden: npt.NDArray[Any], cell: npt.NDArray[Any]) -> SequenceStates:
        at = batch_inds[first]
        h_0, c_0 = buffer.to_torch(hidden[at]), buffer.to_torch(cell[at])  # [S, layers, H]
        return SequenceStates(h_0.swapaxes(0, 1), c_0.swapaxes(0, 1), lengths)

    observations = buffer.observations
    return {
        "observations": {key: rows(value) for key, value in observations.items()}
        if isinstance(observations, dict)
        else rows(observations),
        "actions": rows(buffer.actions),
        "old_values": rows(buffer.values).flatten(),
        "old_log_prob": rows(buffer.log_probs).flatten(),
        "advantages": rows(buffer.advantages).flatten(),
        "returns": rows(buffer.returns).flatten(),
        "lstm_states": RNNStates(
            pi=states(buffer.hidden_states_pi, buffer.cell_states_pi),  # type: ignore[arg-type]
            vf=states(buffer.hidden_states_vf, buffer.cell_states_vf),  # type: ignore[arg-type]
        ),
        "episode_starts": rows(buffer.episode_starts).flatten(),
        "mask": th.ones(len(batch_inds), device=buffer.device),
    }


class RowBuffer(RecurrentRolloutBuffer):
    """RecurrentRolloutBuffer whose minibatches are not padded."""

    def _get_samples(  # type: ignore[override]  # contrib's own signature
        self, batch_inds: Any, env_change: Any, env: Any = None
    ) -> RecurrentRolloutBufferSamples:
        return RecurrentRolloutBufferSamples(**_row_fields(self, batch_inds, env_change))


class DictRowBuffer(RecurrentDictRolloutBuffer):
    """RecurrentDictRolloutBuffer whose minibatches are not padded."""

    def _get_samples(  # type: ignore[override]  # contrib's own signature
        self, batch_inds: Any, env_change: Any, env: Any = None
    ) -> RecurrentDictRolloutBufferSamples:
        return RecurrentDictRolloutBufferSamples(**_row_fields(self, batch_inds, env_change))


@cache
def _fused(policy_class: type[RecurrentActorCriticPolicy]) -> type[RecurrentActorCriticPolicy]:
    """policy_class with FusedLstmPolicy inserted before contrib's base class, so that its overrides still apply."""
    if policy_class is RecurrentActorCriticPolicy:
        return FusedLstmPolicy
    if not issubclass(policy_class, RecurrentActorCriticPolicy) or issubclass(policy_class, FusedLstmPolicy):
        return policy_class
    namespace = {
        "__module__": policy_class.__module__,
        "__reduce__": lambda self: (_blank, (policy_class,), self.__dict__),  # pickle cannot name this class
    }
    return type(policy_class.__name__, (policy_class, FusedLstmPolicy), namespace)


def _blank(policy_class: type[RecurrentActorCriticPolicy]) -> RecurrentActorCriticPolicy:
    fused = _fused(policy_class)
    return fused.__new__(fused)


def _takes_rows(policy: nn.Module) -> bool:
    """Whether the results are the same without padding: contrib's evaluation, no layer that mixes or draws rows."""
    kind: Any = type(policy)
    return (
        kind.evaluate_actions is RecurrentActorCriticPolicy.evaluate_actions
        and kind._process_sequence is FusedLstmPolicy._process_sequence
        and all(_is_plain(m) for m in policy.modules() if isinstance(m, nn.LSTM))
        and not any(isinstance(m, (_BatchNorm, _DropoutNd)) for m in policy.modules())
    )


@contextmanager
def _fused_adam(optimizer: th.optim.Optimizer) -> Iterator[None]:
    """Adam steps in one kernel inside the block; then the flag is reset, so that saved optimisers are contrib's."""
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
    """sb3_contrib.RecurrentPPO: same arguments, same results up to rounding, saved files that either class loads.

    Examples:
        >>> from e3b_gym import RecurrentPPO
        >>> model = RecurrentPPO("MlpLstmPolicy", "CartPole-v1", n_steps=16, batch_size=16, n_epochs=1, device="cpu")
        >>> model.learn(32).num_timesteps
        32
    """

    def _setup_model(self) -> None:
        declared = self.policy_class
        self.policy_class = _fused(declared)
        try:
            super()._setup_model()
        finally:
            self.policy_class = declared  # what a saved file names
        if _takes_rows(self.policy):
            buffer_class = DictRowBuffer if isinstance(self.observation_space, spaces.Dict) else RowBuffer
            self.rollout_buffer = buffer_class(
                self.n_steps,
                self.observation_space,
                self.action_space,
                self.rollout_buffer.hidden_state_shape,  # type: ignore[attr-defined]
                self.device,
                gamma=self.gamma,
                gae_lambda=self.gae_lambda,
                n_envs=self.n_envs,
            )

    def train(self) -> None:
        with _fused_adam(self.policy.optimizer):
            super().train()
