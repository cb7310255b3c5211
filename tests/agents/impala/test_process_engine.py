"""Actors in processes: what they deliver is what one policy did, and none is lost or left behind."""

from __future__ import annotations

import contextlib
import copy
import multiprocessing
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import psutil
import pytest
import torch
from engine_runs import PATIENCE, alive, continues, eventually, same, small, taken, until

from agents.impala.config import Config
from agents.impala.engines import make_engine
from agents.impala.engines.inline import InlineEngine
from agents.impala.engines.process import ProcessEngine
from agents.impala.engines.roster import ActorError, ActorWarning
from agents.impala.learner import Learner
from agents.impala.rollout import Rollout


@contextlib.contextmanager
def running(config: Config, **options: Any) -> Iterator[tuple[ProcessEngine, Learner]]:
    """An engine at work, and its learner; afterwards none of its processes is there."""
    engine = ProcessEngine(config, **options)
    try:
        learner = Learner(config, *engine.spaces)
        engine.publish(learner.policy, learner.version)
        yield engine, learner
    finally:
        processes = engine.processes
        engine.close()
        assert not any(psutil.pid_exists(pid) for pid in processes)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_an_actor_in_a_process_does_what_one_inline_does(method: str) -> None:
    config = small()
    inline = InlineEngine(config)
    with running(config, start_method=method) as (engine, learner):
        inline.publish(learner.policy, learner.version)
        for _ in range(3):
            with inline.rollout() as rollout:
                assert same(rollout, taken(engine))
    inline.close()


def test_an_unroll_is_the_work_of_one_version() -> None:
    """The recorded logits of all steps are those of the published version that the rollout names."""
    with running(small(actors=2)) as (engine, learner):
        published, seen, taken_at = {0: copy.deepcopy(learner.policy)}, [], defaultdict(list)
        for version in range(1, 31):
            for weight in learner.policy.parameters():
                weight.data.mul_(1.02)
            published[version] = copy.deepcopy(learner.policy)
            engine.publish(learner.policy, version)
            rollout = taken(engine)
            seen.append(rollout.version)
            taken_at[rollout.actor].append(version)
            if len(taken_at[rollout.actor]) > 3:  # two of an actor's wait or are at work, so the third last was taken
                assert rollout.version >= taken_at[rollout.actor][-4]
            unroll = rollout.unroll()
            starts = torch.cat([unroll.starts[None], unroll.done])
            with torch.no_grad():
                logits = published[rollout.version](unroll.obs, starts, rollout.lstm_state()).logits[:-1]
            torch.testing.assert_close(logits, unroll.policy_logits, atol=1e-4, rtol=1e-4)
        assert len(set(seen)) > 5


def test_each_actor_continues_where_it_was() -> None:
    last: dict[int, Rollout] = {}
    with running(small(actors=2)) as (engine, _):
        for _ in range(40):
            rollout = taken(engine)
            if rollout.actor in last:
                assert continues(last[rollout.actor], rollout)
            else:
                assert rollout.starts.all()
            last[rollout.actor] = rollout
    assert set(last) == {0, 1}
    assert not same(last[0], last[1])


def test_the_learner_may_hold_several_rollouts() -> None:
    with running(small(actors=2)) as (engine, _), contextlib.ExitStack() as stack:
        held = [stack.enter_context(engine.rollout()) for _ in range(4)]  # all that there are
        before = copy.deepcopy(held)
        time.sleep(0.2)  # time enough to write to them
        assert all(same(*pair) for pair in zip(before, held, strict=True))


def test_a_real_minihack_run_learns() -> None:
    config = small(env="MiniHack-Freeze-Random-Restricted-v0", env_options={}, net="fast")
    with running(config) as (engine, learner):
        for _ in range(3):
            with engine.rollout() as rollout:
                learner.learn(rollout)
            engine.publish(learner.policy, learner.version)
        assert learner.frames == 3 * 24
        assert engine.waited > 0
        assert all(engine.actor_seconds[0][stage] > 0 for stage in ("load", "act", "env"))


