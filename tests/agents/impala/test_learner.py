"""The learner against the equations written out, and what it promises about memories, weights and failures."""

import copy
import dataclasses
import io
import threading

import numpy as np
import pytest
import torch
from small_runs import LAVA, actor_with_weights, filled, small, started, written_out
from torch.nn import functional as F

from agents.impala.learner import Learner
from agents.impala.losses import _from_uniform
from e3b_gym.bonuses import METHODS
from e3b_gym.config import BonusConfig
from e3b_gym.errors import DivergedError
from e3b_gym.unroll import tree_leaves


def state_bytes(learner: Learner) -> bytes:
    """Everything the learner would save."""
    file = io.BytesIO()
    torch.save(learner.state_dict(), file)
    return file.getvalue()


def equal_states(one, other) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal_states(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal_states, one, other))
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def lagged(config, updates=2):
    """A learner some updates ahead of the policy that filled the rollout, and that rollout."""
    engine, learner = started(config)
    for _ in range(updates):
        with engine.rollout() as rollout:
            learner.learn(rollout)
    with engine.rollout() as rollout:
        return learner, rollout


def in_float64(policy):
    """A copy that computes in float64 above its trunk, which takes float32 only."""
    policy = copy.deepcopy(policy)
    policy.lstm.double(), policy.heads.double()
    policy.trunk.register_forward_hook(lambda _, __, features: features.double())
    return policy


def final_values_written_out(policy, rollout):
    """V of the terminal observation [T, B, heads] where a time limit ended an episode, stepped there; 0 elsewhere.

    `policy` is one of `in_float64`.
    """
    unroll = rollout.unroll()
    steps, envs = unroll.done.shape
    values = torch.zeros(steps, envs, policy.heads.out_features - policy.num_actions, dtype=torch.float64)
    for t in range(steps):
        for b in range(envs):
            if not (rollout.truncated[t, b] and rollout.terminal_known[t, b]):
                continue
            state = tuple(part[:, b : b + 1].double() for part in rollout.lstm_state())
            rows = [unroll.obs[i, b] for i in range(t + 1)] + [unroll.next_obs[t, b]]
            starts = [bool(unroll.starts[b])] + [bool(unroll.done[i, b]) for i in range(t)] + [False]
            for row, start in zip(rows, starts, strict=True):
                out = policy(row[None, None], torch.tensor([[start]]), state)
                state = out.state
            values[t, b] = out.values[0, 0].detach()
    return values


def losses_written_out(learner, rollout, bonus, sigma, terms):
    """IMPALA's three losses in float64, sums over time and means over environments in loops; and their gradients."""
    config, policy = learner.config, in_float64(learner.policy)
    unroll, reward = rollout.unroll(), torch.from_numpy(rollout.reward).double()
    starts = torch.cat([unroll.starts[None], unroll.done])
    out = policy(unroll.obs, starts, tuple(part.double() for part in rollout.lstm_state()))
    extrinsic, intrinsic = reward, learner.explorer.mixer.beta * bonus.double() / sigma
    gamma = config.gamma
    streams = [(extrinsic + intrinsic, gamma)]
    if config.value_heads == 2:
        streams = [(extrinsic, gamma), (intrinsic, config.intrinsic_gamma)]
    log_ratio = torch.empty(unroll.done.shape, dtype=torch.float64)
    steps, envs = unroll.done.shape
    for t in range(steps):
        for b in range(envs):
            a = unroll.action[t, b]
            pi, mu = out.logits[t, b].softmax(0)[a], unroll.policy_logits[t, b].double().softmax(0)[a]
            log_ratio[t, b] = (pi / mu).log().detach()
    if config.bootstrap_truncated:
        final = final_values_written_out(policy, rollout)
        streams = [(stream + gamma * final[..., head], gamma) for head, (stream, gamma) in enumerate(streams)]
    losses = {"policy_gradient": 0.0, "value": 0.0, "entropy": 0.0}
    total = torch.zeros_like(log_ratio)
    for head, (stream, gamma) in enumerate(streams):
        value = out.values[..., head]
        v, gain, weight = written_out(
            log_ratio,
            gamma * (~unroll.done).double(),
            stream,
            value[:-1].detach(),
            value[-1].detach(),
            1.0,
            1.0,
            config.gae_lambda,
        )
        advantage = gain if config.clip_range else weight * gain
        if head == 0 and terms is not None:
            advantage, v = advantage + config.agac_coef * terms[0], v + config.agac_coef * terms[1]
        total += advantage
        losses["value"] += config.vf_coef * ((v - value[:-1]) ** 2).sum() / 2 / envs
    if config.normalize_advantage:
        total = (total - total.mean()) / total.std()
    for t in range(steps):
        for b in range(envs):
            log_pi = out.logits[t, b].log_softmax(0)
            a, clip = unroll.action[t, b], config.clip_range
            high = config.clip_range_high or clip
            gained = total[t, b] * log_pi[a]
            if clip:
                ratio = log_pi.exp()[a] / unroll.policy_logits[t, b].double().softmax(0)[a]
                gained = min(total[t, b] * ratio, total[t, b] * ratio.clamp(1 - clip, 1 + high))
            losses["policy_gradient"] += -gained / envs
            losses["entropy"] += config.ent_coef * (log_pi.exp() * log_pi).sum() / envs
    gradients = torch.autograd.grad(sum(losses.values()), list(policy.parameters()))
    return {name: loss.item() for name, loss in losses.items()}, gradients


