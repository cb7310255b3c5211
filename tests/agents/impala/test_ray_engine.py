"""Actors on a Ray cluster: what they deliver is what actors inline do, and a run survives what the cluster loses."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import ray
import torch
from engine_runs import PATIENCE, alive, continues, eventually, small, taken, until
from ray.cluster_utils import Cluster
from small_runs import filled

from agents import IMPALA, ray_cluster
from agents.impala.actor import Actor, make_envs
from agents.impala.config import Config
from agents.impala.engines import make_engine
from agents.impala.engines.ray import RayEngine
from agents.impala.engines.roster import ActorError, ActorWarning
from agents.impala.group import LearnerError
from agents.impala.learner import Learner
from agents.impala.rollout import Rollout
from agents.impala.team_on_ray import RayCluster
from agents.impala.training import Training
from e3b_gym.unroll import tree_leaves

ROOT = Path(__file__).parents[3]
START = 5 * PATIENCE  # a Ray and its workers, on a busy machine


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two machines with one core each."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ray_cluster.ENVIRONMENT.items():
            patch.setenv(name, value)
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        made.add_node(num_cpus=1)
        yield made
        made.shutdown()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # Ray has replaced the handler


def on_ray(cluster: Cluster, **options: Any) -> Config:
    return small(**{"engine": "ray", "ray_address": cluster.address, "actors": 2, **options})


@contextlib.contextmanager
def running(config: Config, **options: Any) -> Iterator[tuple[RayEngine, Learner]]:
    """An engine at work, and its learner; afterwards none of its workers is there."""
    engine = RayEngine(config, **options)
    workers: list[int] = []
    try:
        learner = Learner(config, *engine.spaces)
        engine.publish(learner.policy, learner.version)
        yield engine, learner
        if ray.is_initialized():
            workers = [worker_of(engine, actor.number) for actor in engine.roster.actors if actor.placed]
    finally:
        engine.close()
        assert eventually(lambda: not any(psutil.pid_exists(pid) for pid in workers))


def worker_of(engine: RayEngine, number: int) -> int:
    """The process id of an actor's worker."""
    return int(ray.get(engine.roster.actors[number]._handle.__ray_call__.remote(lambda _: os.getpid())))


def equal(one: Rollout, other: Rollout) -> bool:
    pairs = zip(tree_leaves(one.packed()), tree_leaves(other.packed()), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def test_unrolls_are_those_of_an_actor_here_with_the_newest_weights_and_a_killed_actor_is_replaced(
    cluster: Cluster,
) -> None:
    config, restarts = on_ray(cluster), [0, 3]
    with running(config, state={"starts": restarts}) as (engine, learner):
        first: dict[int, Rollout] = {}
        last: dict[int, Rollout] = {}
        version = 0
        while version < 15 or len(last) < 2:
            rollout = taken(engine)
            if (before := last.get(rollout.actor)) is None:
                first[rollout.actor] = rollout
            else:
                assert continues(before, rollout)
                assert before.version <= rollout.version <= version
            last[rollout.actor] = rollout
            version += 1
            engine.publish(learner.policy, version)
        for number, rollout in first.items():  # bit for bit
            actor = Actor(config, number, restarts[number])
            actor.load(learner.policy.state_dict(), rollout.version)
            assert equal(rollout, filled(actor, config))
        assert max(rollout.version for rollout in last.values()) > version - 8
        assert all(engine.actor_seconds[number][stage] > 0 for number in last for stage in ("load", "act", "env"))
        os.kill(worker_of(engine, 0), signal.SIGKILL)
        with pytest.warns(ActorWarning, match="actor 0 was replaced, and its unfinished unroll dropped: Ray lost it"):
            list(until(lambda: engine.roster.actors[0].restarts == 1, engine))
        fresh = next(r for r in until(lambda: False, engine) if r.actor == 0 and r.starts.all())
        assert not continues(last[0], fresh)
        assert engine.state_dict() == {"starts": [2, 4]}
        with contextlib.ExitStack() as stack:
            held = [stack.enter_context(engine.rollout()) for _ in range(4)]  # all that there are
            assert len({id(rollout) for rollout in held}) == 4


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::agents.impala.engines.roster.ActorWarning")
def test_an_actor_that_always_fails_stops_the_run_with_its_traceback(cluster: Cluster) -> None:
    def broken(config: Config, num_envs: int, seed: int) -> Any:
        if num_envs == 1:  # who asks for the spaces only
            return make_envs(config, num_envs, seed)
        raise ArithmeticError("the simulator has a bug")

    with running(on_ray(cluster, actors=1), make=broken) as (engine, _):
        with pytest.raises(ActorError, match=r"(?s)actor 0 failed 3 times in a row.*ArithmeticError: the simulator"):
            taken(engine)
        with pytest.raises(RuntimeError, match="closed"):
            taken(engine)


@pytest.mark.slow
def test_a_run_reaches_its_frames_through_the_loss_of_a_machine_and_a_stopped_worker(cluster: Cluster) -> None:
    """A machine is lost and training continues without its actor, until there is another one; then a worker hangs."""
    lost = next(node for node in cluster.list_all_nodes() if not node.is_head())
    config = on_ray(cluster, steps=10**9)
    deadline = time.monotonic() + 5 * PATIENCE
    with warnings.catch_warnings(record=True) as caught, Training(config) as training:
        warnings.simplefilter("always")
        engine = training.engine
        assert isinstance(engine, RayEngine)
        updates, stage, restarts = iter(training), 0, 0
        delivered: set[int] = set()
        while training.learner.frames < config.steps:
            assert time.monotonic() < deadline, f"still at stage {stage}"
            delivered.add(_next_actor(updates))
            if stage == 0 and delivered == {0, 1}:
                cluster.remove_node(lost, allow_graceful=False)
                stage = 1
            elif stage == 1 and any(actor.restarts for actor in engine.roster.actors):
                stage, alone, delivered = 2, 0, set()
            elif stage == 2:
                alone += 1
                assert len(delivered) == 1  # the successor of the other one has no core
                if alone == 20:
                    cluster.add_node(num_cpus=1)
                    stage = 3
            elif stage == 3 and len(delivered) == 2:
                os.kill(worker_of(engine, 0), signal.SIGSTOP)
                restarts, engine.roster.hang_seconds = engine.roster.actors[0].restarts, 8.0
                stage = 4
            elif stage == 4 and engine.roster.actors[0].restarts > restarts:
                engine.roster.hang_seconds = PATIENCE
                training.config = config = on_ray(cluster, steps=training.learner.frames + 240)
                stage = 5
        assert stage == 5
        assert training.learner.frames == config.steps
    messages = [str(warning.message) for warning in caught]
    assert any("Ray lost it" in text for text in messages)
    assert any("no step for 8 seconds" in text for text in messages)


def _next_actor(updates: Iterator[Any]) -> int:
    """Learns from a rollout; returns whose it was."""
    seen: list[int] = []
    receive = Rollout.unpack

    def note(rollout: Rollout, packed: Any) -> None:
        receive(rollout, packed)
        seen.append(rollout.actor)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Rollout, "unpack", note)
        next(updates)
    return seen[0]


