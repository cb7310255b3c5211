"""Scores for the eight moves by what stands next to the agent, the same function for every direction.

    logit of the move in direction k  +=  w . relu(U h + e(cell in direction k))

h is the output of the policy's LSTM, e an embedding of glyphs. The policy's other layers read a crop through one
matrix, so they learn separately what a door means in the east and in the west. Here, what is learned about a door, lava
or the stairs in one direction holds in all of them. w starts at 0, so the first policy is the one without this part.
"""

from __future__ import annotations

from typing import Any, cast

import gymnasium as gym
import torch
from torch import Tensor, nn

from e3b_gym.envs.minihack.tasks import MOVES
from e3b_gym.unroll import Tree

STEPS = {
    "N": (-1, 0),
    "E": (0, 1),
    "S": (1, 0),
    "W": (0, -1),
    "NE": (-1, 1),
    "SE": (1, 1),
    "SW": (1, -1),
    "NW": (-1, -1),
}
"""Rows and columns that a move goes down and right."""
UNITS = 64


class MoveScores(nn.Module):
    """Scores that are added to the logits of a task whose first eight actions are the moves.

    Args:
        observation_space: Dict space of one environment, with `glyphs_crop`.
        num_actions: number of actions of the task.
        hidden: units of the policy's LSTM.
    """

    def __init__(self, observation_space: gym.Space[Any], num_actions: int, hidden: int) -> None:
        super().__init__()
        crop: Any = cast(gym.spaces.Dict, observation_space)["glyphs_crop"]
        side = crop.shape[0]
        self.glyphs = nn.Embedding(1 + int(crop.high.max()), UNITS)
        self.context = nn.Linear(hidden, UNITS)
        self.score = nn.Linear(UNITS, 1, bias=False)
        nn.init.zeros_(self.score.weight)
        self.others = num_actions - len(MOVES)
        middle = side // 2
        cells = [(middle + row) * side + middle + column for row, column in (STEPS[move] for move in MOVES)]
        self.register_buffer("cells", torch.tensor(cells), persistent=False)

    def forward(self, obs: Tree, hidden: Tensor) -> Tensor:
        """Observations of [T, B] and hidden [T, B, H] -> [T, B, A]."""
        around = obs["glyphs_crop"].flatten(-2)[..., self.cells].int()  # [T, B, 8]
        units = torch.relu(self.glyphs(around) + self.context(hidden)[..., None, :])  # [T, B, 8, UNITS]
        scores = self.score(units)[..., 0]  # [T, B, 8]
        return nn.functional.pad(scores, (0, self.others))