def agac_written_out(learner, unroll):
    """log mu(a) - log adv(a), and KL(mu || adv), by torch's own distributions."""
    adversary = next(part.adversary for part in learner.explorer.bonus.modules() if hasattr(part, "adversary"))
    with torch.no_grad():
        adv = torch.distributions.Categorical(
            logits=adversary(unroll.obs[:-1].flatten(0, 1)).view_as(unroll.policy_logits)
        )
    mu = torch.distributions.Categorical(logits=unroll.policy_logits)
    surprise = mu.log_prob(unroll.action) - adv.log_prob(unroll.action)
    return surprise.double(), torch.distributions.kl_divergence(mu, adv).double()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"method": "none"},
        {"gae_lambda": 0.8, "normalize_advantage": True},
        {"clip_range": 0.001},
        {"clip_range": 0.001, "clip_range_high": 0.01},
        {"value_heads": 2, "intrinsic_gamma": 0.7},
        {"method": "agac", "agac_coef": 0.5},
        {"method": "agac", "agac_coef": 0.5, "clip_range": 0.2, "normalize_advantage": True},
        {"method": "agac", "agac_coef": 0.5, "value_heads": 2, "intrinsic_gamma": 0.7},
        {"bootstrap_truncated": True},
        {"bootstrap_truncated": True, "value_heads": 2, "intrinsic_gamma": 0.7, "gae_lambda": 0.8},
    ],
    ids=str,
)
def test_losses_and_gradients_are_the_papers(options):
    config = small(learning_rate=1e-3, ent_coef=0.1, max_grad_norm=1e9, **options)
    learner, rollout = lagged(config)
    rollout.reward[:] = np.random.default_rng(0).normal(size=rollout.reward.shape)
    mix_endings(rollout)
    unroll = rollout.unroll()
    twin = copy.deepcopy((learner.explorer.bonus, learner.explorer.memory, learner.explorer.mixer))
    bonus = twin[0].score(twin[0].embed(unroll), unroll, twin[1])
    twin[2].update(bonus[unroll.valid])
    terms = agac_written_out(learner, unroll) if config.method == "agac" else None
    wanted, gradients = losses_written_out(learner, rollout, bonus, twin[2].sigma, terms)
    stats = learner.learn(rollout)[0]
    for name, loss in wanted.items():
        assert stats[f"loss_{name}"] == pytest.approx(loss, rel=1e-4, abs=1e-5), name
    for weight, gradient in zip(learner.policy.parameters(), gradients, strict=True):
        torch.testing.assert_close(weight.grad, gradient.float(), rtol=1e-3, atol=1e-4)
    assert abs(stats["importance_ratio"] - 1) > 1e-3  # the policies did differ
    assert stats["policy_lag"] == 2


