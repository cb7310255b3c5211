"""Checkpoints survive kills, refuse what they cannot read, and continue a run to the bit."""

from __future__ import annotations

import copy
import dataclasses
import multiprocessing
import os
import random
import resource
import signal
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agents.checkpoint import FORMAT, KIND, CheckpointError, CheckpointStore, CheckpointWarning, read
from agents.impala.config import Config
from agents.impala.engines.inline import InlineEngine
from agents.impala.learner import Learner
from e3b_gym.config import BonusConfig


def numbered(number: int) -> dict[str, Any]:
    return {"number": number, "weights": torch.full((50_000,), float(number))}


def frames_in(store: CheckpointStore) -> list[int]:
    return [read(path).frames for path in store.paths()]


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    state = {
        "tensors": OrderedDict(a=torch.randn(3, 4), b=torch.tensor(7)),
        "plain": [1, 2.5, "text", None, True, (float("inf"), -1)],
        "numbered": {0: {"step": torch.tensor(3.0)}},
    }
    path = CheckpointStore(tmp_path / "new" / "folder").save(state, frames=80, score=0.25)
    checkpoint = CheckpointStore(tmp_path / "new" / "folder").load_latest()
    assert (checkpoint.frames, checkpoint.score, checkpoint.path) == (80, 0.25, path)
    assert checkpoint.state["plain"] == state["plain"]
    assert torch.equal(checkpoint.state["tensors"]["a"], state["tensors"]["a"])
    assert checkpoint.state["numbered"][0]["step"] == 3


def test_the_last_few_and_the_best_stay(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    for frames, score in [(10, 0.1), (20, 0.9), (30, None), (40, 0.5), (50, float("nan"))]:
        store.save(numbered(frames), frames, score)
    assert frames_in(store) == [40, 50]
    assert store.load_latest().state["number"] == 50
    assert store.load_best().state["number"] == 20
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "best.pt",
        "checkpoint-000004-40.pt",
        "checkpoint-000005-50.pt",
    ]


def test_the_best_outlives_a_restart_of_the_run(tmp_path: Path) -> None:
    CheckpointStore(tmp_path).save(numbered(1), 1, score=0.8)
    resumed = CheckpointStore(tmp_path)
    resumed.save(numbered(2), 2, score=0.7)
    assert resumed.load_best().frames == 1
    resumed.save(numbered(3), 3, score=0.8)  # as good, and trained for longer
    assert resumed.load_best().frames == 3


def test_without_scores_there_is_no_best(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    store.save(numbered(1), 1)
    with pytest.raises(FileNotFoundError, match="no best checkpoint: none was saved with a score yet; use the latest"):
        store.load_best()


def test_a_checkpoint_of_another_agent_is_refused(tmp_path: Path) -> None:
    CheckpointStore(tmp_path, "PPO").save(numbered(1), 1)
    with pytest.raises(CheckpointError, match="is not a checkpoint of this library's IMPALA"):
        CheckpointStore(tmp_path, "IMPALA").load_latest()


def test_flipped_bits_are_found(tmp_path: Path) -> None:
    path = CheckpointStore(tmp_path).save(numbered(1), 1, score=0.5)
    intact, places, found = path.read_bytes(), random.Random(0), 0
    for _ in range(300):
        damaged = bytearray(intact)
        damaged[places.randrange(len(damaged))] ^= 1 << places.randrange(8)
        path.write_bytes(damaged)
        try:
            checkpoint = read(path)
        except CheckpointError:
            found += 1
            continue
        assert (checkpoint.frames, checkpoint.score, checkpoint.state["number"]) == (1, 0.5, 1)  # in unused bytes
        assert bool((checkpoint.state["weights"] == 1).all())
    assert found > 290


@pytest.mark.parametrize("missing", ["format", "frames", "score", "state"])
def test_a_file_with_missing_parts_is_refused(tmp_path: Path, missing: str) -> None:
    path = CheckpointStore(tmp_path).save(numbered(1), 1, score=0.5)
    content = torch.load(path, weights_only=True)
    del content[missing], content["checksum"]
    torch.save(content, path)
    with pytest.raises(CheckpointError, match="lacks parts of a checkpoint"):
        read(path)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def foreign(path: Path) -> None:
    torch.save({"weights": torch.zeros(3)}, path)


def code(path: Path) -> None:
    torch.save(
        {
            "kind": KIND.format(agent="IMPALA"),
            "format": FORMAT,
            "state": CheckpointStore("x"),
            "frames": 1,
            "score": None,
        },
        path,
    )


def newer(path: Path) -> None:
    torch.save({"kind": KIND.format(agent="IMPALA"), "format": FORMAT + 1, "something": "else"}, path)


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (truncate, "is damaged"),
        (empty, "is damaged"),
        (foreign, "is not a checkpoint of this library"),
        (code, "is damaged, or holds more than tensors"),
        (newer, f"has format {FORMAT + 1}.*update e3b_gym"),
    ],
)
def test_a_file_that_cannot_be_used_gives_way_to_the_one_before(
    tmp_path: Path, spoil: Callable[[Path], None], what: str
) -> None:
    store = CheckpointStore(tmp_path)
    store.save(numbered(1), 1)
    last = store.save(numbered(2), 2)
    spoil(last)
    with pytest.raises(CheckpointError, match=what):
        read(last)
    with pytest.warns(CheckpointWarning, match=what):
        assert store.load_latest().frames == 1
    store.save(numbered(2), 2)  # the resumed run arrives there again
    assert store.load_latest().frames == 2


