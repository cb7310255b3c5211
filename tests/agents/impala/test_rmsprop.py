"""One pass, same numbers as torch.optim.RMSprop, and the same files."""

import copy

import torch
from torch import nn

from agents.impala.rmsprop import RMSprop

SETTINGS = {"lr": 1e-2, "alpha": 0.9, "eps": 1e-5}


def network():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 5), nn.Conv1d(1, 2, 2), nn.Linear(4, 1))


def descend(net, optimizer, steps):
    for step in range(steps):
        x = torch.linspace(-1, 1 + step, 12).view(4, 1, 3)
        optimizer.zero_grad()
        net(x).square().sum().backward()
        if step == 1:
            net[1].bias.grad = None  # a weight that this loss did not reach
        optimizer.step()


def test_weights_and_state_are_those_of_torch():
    ours, theirs, unfused = network(), network(), network()
    fast, plain = RMSprop(ours.parameters(), **SETTINGS), torch.optim.RMSprop(theirs.parameters(), **SETTINGS)
    descend(ours, fast, 5)
    descend(theirs, plain, 5)
    descend(unfused, RMSprop(unfused.parameters(), **SETTINGS, fused=False), 5)
    for one, other, third in zip(ours.parameters(), theirs.parameters(), unfused.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)
        assert torch.equal(other, third)
    torch.testing.assert_close(fast.state_dict()["state"], plain.state_dict()["state"], rtol=1e-6, atol=1e-7)


def test_training_continues_from_a_state_of_torchs_rmsprop():
    theirs = network()
    plain = torch.optim.RMSprop(theirs.parameters(), **SETTINGS)
    descend(theirs, plain, 3)
    ours = copy.deepcopy(theirs)
    fast = RMSprop(ours.parameters(), **SETTINGS)
    fast.load_state_dict(copy.deepcopy(plain.state_dict()))
    descend(theirs, plain, 3)
    descend(ours, fast, 3)
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)


def test_what_the_fast_path_does_not_take_is_torchs():
    ours, theirs = network().double(), network().double()
    descend_64 = RMSprop(ours.parameters(), **SETTINGS), torch.optim.RMSprop(theirs.parameters(), **SETTINGS)
    for net, optimizer in zip((ours, theirs), descend_64, strict=True):
        net(torch.ones(2, 1, 3, dtype=torch.float64)).sum().backward()
        optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