def refused(config: Config) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the caller looks at the message
        make_engine(config)
    assert not ray.is_initialized()
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_an_address_that_does_not_answer_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "_ANSWER_SECONDS", 0.5)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        assert f"no Ray cluster answers at {address}" in refused(small(engine="ray", ray_address=address))
        unused.listen()  # as another program may
        assert f"no Ray cluster answers at {address} (timed out)" in refused(small(engine="ray", ray_address=address))
    assert "host:port" in refused(small(engine="ray", ray_address="ray://somewhere:10001"))


def test_more_actors_than_the_cluster_has_cores_are_refused(cluster: Cluster) -> None:
    assert "9 actors need 9 cores, and the Ray cluster has 2" in refused(on_ray(cluster, actors=9))


def test_other_code_on_a_machine_is_refused(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "code_version", lambda: "9.9.9 (other)")
    message = refused(on_ray(cluster))
    assert "and here it is 9.9.9 (other); every machine needs the same Python, Ray and checkout" in message


def test_another_python_on_the_cluster_is_refused(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray._private.utils, "compute_version_info", lambda: (ray.__version__, "3.9.1"))
    message = refused(on_ray(cluster))
    assert f"cannot use the Ray cluster at {cluster.address}" in message
    assert "Python: 3.9.1" in message