def mix_endings(rollout):
    """Of the time limits that ended all 4 episodes of the rollout, one becomes a death and one a blanked screen."""
    steps, envs = np.nonzero(rollout.truncated)
    assert len(steps) == 4
    rollout.truncated[steps[1], envs[1]] = False
    rollout.terminal_known[steps[2], envs[2]] = False


def test_what_follows_a_time_limit_reaches_the_loss_only_if_it_is_bootstrapped():
    """The terminal observation decides the value that is added, and only there."""
    losses = {}
    for bootstrap in (False, True):
        for shift in (0.0, 5.0):
            learner, rollout = lagged(small(method="none", bootstrap_truncated=bootstrap), updates=1)
            rollout.terminal_obs[:] += shift
            losses[bootstrap, shift] = learner.learn(rollout)[0]["loss_value"]
    assert losses[False, 0.0] == losses[False, 5.0]
    assert losses[True, 0.0] != losses[True, 5.0]
    assert losses[True, 0.0] != losses[False, 0.0]


def test_columns_in_several_batches_bootstrap_their_own_time_limits():
    """A batch takes the terminal observations of its columns: the values are those of all columns at once."""
    whole = small(method="none", bootstrap_truncated=True, env="CartPole-v1", env_options={"max_episode_steps": 9})
    whole = dataclasses.replace(whole, n_steps=30, learning_rate=1e-30)
    parts = dataclasses.replace(whole, batch_size=30)
    actor, learner = actor_with_weights(whole)
    rollout = filled(actor, whole)
    assert 0 < rollout.truncated.sum() < rollout.done.sum() + 1
    halves = Learner(parts, actor.envs.single_observation_space, actor.envs.single_action_space)
    wanted = learner.learn(rollout)[0]["loss_value"]
    assert np.mean([stats["loss_value"] for stats in halves.learn(rollout)]) == pytest.approx(wanted, rel=1e-4)


def test_further_passes_train_the_policy_alone_on_the_rewards_of_the_first():
    """Memories, normaliser and encoder see each frame once, however often the policy learns from it."""
    once, again = small(batch_size=12, clip_range=0.2), small(batch_size=12, clip_range=0.2, n_epochs=3)
    actor, one = actor_with_weights(once)
    rollout = filled(actor, once)
    three = Learner(again, actor.envs.single_observation_space, actor.envs.single_action_space)
    assert [len(learner.learn(rollout)) for learner in (one, three)] == [2, 6]
    for part in ("explorer", "frames", "version"):
        assert equal_states(one.state_dict()[part], three.state_dict()[part]), part
    moved = [
        float((a - b).abs().max().detach())
        for a, b in zip(one.policy.parameters(), three.policy.parameters(), strict=True)
    ]
    assert max(moved) > 0


@pytest.mark.parametrize("method", ["e3b", "e3b-policy", "agac"])
def test_two_threads_learn_what_one_does(method):
    """Encoder and policy side by side, two updates of two batches: the same bytes."""
    states, embedded_in = [], []
    for threads in (1, 2):
        engine, learner = started(small(method=method, batch_size=12, threads=threads))
        bonus, embed = learner.explorer.bonus, learner.explorer.bonus.embed
        bonus.embed = lambda *a, e=embed: (embedded_in.append(threading.current_thread().name), e(*a))[1]
        for _ in range(2):
            with engine.rollout() as rollout:
                learner.learn(rollout)
            engine.publish(learner.policy, learner.version)
        engine.close()
        states.append(learner.state_dict())
    assert equal_states(*states)
    assert embedded_in == ["MainThread"] * 4 + ["encoder_0"] * 4


def test_schedules_run_linearly_from_the_first_value_to_the_last():
    """Over 4 rollouts of 24 frames; beyond the run's steps the last value stays."""
    config = small(steps=96, learning_rate=0.01, learning_rate_final=0.002, ent_coef=0.1, ent_coef_final=0.0)
    engine, learner = started(config)
    seen = []
    for _ in range(6):
        with engine.rollout() as rollout:
            stats = learner.learn(rollout)[0]
        seen.append((stats["learning_rate"], stats["ent_coef"]))
        assert {group["lr"] for group in learner.policy_optimizer.param_groups} == {stats["learning_rate"]}
        assert stats["loss_entropy"] == pytest.approx(-stats["ent_coef"] * stats["policy_entropy"] * 6, rel=1e-5)
    engine.close()
    np.testing.assert_allclose([rate for rate, _ in seen], [0.01, 0.008, 0.006, 0.004, 0.002, 0.002])
    np.testing.assert_allclose([weight for _, weight in seen], [0.1, 0.075, 0.05, 0.025, 0.0, 0.0], atol=1e-12)


