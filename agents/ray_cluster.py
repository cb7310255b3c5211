"""Connects this process to a Ray cluster; what cannot work there raises an error of one line.

Every machine of a cluster needs the same Python, the same Ray and the same checkout of this repository
(docs/scaling.md). Ray refuses machines with another Python or Ray; the checkouts are compared here.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import agents
import e3b_gym

_ANSWER_SECONDS = 20.0  # for the head of a cluster to answer
_NODE_SECONDS = 120.0  # for a machine to tell which code it has; a first worker may take a while to start
ENVIRONMENT = {  # of a Ray started here
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # or it warns of a change to come
    "RAY_worker_niceness": "0",  # as actors in processes; Ray's own 15 starves them on a busy machine
}
_given: str | None = None  # the address by which this process was connected; Ray may know the cluster by another one
_SAME = "every machine needs the same Python, Ray and checkout (docs/scaling.md)"


@dataclass(frozen=True)
class Session:
    """A connection to a cluster; `owned` where it was made here and is closed here."""

    owned: bool

    def close(self) -> None:
        import ray

        if self.owned and ray.is_initialized():
            _disconnect()


def connect(address: str | None, cores: int, purpose: str, each: int = 1, gpus: int = 0) -> Session:
    """Connects to a cluster; one that this process is connected to already is used as it is.

    Args:
        address: host:port of the head, "auto" for the cluster that this machine is a node of; None starts a Ray for
            this process only, with as many cores as are asked for.
        cores: number that the cluster must have.
        purpose: who needs them, for the error.
        each: how many of them must be on the same machine.
        gpus: number that the cluster must have.

    Raises:
        ImportError: Ray is not installed.
        ValueError: nothing answers there, it has too few cores or GPUs, or its machines have other code.
    """
    require_ray()
    import ray

    session = Session(owned=not ray.is_initialized())
    if session.owned:
        _start(address, cores)
    elif address not in (None, "auto", _given, current := ray.get_runtime_context().gcs_address):
        raise ValueError(f"this process is connected to the Ray cluster at {current}, so it cannot use {address}")
    try:
        _require_cores(cores, purpose, each)
        _require_gpus(gpus, purpose)
        _require_same_code()
    except BaseException:
        session.close()
        raise
    return session


def require_ray() -> None:
    """Raises ImportError, with what to do, where Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise ImportError("engine=ray, ray_address= and CLUSTER=ray need Ray; install it: make ray")


def _start(address: str | None, cores: int) -> None:
    import ray

    global _given
    _given = address

    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    # One thread per worker: two processes that oversubscribe the cores slow each other down 50x.
    options: dict[str, Any] = {
        "log_to_driver": False,
        "logging_level": logging.ERROR,
        "runtime_env": {"env_vars": {"OMP_NUM_THREADS": "1"}},
    }
    if address is None:
        where, remedy = (
            "a Ray on this machine",
            "it has 30 seconds to start; try again on a less busy machine",
        )
        options |= {"address": "local", "num_cpus": cores, "include_dashboard": False}
    else:
        where, remedy = f"the Ray cluster at {address}", _SAME
        options["address"] = address
        if address != "auto":
            _require_answer(address)
    try:
        with _sigterm_kept():
            ray.init(**options)
    except Exception as error:  # of many kinds
        _disconnect()  # what it has begun
        reason = " ".join(str(error).split())  # Ray's has several lines
        raise ValueError(f"cannot use {where}: {reason}; {remedy}") from error


def _disconnect() -> None:
    import ray

    global _given
    _given = None
    ray.shutdown()