def test_another_ray_on_the_cluster_is_refused(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import ray\nray.__version__ = '2.0.0'\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    message = refused(on_ray(cluster))
    assert f"cannot use a Ray cluster at {cluster.address}" in message
    assert "local Ray version is 2.0.0; correct the address, or: every machine needs the same Python" in message


SMALL = {"engine": "inline", "n_envs": 4, "n_steps": 8, "lstm": 8, "dim": 8, "seed": 1}


@contextlib.contextmanager
def cluster_with_cores(cluster: Cluster, cores: int) -> Iterator[None]:
    """The cluster has one more machine inside the block."""
    node = cluster.add_node(num_cpus=cores)
    try:
        yield
    finally:
        cluster.remove_node(node)


def learner_workers() -> list[psutil.Process]:
    """The workers of Ray that learn."""
    found = psutil.process_iter(["cmdline"])
    return [process for process in found if "ray::_learn" in " ".join(process.info["cmdline"] or [])]


def test_learners_on_the_cluster_learn_bit_for_bit_as_on_one_machine(cluster: Cluster) -> None:
    here = IMPALA("Rooms-K4-v0", learners=2, **SMALL)
    list(here.updates(96))
    there = IMPALA("Rooms-K4-v0", learners=2, ray_address=cluster.address, **SMALL)
    list(there.updates(96))
    assert there.learner.checksum() == here.learner.checksum()
    assert there.state_dict()["engine"] == {"starts": [1, 1]}
    assert not ray.is_initialized()
    assert eventually(lambda: not learner_workers())


@pytest.mark.slow
def test_a_learner_that_the_cluster_loses_stops_the_run_which_resumes_without_it(cluster: Cluster) -> None:
    model = IMPALA("Rooms-K4-v0", learners=2, ray_address=cluster.address, **SMALL)
    updates = model.updates(10**6)
    next(updates)
    (other,) = learner_workers()
    other.kill()
    with pytest.raises(LearnerError, match=r"^learner 1 was lost by Ray \(WorkerCrashedError\); all learners stopped$"):
        list(updates)
    assert not ray.is_initialized()
    assert model.state_dict()["engine"] == {"starts": [1, 51]}  # far enough that no seed of its actors is used again
    alone = IMPALA.from_config(model.config, learners=1)
    alone.load_state_dict(model.state_dict())
    alone.learn(32, reset_num_timesteps=False)
    assert alone.num_timesteps == model.num_timesteps + 32


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["ray", "process"])
def test_learners_with_actors_on_the_cluster_learn(engine: str, cluster: Cluster) -> None:
    with cluster_with_cores(cluster, 4):
        options = {**SMALL, "engine": engine, "actors": 1, "ray_address": cluster.address}
        model = IMPALA("Rooms-K4-v0", learners=2, **options)
        assert [update.frames for update in model.updates(96)] == [32, 64, 96]
        assert model.state_dict()["engine"] == {"starts": [1, 1]}
    assert not ray.is_initialized()


def test_more_learners_than_the_cluster_has_cores_are_refused(cluster: Cluster) -> None:
    def message(**options: Any) -> str:
        model = IMPALA("Rooms-K4-v0", learners=4, ray_address=cluster.address, **{**SMALL, **options})
        with pytest.raises(ValueError, match="need") as caught:
            next(model.updates(96))
        assert not ray.is_initialized()
        return str(caught.value)

    assert "4 learners (learner 0 is not on the cluster) need 3 cores, and the Ray cluster has 2" in message()
    assert "need 6 cores, 2 for each on the same machine, and the Ray cluster has 0" in message(engine="process")
    assert "4 learners with 2 actors each" in message(engine="ray", actors=2)


def test_more_learners_than_the_cluster_has_gpus_are_refused(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.impala.team_on_ray.find_device", lambda name: torch.device(name))
    sizes = {**SMALL, "n_envs": 6, "batch_size": 48}
    config = Config(env="Rooms-K4-v0", learners=3, ray_address=cluster.address, device="cuda", **sizes)
    with pytest.raises(ValueError, match="need 2 GPUs, and the Ray cluster has 0;"):
        RayCluster(config)
    assert not ray.is_initialized()


def test_a_device_that_is_not_here_is_refused_before_a_cluster_is_asked() -> None:
    sizes = {**SMALL, "n_envs": 6, "batch_size": 48}
    config = Config(env="Rooms-K4-v0", learners=3, ray_address="127.0.0.1:1", device="cuda:99", **sizes)
    with pytest.raises(ValueError, match="'cuda:99' is not available"):
        RayCluster(config)


def _rows(curve: Path) -> int:
    return max(len(curve.read_text().splitlines()) - 1, 0) if curve.exists() else 0


@contextlib.contextmanager
def train(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """`make train` with a local Ray, in a new session, as a terminal would start it; once it learns."""
    curve = folder / "progress.csv"
    before = _rows(curve)
    command = [sys.executable, "-W", "ignore", "-m", "experiments.train", f"RUN={folder}", *options]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as run:
        try:
            assert eventually(lambda: run.poll() is not None or _rows(curve) > before, START)
            assert run.poll() is None, run.communicate()[0]
            yield run
        finally:
            run.kill()


@pytest.mark.slow
def test_ctrl_c_saves_and_leaves_nothing_behind_and_the_run_is_resumed_and_killed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    sizes = ("n_envs=4", "n_steps=8", "batch_size=32", "log_seconds=0.2")
    with train(folder, "ENV=Rooms-K4-v0", "engine=ray", "actors=2", "STEPS=10M", *sizes) as run:
        family = psutil.Process(run.pid).children(recursive=True)
        assert {"raylet", "gcs_server"} <= {process.name() for process in family}
        os.killpg(run.pid, signal.SIGINT)
        said, _ = run.communicate(timeout=PATIENCE)
    assert run.returncode == 128 + signal.SIGINT
    assert "saved at frame" in said
    assert not any(word in said for word in ("raylet", "INFO", "WARN", "Traceback"))  # Ray is quiet
    assert eventually(lambda: not any(map(alive, family)))
    with train(folder, "RESUME=1") as run:
        family = psutil.Process(run.pid).children(recursive=True)
        run.kill()
    assert eventually(lambda: not any(map(alive, family)))