def test_the_divergence_from_uniform_follows_its_schedule():
    """Its weight decreases by the same factor with every step; a uniform policy, whose logits are 0, has none."""
    config = small(steps=48, uniform_coef=0.2, uniform_coef_final=0.002)
    engine, learner = started(config)
    with torch.no_grad():
        for weight in learner.policy.heads.parameters():
            weight.zero_()
    seen = []
    for _ in range(3):
        with engine.rollout() as rollout:
            seen.append(learner.learn(rollout)[0])
    engine.close()
    assert [stats["uniform_coef"] for stats in seen] == pytest.approx([0.2, 0.02, 0.002])
    assert seen[0]["loss_uniform"] == pytest.approx(0.0, abs=1e-6)
    assert seen[1]["loss_uniform"] > 1e-8


def test_a_weight_of_zero_takes_the_divergence_from_uniform_away():
    learner, rollout = lagged(small(uniform_coef=0.0), updates=0)
    assert "loss_uniform" not in learner.learn(rollout)[0]


def test_a_last_weight_without_a_first_one_is_refused():
    with pytest.raises(ValueError, match="uniform_coef_final ends uniform_coef, which is 0"):
        small(uniform_coef_final=0.1)


def test_every_schedule_is_in_effect_and_not_only_in_the_log():
    """After the last frame a rollout is learned from as in a run that has had the last values from the start."""
    first = {"ent_coef": 0.1, "uniform_coef": 0.2, "clip_range_high": 4.0, "learning_rate": 0.01}
    last = {"ent_coef": 0.01, "uniform_coef": 0.02, "clip_range_high": 0.5, "learning_rate": 0.001}
    common = small(steps=24, n_epochs=2, clip_range=0.01, **last)
    schedule = dataclasses.replace(common, **first, **{f"{name}_final": value for name, value in last.items()})
    ends = []
    for config in (common, schedule):
        learner, rollout = lagged(config, updates=0)
        learner.frames = config.steps
        learner.learn(rollout)
        ends.append(learner.state_dict()["policy"])
    assert equal_states(*ends)


def test_the_divergence_from_uniform_pulls_at_improbable_actions_where_the_entropy_does_not():
    """The pull on the logit of an action of probability p is 1/A - p, and that of the entropy vanishes with p."""
    logits = torch.tensor([[[0.0, 0.0, -12.0]]], requires_grad=True)
    log_pi = F.log_softmax(logits, -1)
    (from_uniform,) = torch.autograd.grad(_from_uniform(log_pi).sum(), logits, retain_graph=True)
    (entropy,) = torch.autograd.grad((log_pi.exp() * log_pi).sum(), logits)
    torch.testing.assert_close(from_uniform, log_pi.exp().detach() - 1 / 3)
    assert abs(entropy[0, 0, 2]) < 1e-4 < abs(from_uniform[0, 0, 2])
    assert float(_from_uniform(torch.full((1, 1, 5), 0.2).log())) == pytest.approx(0.0, abs=1e-6)


def test_the_upper_clip_follows_its_schedule():
    """At the end of the run the update is that of a run with the last value."""
    schedule = small(steps=24, n_epochs=2, clip_range=0.001, clip_range_high=4.0, clip_range_high_final=0.001)
    ends = []
    for config in (schedule, dataclasses.replace(schedule, clip_range_high=0.001, clip_range_high_final=None)):
        learner, rollout = lagged(config, updates=0)
        learner.frames = config.steps
        assert learner.learn(rollout)[0].get("clip_range_high", 0.001) == 0.001
        ends.append(learner.state_dict())
    assert equal_states(*ends)
    learner, rollout = lagged(schedule, updates=0)
    learner.frames = config.steps // 2
    assert learner.learn(rollout)[0]["clip_range_high"] == pytest.approx(2.0005)
    assert not equal_states(learner.state_dict(), ends[0])


