"""The inline engine: the same seed gives the same bytes."""

import pytest
import torch
from small_runs import LAVA, small, started, train

from agents.impala.engines import make_engine, register_engine
from agents.impala.engines.inline import InlineEngine
from agents.impala.training import Training


def same_weights(one, other):
    pairs = [(one.policy, other.policy), (one.explorer.bonus, other.explorer.bonus)]
    return all(
        torch.equal(a, b) for ours, theirs in pairs for a, b in zip(ours.parameters(), theirs.parameters(), strict=True)
    )


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 12},
        {"method": "agac"},
        {**LAVA, "env_options": {"max_steps": 6}, "n_envs": 2, "n_steps": 8},
    ],
    ids=["rooms", "agac", "minihack"],
)
def test_the_same_seed_gives_the_same_bytes_and_another_does_not(options):
    torch.manual_seed(1)
    one = train(small(**options), rollouts=3)
    torch.manual_seed(2)  # the global generator has no say
    assert same_weights(one, train(small(**options), rollouts=3))
    assert not same_weights(one, train(small(**options, seed=1), rollouts=3))


def test_without_new_weights_the_rollouts_stay_behind():
    engine, learner = started(small())
    lags = []
    for update in range(4):
        with engine.rollout() as rollout:
            lags.append(learner.learn(rollout)[0]["policy_lag"])
        if update == 1:
            engine.publish(learner.policy, learner.version)
    assert lags == [0, 1, 0, 1]


def test_training_leaves_the_threads_of_pytorch_as_they_were():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with Training(small(threads=1, steps=24)) as training:
            assert torch.get_num_threads() == 2
            assert [torch.get_num_threads() for _ in training] == [2]
    finally:
        torch.set_num_threads(before)


def test_published_weights_are_copies():
    engine, learner = started(small())
    with torch.no_grad():
        learner.policy.heads.bias.fill_(torch.nan)
    with engine.rollout() as rollout:
        assert not torch.from_numpy(rollout.logits).isnan().any()


def test_a_resumed_run_gets_new_environments():
    config = small(env_options={"max_steps": 7})
    first = make_engine(config)
    assert isinstance(first, InlineEngine)
    again, continued = make_engine(config), make_engine(config, first.state_dict())
    _, learner = started(config)
    rows = []
    for engine in (first, again, continued):
        engine.publish(learner.policy, 0)
        with engine.rollout() as rollout:
            rows.append(rollout.obs["view"].copy())
    assert (rows[0] == rows[1]).all()
    assert (rows[0] != rows[2]).any()
    assert first.state_dict() == {"starts": [1]}
    assert continued.state_dict() == {"starts": [2]}


def test_a_second_engine_of_the_same_name_is_refused():
    with pytest.raises(ValueError, match="there is an engine 'inline' already"):
        register_engine("inline", make_engine)
