"""What an actor records is what happened: checked by playing its actions again in environments stepped by hand."""

import dataclasses

import numpy as np
import pytest
import torch
from small_runs import LAVA, actor_with_weights, filled, room_for, small

from agents.impala.actor import make_envs
from e3b_gym.unroll import tree_leaves, tree_map

DICT_ROOMS = {"env_options": {"max_steps": 7}}
RUNS = {
    "vector": small(),
    "dict": small(**DICT_ROOMS),
    "gymnasium": small(env="CartPole-v1", env_options={}, n_steps=30),
    "minihack": small(**LAVA, env_options={"max_steps": 4}, n_envs=2, n_steps=16),
}


@pytest.fixture
def playing():
    """Actors that are closed when the test ends."""
    actors = []

    def play(config, number=0):
        actor, learner = actor_with_weights(config, number)
        actors.append(actor)
        return actor, learner

    yield play
    for actor in actors:
        actor.close()


def same(tree, other):
    return all(np.array_equal(a, b) for a, b in zip(tree_leaves(tree), tree_leaves(other), strict=True))


@pytest.mark.parametrize("run", RUNS)
def test_the_recorded_unrolls_are_what_the_environments_did(run, playing):
    config = RUNS[run]
    actor, _ = playing(config)
    rollout = room_for(actor, config)  # filled again and again, as in training
    envs = make_envs(config, config.n_envs, config.env_seed(0, 0))  # each step's observations are read at once
    obs, _ = envs.reset()
    starts = np.ones(config.n_envs, np.bool_)
    returns, lengths = np.zeros(config.n_envs), np.zeros(config.n_envs, int)
    ends = 0
    for _ in range(3):
        actor.fill(rollout)
        unroll = rollout.unroll()
        arrived = tree_map(torch.Tensor.numpy, unroll.next_obs)
        assert np.array_equal(rollout.starts, starts)
        assert same(tree_map(lambda leaf: leaf[0], rollout.obs), obs)
        for t in range(config.n_steps):
            obs, reward, terminated, truncated, infos = envs.step(rollout.action[t])
            done = starts = terminated | truncated
            returns, lengths = returns + reward, lengths + 1
            assert same(tree_map(lambda leaf, t=t: leaf[t + 1], rollout.obs), obs)
            assert np.array_equal(rollout.done[t], done)
            assert np.array_equal(rollout.truncated[t], truncated & ~terminated)
            assert np.array_equal(rollout.reward[t], reward.astype(np.float32))
            for i in np.flatnonzero(done):
                ends += 1
                assert rollout.episode_length[t, i] == lengths[i]
                assert rollout.episode_return[t, i] == pytest.approx(returns[i])
                final = infos["final_info"]
                assert rollout.success[t, i] == (final["is_success"][i] if "is_success" in final else -1)
                assert rollout.terminal_known[t, i] == final.get("final_observation_valid", done)[i]
                if rollout.terminal_known[t, i]:
                    here = tree_map(lambda leaf, t=t, i=i: leaf[t, i], arrived)
                    assert same(here, infos["final_obs"][i])
            returns[done], lengths[done] = 0, 0
    envs.close()
    assert ends > 0


def test_deaths_in_nethack_are_marked_unknown(playing):
    """Death wipes the screen: the step has no arriving observation, the others do."""
    config = small(**LAVA, env_options={"max_steps": 4}, n_envs=4, n_steps=12)
    actor, _ = playing(config)
    rollouts = [filled(actor, config) for _ in range(3)]
    died = np.concatenate([(r.done & ~r.terminal_known)[r.done] for r in rollouts])
    assert 0 < died.sum() < len(died)
    for rollout in rollouts:
        unroll = rollout.unroll()
        known = int(rollout.terminal_known.sum())
        glyphs = rollout.terminal_obs["glyphs_crop"][rollout.terminal_known]
        assert unroll.valid.logical_not().sum() == (rollout.done & ~rollout.terminal_known).sum()
        assert known == 0 or (glyphs.reshape(known, -1).std(1) > 0).all()