def test_a_killed_actor_is_replaced_and_starts_in_new_environments() -> None:
    with running(small(actors=2)) as (engine, _):
        first = next(rollout for rollout in iter(lambda: taken(engine), None) if rollout.actor == 0)
        last = {0: first, 1: None}
        for kills in range(1, 5):
            victim = engine.processes[0]
            os.kill(victim, signal.SIGKILL)
            with pytest.warns(ActorWarning, match=r"actor 0 was replaced.*signal 9"):
                finished = list(until(lambda victim=victim: engine.processes[0] != victim, engine))
            for rollout in finished:
                assert last[rollout.actor] is None or continues(last[rollout.actor], rollout)
                last[rollout.actor] = rollout
            assert engine.state_dict()["starts"] == [kills + 1, 1]
            fresh = False
            while not fresh:  # the other actor continues; what the dead one had finished is still good
                rollout = taken(engine)
                fresh = rollout.actor == 0 and not continues(last[0], rollout)
                assert fresh or last[rollout.actor] is None or continues(last[rollout.actor], rollout)
                last[rollout.actor] = rollout
            assert last[0].starts.all()
            assert not same(first, last[0])


def test_actors_do_not_hear_a_ctrl_c() -> None:
    with running(small()) as (engine, _):
        before = taken(engine)
        os.kill(engine.processes[0], signal.SIGINT)
        for _ in range(5):
            rollout = taken(engine)
            assert continues(before, rollout)
            before = rollout


class Troublesome(gym.Env[Any, Any]):
    """Fails or hangs after some steps, in the process that is the first to leave a mark, or in all.

    Args:
        trouble: "error" or "hang".
        after: steps until then.
        mark: a file that only one process can make; None makes trouble in all.
    """

    observation_space = gym.spaces.Box(-1, 1, (3,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, trouble: str, after: int, mark: str | None = None) -> None:
        self.trouble, self.after, self.mark, self.steps = trouble, after, mark, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.steps == self.after and self._chosen():
            if self.trouble == "hang":
                time.sleep(10 * PATIENCE)
            raise ArithmeticError("the simulator has a bug")
        return self.observation_space.sample(), 0.0, False, False, {}

    def _chosen(self) -> bool:
        if self.mark is None:
            return True
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self.mark, os.O_CREAT | os.O_EXCL))
            return True
        return False


gym.register("Troublesome-v0", Troublesome, disable_env_checker=True, order_enforce=False)


def troublesome(**options: Any) -> Config:
    return small(env="Troublesome-v0", env_options=options)


def test_actors_work_with_a_learner_that_has_threads() -> None:
    """A fork of a process that has used OpenMP's threads has none of them, and would wait for them forever."""
    torch.set_num_threads(2)
    try:
        torch.randn(500, 500) @ torch.randn(500, 500)
        with running(small(n_envs=32)) as (engine, _):
            taken(engine)
            torch.randn(500, 500) @ torch.randn(500, 500)
            first = engine.processes[0]
            os.kill(first, signal.SIGKILL)
            with pytest.warns(ActorWarning, match="replaced"):
                list(until(lambda: engine.processes[0] != first, engine))
            assert [taken(engine).actor for _ in range(4)] == [0] * 4
    finally:
        torch.set_num_threads(1)


def test_an_error_in_an_actor_is_reported_and_the_actor_replaced(tmp_path: Path) -> None:
    with running(troublesome(trouble="error", after=9, mark=str(tmp_path / "mark"))) as (engine, _):
        with pytest.warns(ActorWarning, match=r"(?s)actor 0 was replaced.*Traceback.*ArithmeticError: the simulator"):
            rollouts = [taken(engine) for _ in range(4)]
        assert [rollout.starts.all() for rollout in rollouts] == [True, True, False, False]


@pytest.mark.filterwarnings("ignore::agents.impala.engines.roster.ActorWarning")
def test_an_actor_that_always_fails_stops_the_run_with_its_traceback() -> None:
    with running(troublesome(trouble="error", after=2)) as (engine, _):
        with pytest.raises(ActorError, match=r"(?s)actor 0 failed 3 times in a row.*ArithmeticError: the simulator"):
            taken(engine)
        with pytest.raises(RuntimeError, match="closed"):
            taken(engine)


@pytest.mark.filterwarnings("ignore::agents.impala.engines.roster.ActorWarning")
def test_an_actor_that_fails_now_and_then_is_always_replaced() -> None:
    with running(troublesome(trouble="error", after=9)) as (engine, _):
        for _ in range(6):
            taken(engine)
        assert engine.state_dict()["starts"][0] >= 5


def test_a_hung_actor_is_replaced(tmp_path: Path) -> None:
    config = troublesome(trouble="hang", after=9, mark=str(tmp_path / "mark"))
    with running(config, hang_seconds=3.0) as (engine, _):
        with pytest.warns(ActorWarning, match="no step for 3 seconds"):
            rollouts = [taken(engine) for _ in range(4)]
        assert [rollout.starts.all() for rollout in rollouts] == [True, True, False, False]