def test_the_weight_of_the_bonus_follows_its_schedule_and_survives_loading():
    config = small(steps=48, bonus=BonusConfig.of("e3b", beta=0.5), beta_final=0.1)
    engine, learner = started(config)
    for weight in (0.5, 0.3, 0.1):
        with engine.rollout() as rollout:
            assert learner.learn(rollout)[0]["beta"] == pytest.approx(weight)
        assert learner.explorer.mixer.intrinsic(torch.ones(())) * learner.explorer.mixer.sigma == pytest.approx(weight)
    engine.close()
    _, again = started(config)
    again.load_state_dict(learner.state_dict())
    assert again.explorer.mixer.beta == pytest.approx(0.1)


@pytest.mark.parametrize("count", [-1, 2**70, 1.5, "7", None])
@pytest.mark.parametrize("name", ["version", "frames", "updates"])
def test_impossible_counts_are_not_loaded(name, count):
    """Actors store the version in 64 bits."""
    _, learner = started(small())
    with pytest.raises(ValueError, match=f"{name} must be"):
        learner.load_state_dict({**learner.state_dict(), name: count})


def test_without_schedules_rates_are_constant():
    learner, rollout = lagged(small(learning_rate=0.01))
    stats = learner.learn(rollout)[0]
    assert not {"learning_rate", "ent_coef", "clip_range_high", "beta"} & stats.keys()
    assert learner.policy_optimizer.param_groups[0]["lr"] == 0.01


def test_gradients_are_clipped_to_the_length_asked_for():
    learner, rollout = lagged(small(max_grad_norm=0.01, encoder_max_grad_norm=0.001), updates=1)
    stats = learner.learn(rollout)[0]
    for length, weights, limit in (
        (stats["policy_grad_norm"], learner.policy.parameters(), 0.01),
        (stats["encoder_grad_norm"], learner.explorer.bonus.parameters(), 0.001),
    ):
        assert length > limit  # the norm before clipping
        assert torch.stack([w.grad.norm() for w in weights if w.grad is not None]).norm() == pytest.approx(
            limit, rel=1e-4
        )


def test_the_encoder_embeds_each_unroll_once():
    learner, rollout = lagged(small(batch_size=12), updates=0)
    rows = []
    learner.explorer.bonus.representation.encoder.register_forward_hook(
        lambda _, inputs, __: rows.append(len(inputs[0]))
    )
    learner.learn(rollout)
    ends = [int(rollout.terminal_known[:, columns].sum()) for columns in (slice(0, 2), slice(2, 4))]
    assert rows == [(6 + 1) * 2 + k for k in ends]


def columns_at_a_time(columns, method):
    """Mean bonus and memory after three rollouts with ends here and there, each learned `columns` columns at a time."""
    config = small(batch_size=columns and 30 * columns, method=method, env="CartPole-v1", env_options={}, n_steps=30)
    engine, learner = started(config)
    bonuses = []
    for _ in range(3):
        with engine.rollout() as rollout:  # the actor keeps its first weights, so all see the same rollouts
            bonuses.append(np.mean([stats["bonus"] for stats in learner.learn(rollout)]))
    return bonuses, learner.explorer.memory.state_dict()


@pytest.mark.parametrize("method", ["e3b-random", "count"])
@pytest.mark.parametrize("columns", [1, 2])
def test_columns_in_several_batches_get_the_bonus_of_one_batch(method, columns):
    bonuses, memory = columns_at_a_time(columns, method)
    wanted, whole = columns_at_a_time(None, method)
    np.testing.assert_allclose(bonuses, wanted, rtol=1e-4)
    assert memory.keys() == whole.keys()
    for name, part in memory.items():
        close = (
            torch.allclose(part, whole[name], rtol=1e-3, atol=1e-4) if torch.is_tensor(part) else part == whole[name]
        )
        assert close, name


