"""The numbers of a diagnosis, on episodes where they are known."""

import numpy as np
import pytest
import torch
from recorded import episode, falling

from e3b_gym.bonuses import Elliptical, Frozen
from e3b_gym.diagnosis import End, Probe, Recording, Setup, measures
from e3b_gym.reward import RewardMixer

SETUP = Setup("a run")


def test_returns_are_discounted_and_continue_behind_a_time_limit():
    ended = episode([1.0, 0.0, 2.0])
    cut = episode([1.0, 0.0, 2.0], bootstrap=np.array([10.0]))
    assert ended.returns((0.5,))[:, 0].tolist() == [1.5, 1.0, 2.0]
    assert cut.returns((0.5,))[:, 0].tolist() == [1 + 0.5 * (0.5 * (2 + 5)), 0.5 * (2 + 5), 2 + 5]


def test_a_perfect_value_explains_everything_and_a_constant_one_nothing():
    bonus = falling()
    perfect = episode(bonus, values=episode(bonus).returns((0.99,)))
    constant = episode(bonus, values=np.full((40, 1), 0.3))
    assert measures.explained_variance([perfect], SETUP) == pytest.approx([1.0])
    assert measures.explained_variance([constant], SETUP) == pytest.approx([0.0])
    assert measures.explained_variance([episode(bonus)], SETUP) is None


def test_each_value_head_is_measured_with_its_own_reward_and_discount():
    rewards = np.stack([np.eye(40)[-1], falling()], axis=1)  # [T, 2]
    both = Setup("a run", gammas=(0.9, 0.99))
    value = episode(falling(), rewards=rewards).returns(both.gammas)
    value[:, 0] = 0.0
    explained = measures.explained_variance([episode(falling(), rewards=rewards, values=value)], both)
    assert explained == pytest.approx([0.0, 1.0])


def test_phases_are_the_first_steps_the_lowest_quarter_and_the_best_later_step():
    bonus = np.full(45, 0.1)
    bonus[:5], bonus[5:15], bonus[20] = 0.4, 0.01, 0.7
    found = measures.phases([bonus, bonus])
    assert (found.first, found.stale, found.best) == pytest.approx((0.4, 0.01, 0.7))
    assert measures.stale_share(found) == pytest.approx(0.01 / 0.7)


def test_short_episodes_have_no_stale_steps():
    found = measures.phases([np.ones(10)])
    assert found.stale is None
    assert measures.stale_share(found) is None


def test_the_goal_is_the_return_of_a_success_or_one():
    won = episode(falling(), True, extrinsic=5.0 * np.eye(40)[-1])
    assert measures.goal([episode(falling()), won], SETUP) == 5.0
    assert measures.goal([episode(falling())], SETUP) == 1.0
    assert measures.goal([won], Setup("a run", extrinsic=2.0)) == 10.0
    assert measures.goal([won], Setup("a run", extrinsic=0.0)) is None


def test_the_share_of_the_reward_is_by_size():
    step = episode(np.full(40, 0.1), extrinsic=-12.0 * np.eye(40)[-1])
    assert measures.reward_share([step], SETUP) == pytest.approx(4 / 16)
    assert measures.reward_share([episode(np.zeros(40))], SETUP) is None


@pytest.mark.parametrize("normaliser", ["std", "authors"])
def test_drift_compares_with_the_same_formula(normaliser):
    mixer = RewardMixer(normaliser=normaliser)
    bonus = falling()
    mixer.update(torch.from_numpy(bonus))
    setup = Setup("a run", sigma=3 * mixer.sigma, normaliser=normaliser)
    assert measures.drift([episode(bonus)], setup) == pytest.approx(3.0)
    assert measures.drift([episode(bonus)], Setup("a run", normaliser="none")) is None


def test_entropy_and_improbable_actions():
    p = np.array([[0.25, 0.25, 0.25, 0.25], [0.4999, 0.4999, 0.0001, 0.0001]])
    played = [episode([1.0, 1.0], probabilities=p)]
    assert measures.relative_entropy(played) == pytest.approx(0.75, abs=1e-3)
    share, by_action = measures.improbable(played)
    assert share == 0.5
    assert by_action.tolist() == [0, 0, 0.5, 0.5]


def test_guessing_is_how_often_the_most_probable_action_comes():
    p = np.array([[0.9, 0.1], [0.5, 0.5]])
    played = [episode([1.0, 1.0], probabilities=p, inverse_right=np.array([1.0, 0.0]))]
    assert measures.inverse_accuracy(played) == pytest.approx((0.5, 0.7))


