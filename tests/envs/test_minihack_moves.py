"""The scores of MiniHack's moves: the same function of a neighbouring cell in every direction."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from agents.impala.config import Config
from agents.impala.policy import Policy
from agents.networks import networks_for
from agents.ppo.config import PPOConfig, RecurrentPPOConfig
from e3b_gym.envs import make
from e3b_gym.envs.minihack.moves import MoveScores
from e3b_gym.envs.minihack.network import env_options
from e3b_gym.envs.minihack.tasks import MOVES, TASKS

TASK = "MiniHack-MultiRoom-N6-Lava-v0"
FLOOR, LAVA, DOOR = 2378, 2393, 2372
SPACE = spaces.Dict({"glyphs_crop": spaces.Box(0, 5976, (16, 16), np.int16)})


def scores(num_actions: int = 10) -> MoveScores:
    """With weights that are not 0."""
    torch.manual_seed(0)
    module = MoveScores(SPACE, num_actions, hidden=4)
    torch.nn.init.normal_(module.score.weight)
    return module


def around(**cells: int) -> dict[str, torch.Tensor]:
    """The agent on floor, with other cells in some directions: one observation, [1, 1, ...]."""
    crop = torch.full((1, 1, 16, 16), FLOOR)
    places = {
        "N": (7, 8),
        "E": (8, 9),
        "S": (9, 8),
        "W": (8, 7),
        "NE": (7, 9),
        "SE": (9, 9),
        "SW": (9, 7),
        "NW": (7, 7),
    }
    for move, glyph in cells.items():
        crop[0, 0, *places[move]] = glyph
    return {"glyphs_crop": crop}


def test_a_cell_has_the_same_score_in_every_direction():
    module, hidden = scores(), torch.randn(1, 1, 4)
    floor = module(around(), hidden)[0, 0, 0]
    for number, move in enumerate(MOVES):
        got = module(around(**{move: DOOR}), hidden)[0, 0]
        assert got[number] != floor
        torch.testing.assert_close(got[number], module(around(N=DOOR), hidden)[0, 0, 0])
        torch.testing.assert_close(torch.cat([got[:number], got[number + 1 : 8]]), floor.expand(7))


def test_the_score_of_a_cell_depends_on_what_the_policy_remembers():
    module = scores()
    first, second = (module(around(E=DOOR), hidden)[0, 0] for hidden in torch.randn(2, 1, 1, 4))
    assert first[1] - first[0] != second[1] - second[0]


def test_other_actions_get_no_score_and_none_has_one_at_first():
    module, hidden = scores(num_actions=10), torch.randn(1, 1, 4)
    assert module(around(E=DOOR), hidden)[0, 0, 8:].tolist() == [0.0, 0.0]
    assert not MoveScores(SPACE, 10, 4)(around(E=DOOR, N=LAVA), hidden).any()


@pytest.mark.parametrize("task", [id for id, task in TASKS.items() if task.paper])
def test_the_first_eight_actions_of_every_task_are_the_moves(task: str):
    assert TASKS[task].actions[:8] == MOVES


def test_the_cells_are_those_that_the_moves_lead_to():
    """The agent walks, and what it saw in the direction of its move is not under the others."""
    env = make(TASK, **(env_options("moves") | {"observation_keys": ("glyphs", "blstats", "message")}))
    module = MoveScores(env.observation_space, env.action_space.n, 4)
    obs, _ = env.reset(seed=3)
    for number, _move in enumerate(MOVES):
        obs, _ = env.reset(seed=3)
        x, y = obs["blstats"][:2]
        wanted = obs["glyphs_crop"].reshape(-1)[module.cells[number]]
        after, _, ended, _, _ = env.step(number)
        row, column = (int(part) for part in (after["blstats"][1] - y, after["blstats"][0] - x))
        if not ended and (row or column):
            assert wanted == obs["glyphs"][y + row, x + column] == FLOOR
        else:
            assert wanted != FLOOR
    env.close()


def test_the_policy_of_net_moves_has_them_and_that_of_fast_has_not():
    with_scores, without = (networks_for(Config(TASK, net=net)) for net in ("moves", "fast"))
    space = make(TASK, **with_scores.env_options).observation_space
    policy = Policy(with_scores, space, spaces.Discrete(8))
    obs = {key: torch.zeros(2, 3, *part.shape, dtype=torch.int32) for key, part in space.spaces.items()}
    starts, state = torch.zeros(2, 3, dtype=torch.bool), policy.initial_state(3)
    before = policy(obs, starts, state).logits
    with torch.no_grad():
        policy.action_scores.score.weight.fill_(1.0)
    after = policy(obs, starts, state).logits
    assert after.shape == (2, 3, 8)
    assert not torch.equal(before, after)
    assert Policy(without, space, spaces.Discrete(8)).action_scores is None


@pytest.mark.parametrize("config", [PPOConfig, RecurrentPPOConfig])
def test_other_agents_refuse_it(config: type[PPOConfig]):
    with pytest.raises(ValueError, match="net=moves adds to the logits of IMPALA's policy; use net=fast"):
        config(TASK, net="moves")
