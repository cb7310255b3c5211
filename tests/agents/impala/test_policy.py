"""The policy: episodes do not leak into each other, and what it refuses."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from small_runs import small

from agents.impala.policy import Policy, sample_actions
from agents.networks import networks_for

SPACE = gym.spaces.Dict({"a": gym.spaces.Box(-1, 1, (3,), np.float32), "b": gym.spaces.Discrete(4)})


def policy_of(value_heads=1, actions=3):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Policy(networks_for(small()), SPACE, gym.spaces.Discrete(actions), value_heads)


def experience(steps=7, envs=3):
    generator = torch.Generator().manual_seed(1)
    obs = {
        "a": torch.rand(steps, envs, 3, generator=generator),
        "b": torch.randint(4, (steps, envs), generator=generator),
    }
    return obs, torch.zeros(steps, envs, dtype=torch.bool)


def test_garbage_before_a_start_changes_nothing_after_it():
    policy, (obs, starts) = policy_of(), experience()
    starts[4, 1] = True
    clean = policy(obs, starts, policy.initial_state(3))
    obs["a"][:4, 1], obs["b"][:4, 1] = 7.0, 0
    h, c = policy.initial_state(3)
    dirty = policy(obs, starts, (h + 5, c - 5))
    assert torch.equal(clean.logits[4:, 1], dirty.logits[4:, 1])
    assert torch.equal(clean.values[4:, 1], dirty.values[4:, 1])
    assert torch.equal(clean.state[0][:, 1], dirty.state[0][:, 1])
    assert not torch.equal(clean.logits[4:, 0], dirty.logits[4:, 0])


def test_environments_do_not_leak_into_each_other():
    policy, (obs, starts) = policy_of(), experience()
    together = policy(obs, starts, policy.initial_state(3))
    alone = policy({key: leaf[:, 1:2] for key, leaf in obs.items()}, starts[:, 1:2], policy.initial_state(1))
    torch.testing.assert_close(together.logits[:, 1:2], alone.logits)


def test_sampled_actions_are_those_of_multinomial():
    logits = torch.randn(50, 6, generator=torch.Generator().manual_seed(0))
    drawn = sample_actions(logits, torch.Generator().manual_seed(1))
    wanted = torch.multinomial(logits.softmax(-1), 1, generator=torch.Generator().manual_seed(1))[:, 0]
    assert torch.equal(drawn, wanted)


def test_step_by_step_is_the_whole_unroll():
    policy, (obs, starts) = policy_of(), experience()
    starts[3, 0] = starts[5, 2] = True
    whole, state = policy(obs, starts, policy.initial_state(3)), policy.initial_state(3)
    for t in range(7):
        out = policy({key: leaf[t : t + 1] for key, leaf in obs.items()}, starts[t : t + 1], state)
        state = out.state
        torch.testing.assert_close(out.logits[0], whole.logits[t])
        torch.testing.assert_close(out.values[0], whole.values[t])


def test_shapes_with_two_value_heads():
    policy, (obs, starts) = policy_of(value_heads=2, actions=5), experience()
    out = policy(obs, starts, policy.initial_state(3))
    assert out.logits.shape == (7, 3, 5)
    assert out.values.shape == (7, 3, 2)
    assert policy.encode({key: leaf[0] for key, leaf in obs.items()}).shape == (3, policy.dim)


@pytest.mark.parametrize("actions", [gym.spaces.Box(-1, 1, (2,)), gym.spaces.Discrete(3, start=1)])
def test_other_action_spaces_are_refused(actions):
    with pytest.raises(ValueError, match="Discrete action spaces that count from 0"):
        Policy(networks_for(small()), SPACE, actions)
