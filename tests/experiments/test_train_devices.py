"""`device=` of `make train`, with every agent: what works trains there, what does not is refused in one line."""

from pathlib import Path

import pytest
import torch
import yaml
from pretend_device import Device, register
from tiny_runs import FRAMES, TINY, rows, tiny

from experiments.train import main

register()
NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")


def device_of_run(run: Path) -> str:
    return str(yaml.safe_load((run / "config.yaml").read_text())["config"]["device"])


@pytest.mark.filterwarnings("ignore:You are trying to run PPO on the GPU:UserWarning")  # SB3's advice
@pytest.mark.parametrize(
    ("agent", "device"),
    [(agent, device) for agent in TINY for device in ("cpu", "pretend")],
)
def test_a_run_trains_on_the_device_and_is_resumed_on_the_cpu(agent, device, tmp_path):
    run = tmp_path / "run"
    with Device():
        assert main(tiny(run, "Rooms-K3-v0", agent, "env.max_steps=5", f"device={device}", steps=FRAMES)) == 0
    assert device_of_run(run) == device
    assert main([f"RUN={run}", "RESUME=1", "device=cpu", f"STEPS={2 * FRAMES}"]) == 0
    assert device_of_run(run) == "cpu"
    assert int(rows(run)[-1]["frames"]) == 2 * FRAMES


@pytest.mark.parametrize("agent", TINY)
@pytest.mark.parametrize(
    ("device", "reason"),
    [
        ("gpu", "device must be 'auto', 'cpu', 'cuda' or 'cuda:<number>'; got 'gpu'"),
        ("cuda:one", "device must be 'auto', 'cpu', 'cuda' or 'cuda:<number>'; got 'cuda:one'"),
        ("", "device must be 'auto', 'cpu', 'cuda' or 'cuda:<number>'; got ''"),
        ("meta", "device 'meta' holds no numbers; use device='auto' or 'cpu'"),
        pytest.param(
            "cuda",
            "device 'cuda' is not available (PyTorch finds none here); use device='auto' or 'cpu'",
            marks=NO_GPU,
        ),
    ],
)
def test_a_device_that_cannot_be_used_is_one_line_and_leaves_no_run(agent, device, reason, tmp_path, capsys):
    run = tmp_path / "run"
    assert main(tiny(run, "Rooms-K3-v0", agent, f"device={device}")) == 2
    assert capsys.readouterr().err == f"error: {reason}\n"
    assert not run.exists()
