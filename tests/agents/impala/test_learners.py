"""Data-parallel learners: K learners with a part of the environments each learn like one with all of them."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta

import gymnasium as gym
import numpy as np
import psutil
import pytest
import torch
from small_runs import actor_with_weights, filled, small
from stable_baselines3.common.vec_env import DummyVecEnv

from agents import IMPALA
from agents.impala import group, team
from agents.impala.actor import make_envs
from agents.impala.group import Group, LearnerError, LearnersDifferError, PeerLostError, find_store, open_store
from agents.impala.learner import Learner
from agents.impala.rollout import Rollout
from e3b_gym.config import BonusConfig
from e3b_gym.errors import DivergedError
from e3b_gym.unroll import tree_map

CPU = torch.device("cpu")


def together(size, work):
    """work(group) of `size` learners at the same time, in threads with real gloo between them; results by rank."""
    store = open_store("127.0.0.1")

    def member(rank):
        mine = store if rank == 0 else find_store("127.0.0.1", store.port)
        return work(Group(rank, size, mine, CPU, "127.0.0.1"))

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(member, range(size)))


def some_envs(rollout, envs):
    """The part of a rollout that a learner with these environments has."""
    parts = {}
    for name, array in vars(rollout).items():
        axis = {"starts": 0, "state": 2, "header": None}.get(name, 1)
        cut = (slice(None),) * (axis or 0) + (envs,)
        parts[name] = array if axis is None else tree_map(lambda leaf, cut=cut: np.ascontiguousarray(leaf[cut]), array)
    return Rollout(**parts)


def learned(learner, rollouts, group=None):
    """The learner after these rollouts, its statistics and its last gradients."""
    learner.join(group)
    stats = [learner.learn(rollout) for rollout in rollouts]
    weights = [*learner.policy.parameters(), *learner.explorer.bonus.parameters()]
    return learner, stats, [None if weight.grad is None else weight.grad.clone() for weight in weights]


METHODS = ["none", "e3b", "e3b-policy", "e3b-x-noveld", "ride", "agac", "rnd", "icm", "noveld", "count"]
OPTIONS = {
    "impala": {},
    "ppo": {"normalize_advantage": True, "clip_range": 0.2, "n_epochs": 2, "optimizer": "adam"},
    "minibatches": {"batch_size": 12, "bootstrap_truncated": True, "value_heads": 2},
    "threads": {"threads": 2, "normalize_advantage": True},
}


@pytest.mark.parametrize(
    ("method", "options", "preset"),
    [(method, OPTIONS["impala"], "paper") for method in METHODS]
    + [("e3b", options, "paper") for options in OPTIONS.values()]
    + [("e3b", {}, "authors"), ("e3b", OPTIONS["ppo"], "default")],
)
def test_two_learners_with_half_the_environments_take_the_steps_of_one_with_all(method, options, preset):
    config = small(**{"bonus": BonusConfig.of(method, preset), "learners": 2, **options})
    one = small(**{"bonus": BonusConfig.of(method, preset), **options})
    actor, _ = actor_with_weights(one)
    spaces = actor.envs.single_observation_space, actor.envs.single_action_space
    rollouts = [filled(actor, one) for _ in range(2)]
    for rollout in rollouts:
        rollout.terminal_known[:, -1] = False  # one learner has fewer steps whose arrival is known
    columns = one.columns
    whole, stats, gradients = learned(Learner(one, *spaces), rollouts)
    learners = [Learner(config.part(rank), *spaces) for rank in range(2)]

    def part(group):  # every update has the same columns in both runs, half of them here
        half = columns // 2
        first = np.arange(config.n_envs).reshape(-1, columns)[:, half * group.rank : half * (group.rank + 1)].ravel()
        return learned(learners[group.rank], [some_envs(r, first) for r in rollouts], group)

    parts = together(2, part)
    assert parts[0][0].checksum() == parts[1][0].checksum()
    assert {learner.frames for learner, _, _ in parts} == {whole.frames}
    for _, _, theirs in parts:
        for mine, other in zip(gradients, theirs, strict=True):
            if mine is not None:
                torch.testing.assert_close(other, mine, rtol=2e-3, atol=2e-6)
    assert parts[0][0].explorer.mixer.sigma == pytest.approx(whole.explorer.mixer.sigma, rel=1e-4)
    assert parts[0][1][0][0]["policy_grad_norm"] == pytest.approx(stats[0][0]["policy_grad_norm"], rel=1e-4)


def test_gradients_without_an_average_would_differ():
    """The test above can fail: the halves alone have other gradients than the whole."""
    config = small(learners=2)
    actor, _ = actor_with_weights(small())
    spaces = actor.envs.single_observation_space, actor.envs.single_action_space
    rollout = filled(actor, small())
    learners = [Learner(config.part(rank), *spaces) for rank in range(2)]
    halves = [learned(learners[rank], [some_envs(rollout, np.arange(2) + 2 * rank)])[2] for rank in range(2)]
    assert not all(torch.allclose(a, b, rtol=1e-2) for a, b in zip(*halves, strict=True) if a is not None)


def test_weights_that_differ_in_one_bit_stop_all_learners():
    def work(group):
        learner = learners[group.rank]
        group.control.check_equal(learner.checksum(), 0)
        if group.rank == 1:
            with torch.no_grad():
                learner.policy.heads.bias[0] = torch.nextafter(learner.policy.heads.bias[0], torch.tensor(9.0))
        with pytest.raises(LearnersDifferError, match="2 learners differ at frame 1,000"):
            group.control.check_equal(learner.checksum(), 1000)

    actor, _ = actor_with_weights(small())
    spaces = actor.envs.single_observation_space, actor.envs.single_action_space
    learners = [Learner(small(learners=2).part(rank), *spaces) for rank in range(2)]
    together(2, work)


def test_values_of_any_size_arrive_in_order():
    def work(group):
        received = group.control.send_to_all({"order": "learn"} if group.rank == 0 else None)
        return received, group.control.collect(["x" * 10 ** (3 * group.rank), torch.arange(group.rank)])

    (received, collected), *others = together(3, work)
    assert [received, *(order for order, _ in others)] == [{"order": "learn"}] * 3
    assert [len(text) for text, _ in collected] == [1, 1000, 1000000]
    assert [len(numbers) for _, numbers in collected] == [0, 1, 2]
    assert [values for _, values in others] == [[], []]


def test_an_exchange_waits_for_a_learner_that_comes_late(monkeypatch):
    monkeypatch.setattr(group, "_LOOK", timedelta(seconds=0.01))

    def work(group):
        weight = torch.zeros(3)
        weight.grad = torch.full((3,), 1.0 + group.rank)
        time.sleep(0.5 * group.rank)  # many looks of learner 0
        group.policy.add_up([weight])()
        return weight.grad.tolist(), group.policy.seconds

    (mine, waited), (theirs, _) = together(2, work)
    assert mine == theirs == [3.0, 3.0, 3.0]
    assert waited > 0.3


def test_a_wait_ends_when_this_learner_leaves():
    def work(group):
        if group.rank == 1:
            return left.wait(60)
        weight = torch.zeros(3)
        weight.grad = torch.ones(3)
        wait = group.policy.add_up([weight])
        group.close()
        with pytest.raises(PeerLostError, match="this learner has left the others"):
            wait()
        left.set()
        return True

    left = threading.Event()
    assert together(2, work) == [True, True]


SMALL = {"engine": "inline", "n_envs": 4, "n_steps": 8, "lstm": 8, "dim": 8, "seed": 1}


def test_a_model_with_two_learners_learns_saves_and_resumes_with_one(tmp_path):
    model = IMPALA("Rooms-K4-v0", env_options={"max_steps": 7}, learners=2, **SMALL)
    updates = list(model.updates(96))
    assert [update.frames for update in updates] == [32, 64, 96]
    assert [update.done.shape for update in updates] == [(8, 4)] * 3
    assert sum(len(update.episodes.lengths) for update in updates) == 4 * (24 // 7)  # those of both learners
    assert set(np.concatenate([update.episodes.lengths for update in updates])) == {7}
    assert {"exchange", "policy"} <= set(model.seconds)
    state = model.state_dict()
    assert state["engine"] == {"starts": [1, 1]}
    assert len(state["memories"]) == 1
    model.save(tmp_path / "model")
    alone = IMPALA.load(tmp_path / "model", learners=1)
    assert alone.num_timesteps == 96
    assert alone.learner.checksum() == model.learner.checksum()
    alone.learn(32, reset_num_timesteps=False)
    assert alone.state_dict()["engine"] == {"starts": [2, 1]}  # learner 1's environments are not met again
    assert alone.num_timesteps == 128
    alone.save(tmp_path / "alone")
    again = IMPALA.load(tmp_path / "alone", learners=2)
    again.learn(32, reset_num_timesteps=False)
    assert again.state_dict()["engine"] == {"starts": [3, 2]}
    assert again.num_timesteps == 160


def test_a_killed_learner_stops_the_others_and_leaves_no_process():
    model = IMPALA("Rooms-K4-v0", learners=2, **SMALL)
    updates = model.updates(10**6)
    next(updates)
    (other,) = psutil.Process().children()
    other.kill()
    with pytest.raises(LearnerError, match=r"^learner 1 ended with signal 9 \(Killed\); all learners stopped$"):
        list(updates)
    assert not psutil.Process().children()
    state = model.state_dict()
    assert state["engine"] == {"starts": [1, 51]}  # far enough that no seed of its actors is used again
    assert state["memories"] == [None]


def test_weights_that_differ_during_training_stop_the_run():
    model = IMPALA("Rooms-K4-v0", learners=2, **SMALL)
    updates = model.updates(10**6)
    next(updates)
    with torch.no_grad():
        bias = model.learner.policy.heads.bias
        bias[0] = torch.nextafter(bias[0], torch.tensor(9.0))
    with pytest.raises(LearnersDifferError, match="the weights of the 2 learners differ at frame 512"):
        list(updates)
    assert not psutil.Process().children()


@contextmanager
def stopped_peer():
    """The updates of a run of two learners of which the other one has been stopped, as by a machine that hangs."""
    model = IMPALA("Rooms-K4-v0", learners=2, **SMALL)
    updates = model.updates(10**6)
    next(updates)
    (other,) = psutil.Process().children()
    other.suspend()
    try:
        yield updates
    finally:
        if other.is_running():
            other.kill()


def test_a_learner_without_a_heartbeat_stops_the_others(monkeypatch):
    monkeypatch.setattr(group, "_PULSE_SECONDS", 0.2)  # here; the other learner gives one every 5 seconds
    monkeypatch.setattr(group, "_SILENCE_SECONDS", 7.0)
    monkeypatch.setattr(team, "_REPORT_SECONDS", 0.1)
    lost = r"^learner 1 has had no heartbeat for 7 seconds; all learners stopped$"
    with stopped_peer() as updates, pytest.raises(LearnerError, match=lost):
        list(updates)
    assert not psutil.Process().children()


@pytest.fixture
def interruptible():
    """Python's own handler of SIGINT: a shell's background jobs inherit an ignored one."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_reaches_a_learner_that_waits_for_another():
    with stopped_peer() as updates:
        began = time.monotonic()
        timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            list(updates)
        assert time.monotonic() - began < 20
    assert not psutil.Process().children()