def test_arrivals_that_were_not_seen_do_not_count():
    valid = np.array([True, False])
    phi = np.array([[1.0, 0.0], [0.0, 1.0]], dtype=np.float32)
    played = [episode([1.0, 0.0], valid=valid, phi=phi, inverse_right=np.array([1.0, 0.0]))]
    assert measures.inverse_accuracy(played) == (1.0, 0.0)
    assert measures.phi_rank(played, SETUP) == pytest.approx((1.0, 2))


@pytest.mark.parametrize(
    ("truncated", "success", "name"),
    [(False, True, "success"), (True, True, "success"), (True, False, "time limit"), (True, None, "time limit")]
    + [(False, False, "failure"), (False, None, "ended")],
)
def test_how_an_episode_ended(truncated, success, name):
    assert End(truncated, success).name == name


def test_success_is_unknown_where_the_environment_does_not_report_it():
    assert measures.success_rate([episode([1.0], None)]) is None
    assert measures.success_rate([episode([1.0], False), episode([1.0], True), episode([1.0], None)]) == 0.5


class TestRecording:
    def step(self, value: float, envs: int = 2) -> dict:
        row = np.full(envs, value)
        return {"extrinsic": row, "bonus": row, "intrinsic": row, "valid": row > -1, "rewards": row[:, None]}

    def test_every_environment_plays_the_same_number_of_episodes(self):
        recording = Recording(2, 4)
        died, cut = End(False, False), End(True, False)
        for t, end in enumerate([{0: died}, {0: died}, {0: died}, {1: cut}, {0: died, 1: cut}]):
            assert not recording.complete
            recording.add(self.step(float(t)), end)
        assert recording.complete
        assert [e.ending for e in recording.episodes] == ["failure"] * 2 + ["time limit"] * 2
        assert [e.bonus.tolist() for e in recording.episodes] == [[0], [1], [0, 1, 2, 3], [4]]

    def test_long_episodes_are_cut(self):
        recording = Recording(2, 2, max_steps=3)
        for t in range(3):
            recording.add(self.step(float(t)), {0: End(False, True)} if t == 0 else {})
        assert recording.complete
        assert [(e.ending, len(e)) for e in recording.episodes] == [("success", 1), ("still running", 3)]

    def test_none_at_all_is_refused(self):
        with pytest.raises(ValueError, match="episodes and max_steps must be at least 1; got 0"):
            Recording(2, 0)


class Positions(torch.nn.Module):
    """phi is the observation."""

    dim = 6

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows


def walk(ridge: float, include_first: bool = True) -> tuple:
    """Forty steps through six rooms, seven each, scored by a Probe; the rest of the time in the last one."""
    bonus = Elliptical(Frozen(Positions()), ridge=ridge, include_first=include_first, unit_length=True)
    mixer = RewardMixer(beta=0.5, normaliser="none")
    probe, recording = Probe(bonus, mixer, 1), Recording(1, 1)
    rooms = np.eye(6, dtype=np.float32)
    probe.reset(rooms[:1])
    for t in range(1, 41):
        done = np.array([t == 40])
        at = rooms[min(t // 7, 5)][None]
        scored = probe.step(np.zeros(1, np.int64), at, np.zeros(1), done, {0: at[0]} if done[0] else {})
        step = {**probe.step_parts, "rewards": scored.total[:, None].astype(np.float64)}
        recording.add(step, {0: End(True)} if done[0] else {})
    return recording.episodes, Setup("a walk", beta=0.5, ridge=ridge, opens=include_first, unit_length=True)


class TestRidge:
    @pytest.mark.parametrize("include_first", [True, False])
    def test_the_bonus_is_recomputed_exactly_with_the_same_ridge(self, include_first):
        episodes, setup = walk(0.3, include_first)
        recorded = measures.stale_share(measures.phases([e.intrinsic for e in episodes]))
        assert measures.stale_share_at(episodes, setup, 1.0) == pytest.approx(recorded, rel=1e-4)

    def test_a_smaller_ridge_would_make_stale_steps_stale(self):
        episodes, setup = walk(300.0)
        assert measures.stale_share_at(episodes, setup, 1.0) > 0.9
        assert measures.stale_share_at(episodes, setup, 0.001) < 0.1