def test_without_any_usable_file_the_error_says_so(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    with pytest.raises(FileNotFoundError, match="has no checkpoint"):
        store.load_latest()
    truncate(store.save(numbered(1), 1))
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* can be used.*damaged"):
        store.load_latest()


def test_a_damaged_best_is_not_replaced_by_another_checkpoint(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=1)
    store.save(numbered(1), 1, score=0.9)
    store.save(numbered(2), 2, score=0.1)
    truncate(tmp_path / "best.pt")
    with pytest.raises(CheckpointError, match="is damaged"):
        store.load_best()


@pytest.mark.parametrize("value", [np.float64(1.0), np.zeros(3), {1, 2}, object()])
def test_what_could_not_be_loaded_is_not_saved(tmp_path: Path, value: Any) -> None:
    store = CheckpointStore(tmp_path)
    with pytest.raises(ValueError, match=r"state\['learner'\]\[1\] is a .*convert it"):
        store.save({"learner": [0, value]}, 1)
    assert not store.paths()


def test_leftovers_of_a_kill_go_away_with_the_next_save(tmp_path: Path) -> None:
    leftover = tmp_path / "checkpoint-000001-5.pt.part"
    leftover.write_bytes(b"half a file")
    store = CheckpointStore(tmp_path)
    with pytest.raises(FileNotFoundError):
        store.load_latest()
    assert leftover.exists()  # a reader must not disturb a writer at work
    store.save(numbered(1), 1)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-000001-1.pt"]


def test_a_save_onto_a_full_disk_leaves_the_one_before(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=1)
    store.save(numbered(1), 1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            store.save(numbered(2), 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert store.load_latest().frames == 1
    assert len(list(tmp_path.iterdir())) == 1


def test_keep_must_leave_something() -> None:
    with pytest.raises(ValueError, match="keep must be at least 1"):
        CheckpointStore("anywhere", keep=0)


def _save_on_and_on(folder: Path, done: Any) -> None:
    store = CheckpointStore(folder, keep=2)
    number = store.load_latest().frames if store.paths() else 0
    while True:
        number += 1
        store.save(numbered(number), number, score=float(number % 7))
        done.send(number)


def test_a_kill_at_any_moment_loses_at_most_one_interval(tmp_path: Path) -> None:
    moments, context, finished = random.Random(0), multiprocessing.get_context("fork"), 0
    for _ in range(25):
        ours, theirs = context.Pipe(duplex=False)
        saver = context.Process(target=_save_on_and_on, args=(tmp_path, theirs))
        saver.start()
        theirs.close()
        finished = ours.recv()
        time.sleep(moments.uniform(0.0, 0.06))
        os.kill(saver.pid, signal.SIGKILL)
        saver.join()
        while True:
            try:
                finished = ours.recv()
            except EOFError:
                break
        ours.close()
        store = CheckpointStore(tmp_path)
        latest, best = store.load_latest(), store.load_best()
        assert finished <= latest.frames <= finished + 1
        for checkpoint in (latest, best):
            assert bool((checkpoint.state["weights"] == checkpoint.frames).all())
        assert len(store.paths()) <= 4  # two stay; a kill may come before the third and a newer one are gone
    assert finished > 25


def tensors(value: Any, name: str = "") -> dict[str, torch.Tensor]:
    """All tensors of a state, by where they are."""
    if isinstance(value, torch.Tensor):
        return {name: value}
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else []
    found: dict[str, torch.Tensor] = {}
    for key, part in parts:
        found |= tensors(part, f"{name}/{key}")
    return found


@pytest.mark.parametrize("method", ["e3b", "noveld", "ride", "agac"])
def test_a_learner_that_was_saved_learns_on_bit_by_bit(tmp_path: Path, method: str) -> None:
    sizes = {"n_envs": 4, "n_steps": 12, "batch_size": 24, "lstm": 16}
    config = Config("Rooms-K4-v0", {"flat": True}, BonusConfig.of(method, "paper"), engine="inline", **sizes)
    engine = InlineEngine(config)
    first = Learner(config, *engine.spaces)

    def learn(*learners: Learner) -> None:
        engine.publish(first.policy, first.version)
        with engine.rollout() as rollout:
            for learner in learners:
                learner.learn(copy.deepcopy(rollout))

    learn(first)
    learn(first)
    store = CheckpointStore(tmp_path)
    store.save({"learner": first.state_dict(), "engine": engine.state_dict()}, first.frames)
    second = Learner(dataclasses.replace(config, seed=1), *engine.spaces)
    second.load_state_dict(store.load_latest().state["learner"])
    for _ in range(3):
        learn(first, second)
    assert (first.frames, first.version) == (second.frames, second.version) == (5 * 48, 5)
    expected, got = tensors(first.state_dict()), tensors(second.state_dict())
    assert len(expected) > 20
    assert expected.keys() == got.keys()
    for name, value in expected.items():
        assert torch.equal(value, got[name]), name
    engine.close()
