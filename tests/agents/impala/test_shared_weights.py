"""Weights in shared memory: no reader sees half an update, and none that dies is waited for."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from typing import Any

import torch

from agents.impala.engines.shared import SharedWeights

PATIENCE = 120.0  # seconds; a busy machine is no failure


def _write_on_and_on(weights: SharedWeights, shapes: dict[str, torch.Tensor]) -> None:
    version = 0
    while True:
        version += 1
        while not weights.write({name: torch.full_like(v, version) for name, v in shapes.items()}, version):
            pass


def test_no_reader_sees_half_an_update() -> None:
    shapes = {"a": torch.zeros(300_000), "b": torch.zeros(3, 5), "c": torch.zeros(300_000)}
    weights = SharedWeights(shapes, inherited=True)
    writer = multiprocessing.get_context("fork").Process(target=_write_on_and_on, args=(weights, shapes), daemon=True)
    writer.start()
    seen = [-1]

    def check(values: dict[str, torch.Tensor], version: int) -> None:
        if version != -1:
            assert all(bool((value == version).all()) for value in values.values())
            seen.append(version)

    deadline = time.monotonic() + PATIENCE
    while len(seen) < 100 and time.monotonic() < deadline:
        weights.read(seen[-1], check)
    writer.kill()
    writer.join()
    assert len(seen) == 100
    assert seen == sorted(set(seen))


def _hold(weights: SharedWeights, holding: Any) -> None:
    weights.read(-2, lambda values, version: (holding.send(True), time.sleep(10 * PATIENCE)))


def test_a_reader_that_is_killed_leaves_no_lock() -> None:
    policy_weights = {"a": torch.zeros(5)}
    weights, context = SharedWeights(policy_weights, inherited=True), multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    reader = context.Process(target=_hold, args=(weights, theirs), daemon=True)
    reader.start()
    assert ours.recv()
    assert weights.write(policy_weights, 1)  # the other slot
    assert not weights.write(policy_weights, 2)  # the reader's
    reader.kill()
    reader.join()
    assert weights.write(policy_weights, 2)


def test_publishing_is_quick_compared_with_an_update_of_the_papers_network() -> None:
    """24 million weights, as many as the paper's policy has, in less than 1 s even on a busy machine."""
    weights = {f"layer{i}": torch.randn(1024, 1024) for i in range(24)}
    shared = SharedWeights(weights, inherited=True)
    assert shared.write(weights, 0)
    assert shared.write(weights, 1)  # both slots have their pages now
    fastest = min(_seconds(lambda: shared.write(weights, 2)) for _ in range(5))
    assert fastest < 1.0


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