def broken_elsewhere(error):
    """Makes environments in this process; in another one it raises the error, or kills the process for None."""
    home = os.getpid()

    def make():
        if os.getpid() != home:
            if error is None:
                os.kill(os.getpid(), signal.SIGKILL)
            raise error
        return gym.make("CartPole-v1")

    return make


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (ValueError("the other machine has no such maze"), ValueError, r"^.*no such maze \(learner 1\)$"),
        (None, LearnerError, r"^learner 1 ended with signal 9 \(Killed\); all learners stopped$"),
    ],
)
def test_a_learner_that_cannot_start_is_named_at_once(error, kind, message):
    with pytest.raises(kind, match=message):
        IMPALA(broken_elsewhere(error), learners=2, **SMALL).learn(1000)
    assert not psutil.Process().children()


def test_a_learner_that_dies_before_the_connections_are_made_is_named(monkeypatch):
    """After it has told that it is there, learner 0 would wait for its address."""
    dies = """
import os, signal, sys, cloudpickle
from agents.impala.group import find_store
membership = cloudpickle.loads(sys.stdin.buffer.read())
find_store(membership.host, membership.port).set("learner 1 has joined", "")
os.kill(os.getpid(), signal.SIGKILL)
"""
    monkeypatch.setattr(team, "_PROGRAM", dies)
    with pytest.raises(LearnerError, match=r"^learner 1 ended with signal 9 \(Killed\); all learners stopped$"):
        IMPALA("Rooms-K4-v0", learners=2, **SMALL).learn(1000)


