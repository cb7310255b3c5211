"""Bad input: an error that says what, what it got and what to do; and the memory is as it was."""

from __future__ import annotations

import pytest
import torch

from e3b_gym.memory.elliptical import EllipticalMemory
from e3b_gym.memory.reference import ReferenceMemory

N, D = 3, 5
NO = torch.zeros(2, N, dtype=torch.bool)
ONE = torch.ones(2, N, D)


def spoiled(value):
    rows = ONE.clone()
    rows[1, 2, 3] = value
    return rows


BAD_UNROLLS = {
    "rank": ({"phi": ONE[0], "first": NO[0]}, r"phi must be \[T, N, 5\], got \[3, 5\]"),
    "dim": ({"phi": torch.ones(2, N, 4), "first": NO}, r"phi must be \[T, N, 5\], got \[2, 3, 4\]"),
    "dtype": ({"phi": ONE.double(), "first": NO}, r"torch.float32, got torch.float64; cast"),
    "first shape": ({"phi": ONE, "first": NO[0]}, r"first must be \[2, 3\].*got \[3\]"),
    "first dtype": ({"phi": ONE, "first": NO.to(torch.uint8)}, r"bool tensor, got torch.uint8; convert"),
    "nan": ({"phi": spoiled(float("nan")), "first": NO}, r"1 entries that are NaN or inf, the first at \(1, 2, 3\)"),
    "inf": ({"phi": spoiled(float("-inf")), "first": NO}, r"NaN or inf"),
    "too long": ({"phi": spoiled(1e6), "first": NO}, r"length 1e\+06, whose squares .* limit is 3.16e\+05\); scale"),
    "overflow": ({"phi": spoiled(3e38), "first": NO}, r"too large for a ridge of 0.1"),
    "columns": ({"phi": ONE[:, :2], "first": NO[:, :2]}, r"2 columns but the memory has 3 environments; pass slots"),
    "slot high": ({"phi": ONE[:, :1], "first": NO[:, :1], "slots": [3]}, r"slots must lie in 0..2, got 3..3"),
    "slot low": ({"phi": ONE[:, :1], "first": NO[:, :1], "slots": [-1]}, r"slots must lie in 0..2, got -1"),
    "slot twice": ({"phi": ONE[:, :2], "first": NO[:, :2], "slots": [1, 1]}, r"must not repeat, got \[1, 1\]"),
    "slot number": ({"phi": ONE[:, :2], "first": NO[:, :2], "slots": [1]}, r"slots must be 2 integers"),
    "slot type": ({"phi": ONE[:, :1], "first": NO[:, :1], "slots": torch.tensor([0.5])}, r"integers.*torch.float32"),
    "opening rows": (
        {"phi": ONE, "first": ~NO, "opening": torch.ones(5, D)},
        r"opening must be \[6, 5\].*got \[5, 5\]",
    ),
    "opening nan": ({"phi": ONE, "first": ~NO, "opening": torch.full((6, D), torch.nan)}, r"opening has 30 entries"),
    "opening dtype": (
        {"phi": ONE, "first": ~NO, "opening": torch.ones(6, D).double()},
        r"opening must be torch.float",
    ),
}


MEMORIES = [
    pytest.param(lambda: EllipticalMemory(N, D, backend="numba"), id="numba"),
    pytest.param(lambda: EllipticalMemory(N, D, backend="torch"), id="torch"),
    pytest.param(lambda: ReferenceMemory(N, D), id="reference"),
]


def experienced(make):
    memory = make()
    memory.unroll(torch.randn(40, N, D, generator=torch.Generator().manual_seed(1)), torch.zeros(40, N) > 1)
    return memory


def snapshot(memory):
    return {name: value.clone() for name, value in memory.state_dict().items() if torch.is_tensor(value)}


@pytest.mark.parametrize("make", MEMORIES)
@pytest.mark.parametrize("case", BAD_UNROLLS)
def test_bad_input_is_refused_and_the_memory_unchanged(make, case):
    arguments, message = BAD_UNROLLS[case]
    memory = experienced(make)
    before = snapshot(memory)
    with pytest.raises(ValueError, match=message):
        memory.unroll(**arguments)
    after = snapshot(memory)
    assert all(torch.equal(after[name], value) for name, value in before.items())


@pytest.mark.parametrize("make", MEMORIES)
def test_step_refuses_a_whole_unroll(make):
    with pytest.raises(ValueError, match="use unroll"):
        make().step(ONE, NO)


@pytest.mark.parametrize("make", MEMORIES)
def test_a_state_of_other_sizes_is_refused_and_the_memory_unchanged(make):
    memory = experienced(make)
    before = snapshot(memory)
    good = memory.state_dict()
    last = [name for name, value in good.items() if torch.is_tensor(value)][-1]
    bad = {
        "num_envs=4, but this memory has num_envs=3": good | {"num_envs": 4},
        "dim=6": good | {"dim": 6},
        "ridge=0.2": good | {"ridge": 0.2},
        "episodic=False": good | {"episodic": False},
        "it has no 'num_envs'": {},
        f"'{last}' of the state must be": good | {last: good[last][:, :2]},
        f"'{last}' of the state must be .* got None": {name: value for name, value in good.items() if name != last},
        f"'{last}' of the state must be .* of torch.float16": good | {last: good[last].half()},
    }
    for message, state in bad.items():
        with pytest.raises(ValueError, match=message):
            memory.load_state_dict(state)
    after = snapshot(memory)
    assert all(torch.equal(after[name], value) for name, value in before.items())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ridge": 0.0}, "ridge must be a positive number, got 0.0"),
        ({"ridge": -1.0}, "ridge must be a positive number"),
        ({"ridge": float("nan")}, "ridge must be a positive number"),
        ({"dtype": torch.float16}, "torch.float32 or torch.float64, got torch.float16"),
        ({"num_envs": 0}, "num_envs=0"),
        ({"dim": 0}, "dim=0"),
        ({"backend": "cuda"}, "backend must be 'auto', 'numba' or 'torch', got 'cuda'"),
        ({"backend": "numba", "device": "cuda"}, "runs on the CPU, not on cuda"),
    ],
)
def test_bad_construction_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        EllipticalMemory(**({"num_envs": 2, "dim": 3} | arguments))