def test_a_frozen_actor_is_replaced() -> None:
    """Even one that sees no signals but SIGKILL."""
    with running(small(), hang_seconds=3.0) as (engine, _):
        frozen = engine.processes[0]
        os.kill(frozen, signal.SIGSTOP)
        with pytest.warns(ActorWarning, match="no step for 3 seconds"):
            list(until(lambda: engine.processes[0] != frozen, engine))


def test_a_learner_that_takes_its_time_finds_its_actors_alive() -> None:
    with running(small()) as (engine, _):
        taken(engine)
        engine.roster.hang_seconds = 0.4
        for _ in range(3):
            taken(engine)
            time.sleep(0.5)  # the actor has filled its rollouts and waits
        assert engine.state_dict() == {"starts": [1]}


def test_a_resumed_run_gets_new_environments() -> None:
    config = small(actors=2)
    with running(config) as (engine, _):
        first, state = {r.actor: r for r in (taken(engine) for _ in range(12))}, engine.state_dict()
    with running(config, state=state) as (engine, _):
        again, later = {r.actor: r for r in (taken(engine) for _ in range(12))}, engine.state_dict()
    assert (state, later) == ({"starts": [1, 1]}, {"starts": [2, 2]})
    assert all(not same(first[actor], again[actor]) for actor in first.keys() & again.keys())


def test_fewer_or_more_actors_can_take_over() -> None:
    with running(small(), state={"starts": [4, 7]}) as (engine, _):
        assert engine.state_dict() == {"starts": [5, 7]}
    with running(small(actors=2), state={"starts": [4]}) as (engine, _):
        assert engine.state_dict() == {"starts": [5, 1]}


def test_closing_twice_is_closing_once_and_quick() -> None:
    engine = make_engine(small(actors=2))
    assert isinstance(engine, ProcessEngine)
    processes = [psutil.Process(pid) for pid in engine.processes]
    start = time.monotonic()
    engine.close()
    engine.close()
    assert time.monotonic() - start < 10
    assert not any(process.is_running() for process in processes)


def test_a_policy_must_be_published_first() -> None:
    engine = ProcessEngine(small())
    with pytest.raises(RuntimeError, match="publish a policy before the first rollout"), engine.rollout():
        pass
    engine.close()


def _learn_without_end(end: str, folder: Path, reports: Any) -> None:
    """A run in a separate session, as a terminal would start it: Ctrl-C reaches it even if these tests ignore it."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs inherit an ignored one
    for name, stream in (("out", 1), ("errors", 2)):
        os.dup2(os.open(folder / name, os.O_CREAT | os.O_WRONLY), stream)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    engine = ProcessEngine(config := small(actors=2, method="rnd"))
    try:
        learner = Learner(config, *engine.spaces)
        engine.publish(learner.policy, 0)
        while True:
            with engine.rollout() as rollout:
                learner.learn(rollout)
            engine.publish(learner.policy, learner.version)
            if learner.version == 3:
                reports.send(engine.processes)
            if learner.version == 6 and end == "crash":
                raise ArithmeticError("as a learner may crash")
    except KeyboardInterrupt:
        print("interrupted")
        if end == "close":
            engine.close()


@pytest.mark.parametrize("end", ["close", "forget", "crash", "kill", "terminate"])
def test_no_actor_outlives_its_learner(end: str, tmp_path: Path) -> None:
    # Other tests may have left threads, which no fork survives: a server without threads forks the runs of all cases.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["agents.impala.engines.process", "agents.impala.learner"])
    ours, theirs = context.Pipe(duplex=False)
    run = context.Process(target=_learn_without_end, args=(end, tmp_path, theirs))
    run.start()
    assert ours.poll(PATIENCE)
    actors = [psutil.Process(pid) for pid in ours.recv()]
    assert len(actors) == 2
    if end in ("close", "forget"):
        os.killpg(run.pid, signal.SIGINT)  # as Ctrl-C does: to all of the group
    elif end != "crash":
        os.kill(run.pid, signal.SIGKILL if end == "kill" else signal.SIGTERM)
    run.join(PATIENCE)
    assert run.exitcode is not None
    assert eventually(lambda: not any(map(alive, actors)))
    out, errors = (tmp_path / "out").read_text(), (tmp_path / "errors").read_text()
    assert out == ("interrupted\n" if end in ("close", "forget") else "")
    assert ("as a learner may crash" in errors) if end == "crash" else errors == ""  # actors end silently