@contextmanager
def _sigterm_kept() -> Iterator[None]:
    """Ray replaces the handler of SIGTERM; the previous one is restored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _require_answer(address: str) -> None:
    """Raises ValueError where no head of a cluster answers; Ray itself would try for a quarter of an hour."""
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal():
        raise ValueError(f"ray_address is host:port of a cluster's head, or auto; got {address!r}")
    # In another process: Ray's client of a server that is not Ray's may wait forever and blocks Ctrl-C.
    command = [sys.executable, "-m", "ray.scripts.scripts", "status", f"--address={address}"]
    try:
        socket.create_connection((host, int(port)), _ANSWER_SECONDS).close()
        asked = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise ValueError(_no_answer(address, "timed out")) from error
    except (OSError, OverflowError) as error:
        raise ValueError(_no_answer(address, error)) from error
    if asked.returncode != 0:  # another Ray, or a token that is missing
        lines = (asked.stderr.strip() or asked.stdout.strip() or "no reason given").splitlines()
        raise ValueError(f"cannot use a Ray cluster at {address}: {lines[-1]}; correct the address, or: {_SAME}")


def _no_answer(address: str, reason: object) -> str:
    return (
        f"no Ray cluster answers at {address} ({reason}); start one there with ray start --head, or correct the address"
    )


def _nodes() -> list[dict[str, Any]]:
    import ray

    return [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]


def count_cores(each: int = 1) -> int:
    """Cores of the cluster, used or not, that machines can give away `each` at a time."""
    return sum(int(node["Resources"].get("CPU", 0)) // each * each for node in _nodes())


def _require_cores(cores: int, purpose: str, each: int) -> None:
    if (found := count_cores(each)) < cores:
        together = f", {each} for each on the same machine" if each > 1 else ""
        raise ValueError(
            f"{purpose} need {cores} cores{together}, and the Ray cluster has {found}; add machines to it with ray "
            "start --address=..., or ask for fewer"
        )


def _require_gpus(gpus: int, purpose: str) -> None:
    found = sum(int(node["Resources"].get("GPU", 0)) for node in _nodes())
    if found < gpus:
        raise ValueError(
            f"{purpose} need {gpus} GPUs, and the Ray cluster has {found}; start Ray with --num-gpus=... where it does "
            "not find them, add machines, ask for fewer learners, or use device=cpu"
        )


def _require_same_code() -> None:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    def tell() -> str:  # a nested function travels by value, so a machine without this package can run it as well
        try:
            from agents.ray_cluster import code_version
        except Exception as error:  # noqa: BLE001  # whatever a broken installation raises
            return f"none that can be imported ({type(error).__name__}: {error})"
        return code_version()

    task = ray.remote(num_cpus=0, max_retries=0)(tell)
    asked = {}
    for node in _nodes():
        strategy = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        asked[task.options(scheduling_strategy=strategy).remote()] = node["NodeManagerAddress"]
    answered, silent = ray.wait(list(asked), num_returns=len(asked), timeout=_NODE_SECONDS)
    if silent:
        names = ", ".join(asked[answer] for answer in silent)
        warnings.warn(
            f"cannot compare the code on {names}: no answer for {_NODE_SECONDS:g} s", RuntimeWarning, stacklevel=4
        )
    for answer in answered:
        try:
            theirs = ray.get(answer)
        except ray.exceptions.RayError:  # the machine was lost; the actors that it was to have go elsewhere
            continue
        require_code(theirs, asked[answer])


def require_code(theirs: str, where: str) -> None:
    """Raises ValueError where the code on a machine is not the code here."""
    if theirs != code_version():
        raise ValueError(f"the e3b_gym on {where} is {theirs}, and here it is {code_version()}; {_SAME}")


@cache
def code_version() -> str:
    """The version, and a digest of the sources that actors and the runs of `CLUSTER=ray` use."""
    digest = hashlib.sha256()
    checkout = Path(str(agents.__file__)).parents[1]
    for folder in (Path(str(e3b_gym.__file__)).parent, checkout / "agents", checkout / "experiments"):
        for path in sorted([*folder.rglob("*.py"), *folder.rglob("*.yaml")]):
            digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return f"{e3b_gym.__version__} ({digest.hexdigest()[:8]})"