@pytest.mark.parametrize("run", ["dict", "minihack"])
def test_recorded_logits_and_state_are_those_of_the_weights(run, playing):
    """From the recorded state, the same weights say the same over the whole unroll, episode ends included."""
    config = RUNS[run]
    actor, learner = playing(config)
    first, second = filled(actor, config), filled(actor, config)
    assert not first.state.any()
    with torch.no_grad():
        for rollout, after in ((first, second), (second, None)):
            unroll = rollout.unroll()
            starts = torch.cat([unroll.starts[None], unroll.done[:-1]])
            obs = tree_map(lambda leaf: leaf[:-1], unroll.obs)
            out = learner.policy(obs, starts, rollout.lstm_state())
            torch.testing.assert_close(out.logits, unroll.policy_logits, rtol=1e-4, atol=1e-5)
            if after is not None:
                torch.testing.assert_close(torch.stack(out.state), torch.from_numpy(after.state), rtol=1e-4, atol=1e-5)


def test_new_weights_count_from_the_next_unroll_on(playing):
    config = small()
    actor, learner = playing(config)
    first = filled(actor, config)
    with torch.no_grad():
        learner.policy.heads.weight.mul_(-3)
    actor.load(learner.policy.state_dict(), 5)
    second = filled(actor, config)
    assert (first.version, second.version) == (0, 5)
    unroll = second.unroll()
    starts = torch.cat([unroll.starts[None], unroll.done[:-1]])
    with torch.no_grad():
        out = learner.policy(unroll.obs[:-1], starts, second.lstm_state())
    torch.testing.assert_close(out.logits, unroll.policy_logits, rtol=1e-4, atol=1e-5)


def test_an_actors_rollout_may_be_overwritten_by_others(playing):
    """Environments continue from the actor's own copy, not from the arrays it handed over."""
    config = small(n_steps=4)
    one, _ = playing(config)
    other, _ = playing(config)
    kept = filled(one, config)
    spoilt = filled(other, config)
    for leaf in (*tree_leaves(spoilt.obs), spoilt.starts, spoilt.state, spoilt.done, spoilt.logits, spoilt.reward):
        leaf[:] = 1
    next_one, next_other = filled(one, config), filled(other, config)
    assert same(next_one.obs, next_other.obs)
    assert np.array_equal(next_one.action, next_other.action)
    assert np.array_equal(next_one.starts, kept.done[-1])


def test_uncopied_minihack_observations_are_safe(playing):
    """The batch is overwritten by every step; rollout and terminal rows are copies, so nothing changes."""
    shared, copied = (
        RUNS["minihack"],
        dataclasses.replace(RUNS["minihack"], env_options={"max_steps": 4, "copy": True}),
    )
    actor, other = playing(shared)[0], playing(copied)[0]
    assert actor.envs.unwrapped.copy is False
    assert other.envs.unwrapped.copy is True
    for _ in range(2):
        one, two = filled(actor, shared), filled(other, copied)
        assert same(one.obs, two.obs)
        assert same(one.terminal_obs, two.terminal_obs)
        assert np.array_equal(one.action, two.action)


def test_actions_follow_the_logits(playing):
    config = small(n_envs=50, n_steps=40, env_options={"flat": True})
    actor, _ = playing(config)
    with torch.no_grad():
        actor.policy.heads.weight.zero_()
        actor.policy.heads.bias[:5] = torch.tensor([0.5, 0.25, 0.15, 0.1, 1e-30]).log()
    share = np.bincount(filled(actor, config).action.reshape(-1), minlength=5) / 2000
    np.testing.assert_allclose(share, [0.5, 0.25, 0.15, 0.1, 0], atol=0.05)


def test_no_two_actors_share_an_environment():
    config = small()
    seeds = {config.env_seed(actor, restarts) for actor in range(8) for restarts in range(8)}
    assert len(seeds) == 64
    assert small(seed=1).env_seed(0, 0) not in seeds


def test_a_policy_of_nans_acts_on_so_that_the_learner_can_name_it(playing):
    config = small()
    actor, _ = playing(config)
    with torch.no_grad():
        actor.policy.heads.bias.fill_(torch.nan)
    assert np.isnan(filled(actor, config).logits).all()