@pytest.mark.parametrize("method", ["e3b-random", "count", "noveld"])
def test_interleaved_unrolls_of_two_actors_get_the_bonus_of_each_alone(method):
    config = small(engine="process", actors=2, method=method, encoder_learning_rate=1e-30)
    actors = [actor_with_weights(config, number)[0] for number in (0, 1)]
    spaces = actors[0].envs.single_observation_space, actors[0].envs.single_action_space
    rollouts = [(number, filled(actors[number], config)) for number in (0, 1, 0, 0, 1, 1, 0)]
    together = Learner(config, *spaces)
    alone = [Learner(config, *spaces) for _ in range(2)]
    for number, rollout in rollouts:
        mean_bonus = together.learn(rollout)[0]["bonus"]
        assert mean_bonus == pytest.approx(alone[number].learn(rollout)[0]["bonus"], rel=1e-5)
        assert mean_bonus > 0


def test_policy_features_come_from_the_learners_present_weights():
    learner, rollout = lagged(small(method="e3b-policy"))
    unroll = rollout.unroll()
    flat = unroll.obs.flatten(0, 1)
    before = learner.policy.encode(flat).detach()
    features = learner.explorer.bonus.embed(unroll)
    assert torch.equal(features.trajectory.flatten(0, 1), before)
    assert not features.trajectory.requires_grad
    assert learner.explorer.optimizer is None
    stats = learner.learn(rollout)[0]
    assert stats["bonus"] > 0
    assert not torch.equal(learner.explorer.bonus.embed(unroll).trajectory.flatten(0, 1), before)
    assert learner.explorer.memory.dim == learner.policy.dim


DICT = {"env_options": {"max_steps": 7}}
MESSAGES = {**LAVA, "env_options": {"max_steps": 4}, "n_envs": 2, "n_steps": 5}


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_takes_updates(method):
    env_settings = (
        DICT if method.endswith(("position", "image", "subsampled")) else MESSAGES if method.endswith("message") else {}
    )
    engine, learner = started(small(method=method, **env_settings))
    before = copy.deepcopy(learner.policy.state_dict())
    encoder = [weight.clone() for weight in learner.explorer.bonus.parameters() if weight.requires_grad]
    try:
        for _ in range(2):
            with engine.rollout() as rollout:
                stats = learner.learn(rollout)
            engine.publish(learner.policy, learner.version)
    finally:
        engine.close()
    assert all(np.isfinite(list(stats[0].values())))
    assert not equal_states(before, dict(learner.policy.state_dict()))
    trained = [weight for weight in learner.explorer.bonus.parameters() if weight.requires_grad]
    assert not encoder or not all(map(torch.equal, encoder, trained))
    assert (stats[0]["bonus"] != 0) == (method not in ("none", "agac-nocount"))


def poison_reward(learner, rollout):
    rollout.reward[2, 1] = np.nan


def poison_observation(learner, rollout):
    rollout.obs[3, 1, 4] = np.inf


def poison_inverse_model(learner, rollout):
    next(learner.explorer.bonus.representation.inverse.parameters()).data[0] = torch.nan


def poison_values(learner, rollout):
    learner.policy.heads.bias.data[-1] = torch.inf


def poison_gradient(learner, rollout):
    learner.policy.heads.weight.register_hook(lambda gradient: gradient * torch.inf)


def poison_encoder_gradient(learner, rollout):
    next(learner.explorer.bonus.parameters()).register_hook(lambda gradient: gradient * torch.nan)


def without_memory(learner):
    """What an update that fails must leave as it was."""
    state = learner.state_dict()
    explorer = {key: value for key, value in state.pop("explorer").items() if key not in ("memory", "mixer")}
    return {**state, **explorer}


