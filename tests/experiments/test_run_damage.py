"""A run survives full disks, cut curves and missing files; what cannot be repaired is refused and left as it is."""

import errno
import os
import re
import shutil
from pathlib import Path

import pytest
from test_commands import refused, snapshot
from tiny_runs import FRAMES, TINY, rows, tiny

from agents.checkpoint import CheckpointWarning
from experiments.curve import Curve, CurveWarning, read_curve
from experiments.train import main

FULL = OSError(errno.ENOSPC, "No space left on device")


def test_a_curve_without_checkpoints_is_not_overwritten(trained, tmp_path, capsys):
    run = tmp_path / "run"
    run.mkdir()
    for name in ("config.yaml", "progress.csv"):  # what results/ keeps of a run
        (run / name).write_bytes((trained / name).read_bytes())
    before = snapshot(run)
    said = refused(capsys, main([f"RUN={run}", "RESUME=1", "STEPS=1000"]))
    assert "has a curve but no checkpoint, so RESUME=1 would start at frame 0 and overwrite it" in said
    assert snapshot(run) == before


@pytest.mark.parametrize("preset", ["1.5", "null", "[home]", '"../home"', r'"\0"'])
def test_a_preset_that_is_no_name_is_refused(preset, trained, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    text = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(re.sub("^preset: .*$", lambda _: f"preset: {preset}", text, flags=re.MULTILINE))
    before = snapshot(run)
    said = refused(capsys, main([f"RUN={run}", "RESUME=1", "STEPS=1000"]))
    assert "config.yaml: preset must be the name of a preset; got" in said
    assert snapshot(run) == before


def test_a_run_that_was_killed_before_its_first_checkpoint_starts_over(tmp_path, capsys, monkeypatch):
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("agents.impala.learner.Learner.learn", lambda *given: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            main(tiny(run))
    assert f"there is no checkpoint after frame 0 yet; to start over: make train RUN={run}" in capsys.readouterr().err
    assert main([f"RUN={run}", "RESUME=1"]) == 0
    assert [int(row["frames"]) for row in rows(run)] == [FRAMES, 2 * FRAMES]


def test_a_run_that_ended_while_its_config_was_written_starts_over(tmp_path, monkeypatch):
    run = tmp_path / "run"
    with monkeypatch.context() as disk:
        disk.setattr("pathlib.Path.replace", lambda *given: raised(FULL))
        disk.setattr("pathlib.Path.unlink", lambda *given, **more: raised(FULL))
        assert main(tiny(run)) == 2
    assert sorted(file.name for file in run.iterdir()) == [".lock", "config.yaml.part"]
    assert main(tiny(run)) == 0
    assert [int(row["frames"]) for row in rows(run)] == [FRAMES, 2 * FRAMES]
    assert not (run / "config.yaml.part").exists()


@pytest.mark.parametrize(
    "tail",
    [b"\0" * 64, b"abc,def\r\n", b"12.5\r\n", b"3", b"3\r\n", b"1," * 99 + b"\r\n", b"\xff\xfe\x80\r\n", b"96,1.0"],
)
def test_a_damaged_tail_of_the_curve_is_dropped(tail, tmp_path):
    run = tmp_path / "run"
    assert main(tiny(run)) == 0
    whole = (run / "progress.csv").read_bytes()
    (run / "progress.csv").write_bytes(whole + tail)
    with pytest.warns(CurveWarning, match="1 incomplete rows dropped"):
        assert main([f"RUN={run}", "RESUME=1", f"STEPS={3 * FRAMES}"]) == 0
    assert [int(row["frames"]) for row in rows(run)] == [FRAMES, 2 * FRAMES, 3 * FRAMES]
    assert (run / "progress.csv").read_bytes().startswith(whole)


@pytest.mark.parametrize("header", [b"\0\0\0\n", b"", b"frames,frames\n1,2\n"])
def test_a_curve_without_a_header_is_put_aside(header, tmp_path, recwarn):
    run = tmp_path / "run"
    assert main(tiny(run)) == 0
    (run / "progress.csv").write_bytes(header)
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert main([f"RUN={run}", "RESUME=1", f"STEPS={3 * FRAMES}"]) == 0
    assert [int(row["frames"]) for row in rows(run)] == [3 * FRAMES]
    if header:
        assert (run / "progress.csv.damaged").read_bytes() == header


def test_a_curve_cut_at_any_byte_keeps_its_whole_rows(tmp_path):
    file = tmp_path / "progress.csv"
    curve = Curve(file, 0)
    for frames in (10, 20, 30):
        curve.write({"frames": frames, "bonus": 0.125, "success": 1.0})
    whole = file.read_bytes()
    ends = [place + 1 for place, byte in enumerate(whole) if byte == ord("\n")]
    for cut in range(len(whole) + 1):
        file.write_bytes(whole[:cut])
        kept = sum(end <= cut for end in ends) - 1
        if cut in (0, *ends):
            found = read_curve(file)[1]
        elif kept < 0:
            assert read_curve(file) == ([], [])
            continue
        else:
            with pytest.warns(CurveWarning):
                found = read_curve(file)[1]
        assert [int(row["frames"]) for row in found] == [10, 20, 30][: max(kept, 0)]


def test_a_row_that_could_not_be_written_follows_with_the_next(tmp_path, monkeypatch):
    file = tmp_path / "progress.csv"
    curve = Curve(file, 0)
    curve.write({"frames": 10, "bonus": 1.0})
    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.open", lambda *given, **more: raised(FULL))
        with pytest.warns(CurveWarning, match=r"No space left on device.*training continues"):
            curve.write({"frames": 20, "bonus": 2.0})
    assert [row["frames"] for row in read_curve(file)[1]] == ["10"]
    curve.write({"frames": 30, "bonus": 3.0})
    assert [row["frames"] for row in read_curve(file)[1]] == ["10", "20", "30"]


def raised(error):
    raise error


@pytest.mark.parametrize("agent", ["impala", "ppo"])
def test_a_full_disk_under_the_curve_does_not_end_the_training(agent, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("experiments.curve.Curve._rewrite", lambda self: raised(FULL))
    monkeypatch.setattr("torch.utils.tensorboard.writer.SummaryWriter.add_scalar", lambda *given: raised(FULL))
    with pytest.warns(CurveWarning) as warned:
        assert main(tiny(tmp_path / "run", agent=agent)) == 0
    assert any("TensorBoard's events cannot be written" in str(one.message) for one in warned)
    assert any("progress.csv could not be written" in str(one.message) for one in warned)
    assert "done: 64 frames" in capsys.readouterr().out


@pytest.mark.parametrize("agent", TINY)
def test_a_full_disk_under_the_checkpoints_is_a_warning_and_at_the_end_an_error(agent, tmp_path, monkeypatch, capsys):
    run, write = tmp_path / "run", Path.write_bytes
    written = []

    def fails_after_two_checkpoints(path, content):  # those of frames 0 and 32
        if path.name.startswith("checkpoint-"):
            written.append(path)
            if len(written) > 2:
                write(path, content[:100])
                raise FULL
        return write(path, content)

    monkeypatch.setattr("pathlib.Path.write_bytes", fails_after_two_checkpoints)
    with pytest.warns(RuntimeWarning, match=r"checkpoint of frame (64|96) is not saved: no space left.*continues"):
        assert main(tiny(run, "Rooms-K3-v0", agent, "checkpoint_minutes=1e-9", steps=3 * FRAMES)) == 1
    said = capsys.readouterr().err
    assert "the checkpoint of frame 96 is not saved: no space left on device; free some space" in said
    assert f"the checkpoint of frame 32 is intact; to resume: make train RUN={run} RESUME=1" in said
    assert not list(run.rglob("*.part"))
    monkeypatch.undo()
    assert main([f"RUN={run}", "RESUME=1"]) == 0
    assert [int(row["frames"]) for row in rows(run)] == [FRAMES, 2 * FRAMES, 3 * FRAMES]


@pytest.mark.parametrize("agent", TINY)
def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before(agent, tmp_path, capsys):
    run = tmp_path / "run"
    assert main(tiny(run, "Rooms-K3-v0", agent, "checkpoint_minutes=1e-9")) == 0
    newest = sorted((run / "checkpoints").glob("checkpoint-*.pt"))[-1]
    os.truncate(newest, newest.stat().st_size // 2)
    with pytest.warns(CheckpointWarning, match=r"using the earlier checkpoint-000002-32.pt \(32 frames\)"):
        assert main([f"RUN={run}", "RESUME=1"]) == 0
    assert "resuming at frame 32" in capsys.readouterr().out
    assert [int(row["frames"]) for row in rows(run)] == [FRAMES, 2 * FRAMES]


def test_a_log_on_a_full_disk_does_not_end_the_training(tmp_path):
    from experiments.progress import Progress

    class FullStream:
        def isatty(self):
            return False

        def write(self, text):
            raise FULL

        flush = write

    progress = Progress(tmp_path, 10, stream=FullStream())
    progress._newest = {"bonus": 1.0}
    progress.finish(5, {})