def test_a_learner_that_only_noticed_a_loss_says_so_however_often_it_is_asked(monkeypatch):
    outcome = json.dumps(dataclasses.asdict(team.Outcome("lost", "lost another learner"))).encode()
    report = f"import os, sys; sys.stdin.buffer.read(); os.write(int(sys.argv[2]), {outcome!r}); os._exit(1)"
    monkeypatch.setattr(team, "_PROGRAM", report)
    member = team.ThisMachine().start(team.Membership(small(learners=2), make_envs, 1, [], "127.0.0.1", 1))
    while (reason := member.reason()) is None:
        time.sleep(0.02)
    assert isinstance(reason, PeerLostError)  # not taken for the cause
    assert member.reason() is reason
    member.end(0.0)


class NotANumber(gym.Env):
    """A corridor whose reward is NaN in the third step, in every process but the one that made the class."""

    observation_space, action_space = gym.spaces.Box(-1.0, 1.0, (2,)), gym.spaces.Discrete(2)
    home = os.getpid()

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        bad = self.steps == 3 and os.getpid() != self.home
        return np.zeros(2, np.float32), float("nan") if bad else 0.0, False, self.steps == 5, {}


@pytest.mark.slow
def test_a_learner_that_diverges_stops_the_run_with_its_own_reason():
    home = os.getpid()

    def make():  # a closure, which only a value-pickler can send to another process
        env = NotANumber()
        env.home = home
        return env

    model = IMPALA(make, learners=2, **SMALL)
    with pytest.raises(DivergedError, match=r"the reward has NaN or infinite values.* \(learner 1\)"):
        model.learn(1000)
    assert not psutil.Process().children()


