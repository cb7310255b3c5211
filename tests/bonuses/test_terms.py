"""Each term against its equation, on experience small enough to work out by hand."""

import math

import pytest
import torch
from gymnasium.spaces import Discrete
from torch import nn

from e3b_gym.bonuses import (
    RND,
    Bonus,
    Curiosity,
    Elliptical,
    FirstVisit,
    Frozen,
    Impact,
    InverseDynamics,
    InverseForwardDynamics,
    InverseSqrtCount,
    NoveltyGain,
    PolicyDivergence,
)
from e3b_gym.unroll import Unroll


class Same(nn.Module):
    """phi(s) = s, so that bonuses can be read off the observations."""

    dim = 2

    def forward(self, obs):
        return obs


def episode(states, *, ends=False, starts=True, actions=None, logits=None) -> Unroll:
    """One environment that visits `states`; the last one ends the episode if `ends`."""
    obs = torch.tensor(states, dtype=torch.float32)[:, None]  # [T+1, 1, d]
    steps = len(obs) - 1
    done = torch.zeros(steps, 1, dtype=torch.bool)
    done[-1] = ends
    return Unroll(
        obs=obs,
        action=torch.zeros(steps, 1, dtype=torch.int64) if actions is None else torch.tensor(actions)[:, None],
        done=done,
        starts=torch.tensor([starts]),
        terminal_obs=obs[-1] if ends else None,
        policy_logits=None if logits is None else torch.tensor(logits)[:, None],
    )


def bonuses_of(bonus: Bonus, *unrolls: Unroll) -> list[float]:
    memory = bonus.new_memory(1)
    return [float(b) for u in unrolls for b in bonus.score(bonus.embed(u), u, memory)[:, 0]]


E1, E2 = [1.0, 0.0], [0.0, 1.0]


def test_algorithm_1_scores_the_next_state_and_never_the_first():
    """ridge 1: a new direction has the bonus 1, a state seen n times 1/(n+1); s_0 = E1 is not in the ellipse."""
    bonus = Elliptical(Frozen(Same()), ridge=1.0)
    assert bonuses_of(bonus, episode([E1, E1, E1, E2])) == pytest.approx([1, 1 / 2, 1])


def test_the_first_observation_can_be_entered_unscored():
    bonus = Elliptical(Frozen(Same()), ridge=1.0, include_first=True)
    assert bonuses_of(bonus, episode([E1, E1, E1, E2])) == pytest.approx([1 / 2, 1 / 3, 1])


def test_the_authors_score_the_current_state():
    bonus = Elliptical(Frozen(Same()), ridge=1.0, bonus_of="current")
    assert bonuses_of(bonus, episode([E1, E2, E1, E2])) == pytest.approx([1, 1, 1 / 2])


def test_the_authors_give_the_first_step_no_bonus():
    bonus = Elliptical(Frozen(Same()), ridge=1.0, bonus_of="current", zero_first=True)
    assert bonuses_of(bonus, episode([E1, E1, E2, E1])) == pytest.approx([0, 1 / 2, 1])


def test_unit_length_forgets_the_scale():
    bonus = Elliptical(Frozen(Same()), ridge=1.0, unit_length=True)
    assert bonuses_of(bonus, episode([E1, [100.0, 0.0], [0.01, 0.0], [0.0, 0.0]])) == pytest.approx([1, 1 / 2, 0])


def test_an_episode_end_clears_the_ellipse_unless_it_is_lifelong():
    life = episode([E1, E1], ends=True), episode([E2, E1], ends=True)
    assert bonuses_of(Elliptical(Frozen(Same()), ridge=1.0), *life) == pytest.approx([1, 1])
    assert bonuses_of(Elliptical(Frozen(Same()), ridge=1.0, episodic=False), *life) == pytest.approx([1, 1 / 2])


def test_a_first_visit_has_a_bonus_once_and_the_start_was_a_visit():
    assert bonuses_of(FirstVisit(lambda obs: obs), episode([E1, E2, E1, E2, [2.0, 2.0]])) == [1, 0, 0, 1]


def test_inverse_square_root_counts_the_start_too():
    wanted = [1, 1 / math.sqrt(2), 1 / math.sqrt(2), 1 / math.sqrt(3)]
    assert bonuses_of(InverseSqrtCount(lambda obs: obs), episode([E1, E2, E1, E2, E1])) == pytest.approx(wanted)


def test_a_key_counts_only_what_it_takes():
    """The second number is a clock: with it every state is new, without it none is."""
    clock = episode([[1.0, t] for t in range(4)])
    assert bonuses_of(FirstVisit(lambda obs: obs), clock) == [1, 1, 1]
    assert bonuses_of(FirstVisit(lambda obs: obs[:, :1]), clock) == [0, 0, 0]


class Zero(nn.Module):
    dim = 2

    def forward(self, obs):
        return 0.0 * obs