@pytest.mark.parametrize(
    ("poison", "named"),
    [
        (poison_reward, "the reward has NaN"),
        (poison_observation, "the bonus cannot be computed.*phi has"),
        (poison_inverse_model, "the loss 'inverse' has NaN"),
        (poison_values, "the loss '(policy_gradient|value)' has NaN"),
        (poison_gradient, r"the gradient of policy_gradient \+ value \+ entropy has NaN"),
        (poison_encoder_gradient, "the gradient of inverse has NaN"),
    ],
)
def test_values_that_are_not_finite_are_named_and_change_no_weights(poison, named):
    learner, rollout = lagged(small())
    memory = learner.explorer.memory.state_dict()
    poison(learner, rollout)
    before = copy.deepcopy(without_memory(learner))
    with pytest.raises(DivergedError, match=named):
        learner.learn(rollout)
    assert same_numbers(before, without_memory(learner))
    after = learner.explorer.state_dict()
    if poison in (poison_reward, poison_observation):
        assert equal_states(memory, after["memory"])
    assert all(torch.isfinite(leaf).all() for leaf in tree_leaves(after["memory"]) if torch.is_tensor(leaf))
    assert np.isfinite(learner.explorer.mixer.sigma)


def same_numbers(one, other) -> bool:
    """Equal, where NaN equals NaN."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same_numbers(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return all(map(same_numbers, one, other))
    return torch.allclose(one, other, 0, 0, equal_nan=True) if isinstance(one, torch.Tensor) else one == other


def test_after_a_bad_reward_training_can_continue():
    learner, rollout = lagged(small())
    good = rollout.reward.copy()
    poison_reward(learner, rollout)
    with pytest.raises(DivergedError):
        learner.learn(rollout)
    rollout.reward[:] = good
    twin, same_rollout = lagged(small())
    learner.learn(rollout)
    twin.learn(same_rollout)
    assert equal_states(learner.state_dict(), twin.state_dict())


@pytest.mark.parametrize("method", ["e3b", "agac", "noveld", "e3b-policy"])
def test_a_saved_learner_continues_with_the_same_numbers(method):
    learner, rollout = lagged(small(method=method))
    saved = torch.load(io.BytesIO(state_bytes(learner)), weights_only=True)
    other, _ = lagged(small(method=method, seed=9), updates=0)
    other.load_state_dict(saved)
    for _ in range(2):
        learner.learn(rollout)
        other.learn(rollout)
    assert equal_states(learner.state_dict(), other.state_dict())
    assert other.frames == 4 * 6 * 4


def test_learning_leaves_the_rollout_as_it_is():
    learner, rollout = lagged(small(batch_size=12))
    before = copy.deepcopy(rollout)
    learner.learn(rollout)
    for name in vars(before):
        pairs = zip(tree_leaves(getattr(before, name)), tree_leaves(getattr(rollout, name)), strict=True)
        assert all(np.array_equal(a, b) for a, b in pairs), name


def test_policy_and_encoder_start_with_other_weights():
    """One seed for both would make phi a copy of the policy's trunk."""
    _, learner = started(small(dim=256))
    trunk, phi = learner.policy.trunk.state_dict(), learner.explorer.bonus.representation.encoder.state_dict()
    weights = [name for name in trunk if name.endswith("weight") and name in phi]
    assert weights
    assert not any(torch.equal(trunk[name], phi[name]) for name in weights)


def test_unknown_terminal_observations_get_no_bonus_and_do_not_change_the_scale():
    learner, rollout = lagged(small(method="e3b-random", n_steps=10), updates=0)
    rollout.terminal_known[:] = False
    learner.learn(rollout)
    assert rollout.done.any()
    assert learner.explorer.mixer.state_dict()["count"] == (~rollout.done).sum()


def test_stages_are_timed():
    learner, _ = lagged(small(), updates=1)
    assert set(learner.seconds) == {"embed", "score", "encoder", "policy", "optimisers"}
    assert all(seconds > 0 for seconds in learner.seconds.values())


@pytest.mark.parametrize(("optimizer", "first_step"), [("adam", 1.0), ("rmsprop", 10.0)])
def test_the_first_step_tells_the_optimizers_apart(optimizer, first_step):
    """Adam's first step is its learning rate; RMSprop's is that over the root of 1 - alpha."""
    learner, rollout = lagged(small(optimizer=optimizer, learning_rate=1e-3, rms_alpha=0.99), updates=0)
    before = copy.deepcopy(learner.policy)
    learner.learn(rollout)
    pairs = zip(before.parameters(), learner.policy.parameters(), strict=True)
    longest = max(float((old - new).detach().abs().max()) for old, new in pairs)
    assert longest == pytest.approx(first_step * 1e-3, rel=0.05)