def test_learners_must_divide_an_update():
    with pytest.raises(ValueError, match=r"multiple of learners.*got learners=3"):
        small(learners=3)
    with pytest.raises(ValueError, match="supports only learners=1"):
        IMPALA(DummyVecEnv([NotANumber] * 4), learners=2, **SMALL)


def test_learners_have_different_environments_by_the_one_rule_of_seeds():
    config = small(learners=2, engine="process", actors=3)
    seeds = [config.part(rank).env_seed(actor, 1) for rank in range(2) for actor in range(3)]
    assert seeds == [small().env_seed(actor, 1) for actor in range(6)]
    assert config.env_groups[0] == 6


@pytest.mark.slow
def test_a_run_whose_learner_is_killed_names_its_checkpoint_and_resumes_with_another_number(tmp_path):
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "experiments.train", f"RUN={folder}"]
    options = ["ENV=Rooms-K4-v0", "engine=inline", "n_envs=4", "n_steps=8", "batch_size=32", "checkpoint_minutes=0.01"]
    start = subprocess.Popen([*command, *options, "learners=2", "STEPS=100M"], stderr=subprocess.PIPE, text=True)
    while len(list((folder / "checkpoints").glob("checkpoint-*"))) < 2:
        assert start.poll() is None
        time.sleep(0.1)
    (other,) = psutil.Process(start.pid).children()
    other.kill()
    _, errors = start.communicate()
    assert start.returncode == 1
    assert "learner 1 ended with signal 9 (Killed); all learners stopped" in errors
    assert "is intact; to resume: make train" in errors
    assert "Traceback" not in errors
    frames = int(re.search(r"checkpoint of frame ([\d,]+) is intact", errors)[1].replace(",", ""))
    resumed = subprocess.run([*command, "RESUME=1", "learners=1", f"STEPS={frames + 64}"], stdout=subprocess.PIPE)
    assert resumed.returncode == 0
    assert f"resuming at frame {frames:,}" in resumed.stdout.decode()
    assert "changed: learners is now 1" in resumed.stdout.decode()