def test_rnd_is_the_squared_error_and_noveld_its_gain_in_distance():
    unroll = episode([[3.0, 4.0], [6.0, 8.0], [0.0, 1.0]])  # errors 5, 10, 1
    assert bonuses_of(RND(Zero(), Same()), unroll) == pytest.approx([100, 1])
    assert bonuses_of(NoveltyGain(RND(Zero(), Same()), alpha=0.1), unroll) == pytest.approx([10 - 0.5, 0])
    rnd = RND(Zero(), Same())
    assert rnd.loss(rnd.embed(unroll), unroll)["rnd"].item() == pytest.approx(50.5)


def test_impact_is_the_distance_gone():
    representation = InverseForwardDynamics(Same(), Discrete(2))
    assert bonuses_of(Impact(representation), episode([[0.0, 0.0], [3.0, 4.0], [3.0, 4.0]])) == pytest.approx([5, 0])


def test_curiosity_is_half_the_squared_error_of_the_forward_model():
    representation = InverseForwardDynamics(Same(), Discrete(2), forward_coef=2.0, inverse_coef=0.0)
    unroll = episode([E1, E2, [3.0, 3.0]], actions=[1, 0])
    features = representation.embed(unroll)
    expected = representation.forward_model(features.current, unroll.action).detach()
    wanted = 0.5 * (expected - unroll.obs[1:]).square().sum(-1)[:, 0]
    assert bonuses_of(Curiosity(representation), unroll) == pytest.approx(wanted.tolist())
    assert representation.loss(features, unroll)["forward"].item() == pytest.approx(2 * float(wanted.mean()))


def test_the_divergence_is_that_of_torch_and_zero_for_a_perfect_adversary():
    torch.manual_seed(0)
    term = PolicyDivergence(Same(), Discrete(3))
    unroll = episode([E1, E2, E1], logits=[[0.0, 1.0, 2.0], [3.0, 0.0, 0.0]])
    adversary = torch.distributions.Categorical(logits=term.adversary(unroll.obs[:-1, 0]))
    policy = torch.distributions.Categorical(logits=unroll.policy_logits[:, 0])
    wanted = torch.distributions.kl_divergence(policy, adversary)
    assert bonuses_of(term, unroll) == pytest.approx(wanted.tolist(), abs=1e-6)
    same = episode([E1, E2], logits=term.adversary(unroll.obs[:1, 0]).tolist())
    assert bonuses_of(term, same) == pytest.approx([0], abs=1e-6)


def test_the_inverse_loss_never_pairs_two_episodes():
    """The action is readable from the true pair, and the opposite from the pair across the reset."""
    torch.manual_seed(0)
    representation = InverseDynamics(Same(), Discrete(2))
    ended = episode([E1, E2], ends=True, actions=[1])
    across = Unroll(
        torch.stack([ended.obs[0], -ended.obs[1]]), ended.action, ended.done, ended.starts, ended.terminal_obs
    )
    losses = [representation.loss(representation.embed(u), u)["inverse"] for u in (ended, across)]
    assert losses[0].item() == losses[1].item()
    unknown = Unroll(across.obs, across.action, across.done, across.starts)
    assert representation.loss(representation.embed(unknown), unknown)["inverse"].item() == 0.0


def test_products_sums_and_scaled_bonuses_are_computed_from_their_terms():
    def terms():
        return FirstVisit(lambda obs: obs), InverseSqrtCount(lambda obs: obs), Elliptical(Frozen(Same()), ridge=1.0)

    unroll = episode([E1, E2, E1, [2.0, 0.0]])
    first, count, ellipse = (torch.tensor(bonuses_of(term, unroll)) for term in terms())
    a, b, c = terms()
    assert bonuses_of(a * b + 0.5 * c, unroll) == pytest.approx((first * count + 0.5 * ellipse).tolist())
    assert bonuses_of(c * 2, unroll) == pytest.approx((2 * ellipse).tolist())


def test_losses_of_the_parts_are_kept_apart():
    torch.manual_seed(0)
    one, two = (Elliptical(InverseDynamics(Same(), Discrete(2))) for _ in range(2))
    unroll, both = episode([E1, E2, E1]), one * two
    losses = both.loss(both.embed(unroll), unroll)
    assert set(losses) == {"inverse", "inverse_1"}
    assert set(both.diagnostics(both.embed(unroll), unroll)) >= {"inverse_accuracy", "inverse_accuracy_1", "phi_rank"}


def test_the_rank_of_phi_counts_directions():
    bonus = Elliptical(Frozen(Same()))
    flat, round_ = episode([E1, E1, E1]), episode([E1, E2, E1])
    assert bonus.diagnostics(bonus.embed(flat), flat)["phi_rank"] == pytest.approx(1)
    assert bonus.diagnostics(bonus.embed(round_), round_)["phi_rank"] == pytest.approx(2)


def test_what_is_not_a_bonus_does_not_combine():
    bonus = FirstVisit(lambda obs: obs)
    with pytest.raises(ValueError, match="combined with bonuses and numbers"):
        bonus + 3
    with pytest.raises(ValueError, match="multiplied by a bonus or a number"):
        bonus * "twice"
