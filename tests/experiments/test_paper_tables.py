"""The hyper-parameter tables of the paper's appendix, number by number, against what PRESET=paper resolves to."""

import pytest
import torch

from agents.impala.rmsprop import RMSprop
from agents.ppo.model import add_bonus, make_envs, make_model
from experiments.paper_tables import HABITAT, MINIHACK, TABLES
from experiments.settings import resolve

ROWS = [
    pytest.param(table, method, row, id=f"{table.label}-{method}-{row[0]}")
    for table in TABLES
    for method in table.methods
    for row in table.rows
    if row[2] is not None
]


def options(env: str, agent: str, method: str) -> dict:
    """Every number of the run by the name of its option."""
    config = resolve(agent, "paper", {"env": env, "method": method}).config
    return {**config.bonus.as_dict(), **config.as_dict()}


@pytest.mark.parametrize(("table", "method", "row"), ROWS)
def test_the_preset_has_the_papers_number(table, method, row):
    name, value, option = row
    assert options(table.env, table.agent, method)[option] == value, f"{name} of {table.label}"


def test_a_row_without_an_option_says_why():
    for table in TABLES:
        for row in table.rows:
            assert len(row) == (3 if row[2] is not None else 4), row
            assert row[2] is not None or row[3]


def test_numbers_that_are_no_option_of_their_own():
    habitat = options(HABITAT, "recurrent_ppo", "e3b")
    assert habitat["n_steps"] * habitat["n_envs"] == 2 * habitat["batch_size"]
    assert habitat["encoder_batch_size"] == habitat["n_steps"] * habitat["n_envs"]  # an update sees the whole rollout
    assert (habitat["extrinsic"], habitat["hidden"]) == (0.0, 0)
    minihack = options(MINIHACK, "impala", "e3b")
    assert (minihack["net"], minihack["optimizer"], minihack["n_epochs"]) == ("paper", "rmsprop", 1)


def test_numbers_of_the_optimisers_and_schedules():
    """RMSprop without momentum; Adam's epsilon, a constant learning rate and a constant clip with PPO."""
    weight = torch.zeros(1, requires_grad=True)
    assert RMSprop([weight], lr=1e-4, alpha=0.99, eps=1e-5).param_groups[0]["momentum"] == 0
    given = {"env": "Rooms-K3-v0", "n_envs": "2", "n_steps": "8", "batch_size": "16", "lstm": "8", "dim": "8"}
    config = resolve("recurrent_ppo", "home", given).config
    venv = add_bonus(config, make_envs(config, 0))
    model = make_model(config, venv)
    assert model.policy.optimizer.param_groups[0]["eps"] == 1e-5
    assert model.lr_schedule(1.0) == model.lr_schedule(0.1) == config.learning_rate
    assert model.clip_range(1.0) == model.clip_range(0.1) == config.clip_range
    venv.close()
