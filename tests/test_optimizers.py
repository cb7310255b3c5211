"""The state of an optimiser is checked before it is used."""

import pytest
import torch
from torch import nn

from agents.impala.rmsprop import RMSprop
from e3b_gym.optimizers import load_optimizer


def trained(kind: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    net = nn.Linear(4, 2)
    optimizer = torch.optim.Adam(net.parameters()) if kind == "adam" else RMSprop(net.parameters(), 1e-3, 0.99, 1e-5)
    net(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    return net, optimizer


@pytest.mark.parametrize("kind", ["adam", "rmsprop"])
def test_a_saved_state_is_taken_over(kind):
    saved = trained(kind)[1].state_dict()
    _, optimizer = trained(kind)
    load_optimizer(optimizer, saved)
    assert torch.equal(optimizer.state_dict()["state"][0]["step"], saved["state"][0]["step"])


@pytest.mark.parametrize("kind", ["adam", "rmsprop"])
@pytest.mark.parametrize("value", [None, "abc", -1, torch.zeros(3), torch.zeros(()), "missing"])
def test_a_moment_that_does_not_fit_its_weight_is_refused(kind, value):
    moment = "exp_avg_sq" if kind == "adam" else "square_avg"
    _, optimizer = trained(kind)
    saved = optimizer.state_dict()
    if value == "missing":
        del saved["state"][0][moment]
    else:
        saved["state"][0][moment] = value
    with pytest.raises(ValueError, match=f"the optimiser's {moment}"):
        load_optimizer(optimizer, saved)


@pytest.mark.parametrize("value", [None, "abc", True, float("nan"), [1e-3], "missing"])
def test_an_option_of_another_kind_is_refused(value):
    _, optimizer = trained("adam")
    saved = optimizer.state_dict()
    if value == "missing":
        del saved["param_groups"][0]["lr"]
    else:
        saved["param_groups"][0]["lr"] = value
    with pytest.raises(ValueError, match="the optimiser's lr"):
        load_optimizer(optimizer, saved)
