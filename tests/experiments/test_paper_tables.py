"""The hyper-parameter tables of the paper's appendix, number by number, against what PRESET=paper resolves to."""

import pytest

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
