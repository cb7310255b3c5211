"""AGAC's terms for learners that put them into the advantage and the value target instead of the reward."""

import pytest
import torch
from gymnasium.spaces import Discrete
from torch import nn
from torch.distributions import Categorical, kl_divergence

from e3b_gym.bonuses import FirstVisit, InverseSqrtCount, PolicyDivergence, make_bonus
from e3b_gym.unroll import Unroll


class Same(nn.Module):
    dim = 2

    def forward(self, obs):
        return obs


def adversary_of(seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return PolicyDivergence(Same(), Discrete(3))


def unroll_of(terminals=True):
    generator = torch.Generator().manual_seed(0)
    done = torch.zeros(4, 2, dtype=torch.bool)
    done[1, 0] = True
    return Unroll(
        obs=torch.rand(5, 2, 2, generator=generator),
        action=torch.randint(3, (4, 2), generator=generator),
        done=done,
        starts=torch.ones(2, dtype=torch.bool),
        terminal_obs=torch.rand(1, 2, generator=generator) if terminals else None,
        policy_logits=torch.randn(4, 2, 3, generator=generator),
    )


def written_out(term, unroll):
    policy = Categorical(logits=unroll.policy_logits)
    adversary = Categorical(logits=term.adversary(unroll.obs[:-1]))
    surprise = policy.log_prob(unroll.action) - adversary.log_prob(unroll.action)
    return surprise, kl_divergence(policy, adversary)


@pytest.mark.parametrize("terminals", [True, False])
def test_the_terms_are_log_ratio_and_divergence_at_every_step(terminals):
    """They belong to the state that was left, so an end without its last observation has them, too."""
    term, unroll = adversary_of(), unroll_of(terminals)
    terms = term.policy_terms(term.embed(unroll), unroll)
    torch.testing.assert_close(terms, written_out(term, unroll))
    assert not any(part.requires_grad for part in terms)


def test_the_divergence_is_the_mean_of_the_log_ratio_under_the_policy():
    term, unroll = adversary_of(), unroll_of()
    features, policy = term.embed(unroll), Categorical(logits=unroll.policy_logits)
    mean = 0.0
    for action in range(3):
        chosen = Unroll(**{**vars(unroll), "action": torch.full((4, 2), action)})
        mean = mean + policy.probs[..., action] * term.policy_terms(features, chosen)[0]
    torch.testing.assert_close(mean, term.policy_terms(features, unroll)[1])


def test_out_of_the_reward_the_divergence_is_zero_but_learns():
    term, unroll = adversary_of(), unroll_of()
    features = term.embed(unroll)
    scores = term.score(features, unroll, None)
    assert (scores > 0).sum() == 8
    term.in_reward = False
    assert torch.equal(term.score(features, unroll, None), torch.zeros(4, 2))
    assert term.loss(features, unroll)["adversary"].requires_grad
    assert PolicyDivergence.in_reward  # the others keep theirs


def test_a_sum_hands_on_the_terms_of_its_parts():
    unroll, one, other = unroll_of(), adversary_of(0), adversary_of(1)
    both = one + FirstVisit(lambda obs: obs) + other
    terms = both.policy_terms(both.embed(unroll), unroll)
    wanted = [a + b for a, b in zip(written_out(one, unroll), written_out(other, unroll), strict=True)]
    torch.testing.assert_close(list(terms), wanted)


def test_bonuses_without_a_policys_part_have_no_terms():
    unroll, count = unroll_of(), InverseSqrtCount(lambda obs: obs)
    both = 0.5 * count + FirstVisit(lambda obs: obs)
    assert count.policy_terms(None, unroll) is None
    assert both.policy_terms(both.embed(unroll), unroll) is None


def test_agac_without_its_terms_is_its_count_alone():
    from gymnasium.spaces import Box

    unroll = unroll_of()
    bonus = make_bonus("agac", Box(0, 1, (2,)), Discrete(3), 2, encoder=lambda _: Same(), seed=0)
    count = make_bonus("count", Box(0, 1, (2,)), Discrete(3), 2)
    for part in bonus.modules():
        if isinstance(part, PolicyDivergence):
            part.in_reward = False
    scores = bonus.score(bonus.embed(unroll), unroll, bonus.new_memory(2))
    assert torch.equal(scores, count.score(None, unroll, count.new_memory(2)))


def test_the_terms_need_the_policys_logits():
    term, unroll = adversary_of(), Unroll(**{**vars(unroll_of()), "policy_logits": None})
    with pytest.raises(ValueError, match="no policy_logits"):
        term.policy_terms(term.embed(unroll), unroll)
