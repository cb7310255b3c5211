"""`make reproduce` on real runs: it trains and measures what is missing, skips, resumes, divides, and stops cleanly."""

import contextlib
import io
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml
from claimed import claimed_elsewhere

from experiments.catalogue import STUDIES
from experiments.reproduce import frames_of, main, rate, seconds_left
from experiments.results import CONFIG, EVALUATION, Progress, is_finished, read_rows
from experiments.run_table import RunTable, cells, sparkline
from experiments.runs import RunFolder
from experiments.scheduler import Job, Scheduler, State

DEMO = STUDIES["demo"]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def one_by_hand(tmp_path_factory) -> tuple[Path, list[State]]:
    """The demo at its smallest, of which one run was done by its line of a dry run; and the state of all runs then."""
    root = tmp_path_factory.mktemp("reproduce")
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert main(["FIGURE=demo", "SCALE=smoke", f"RUNS={root}", "DRY=1"]) == 0
    lines = said.getvalue().splitlines()
    assert len(lines) == 3
    assert not any(root.iterdir())
    line = lines[1].replace("python -m", f"{sys.executable} -W ignore -m")
    assert subprocess.run(line, shell=True, cwd=ROOT, check=False, capture_output=True).returncode == 0
    return root, [job.state for job in jobs(root)]


@pytest.fixture(scope="module")
def smoke(one_by_hand) -> Path:
    """The demo, run to the end."""
    root, _ = one_by_hand
    assert main(["FIGURE=demo", "SCALE=smoke", f"RUNS={root}", "CORES=2"]) == 0
    return root


def folder(root: Path, method: str = "e3b") -> Path:
    return next(root / run.folder for run in DEMO.runs("smoke") if run.method.name == method)


def jobs(root: Path) -> list[Job]:
    return Scheduler(DEMO.runs("smoke"), root, 1, frames_of).jobs


def test_every_run_is_what_make_train_makes_and_is_evaluated(smoke):
    for run in DEMO.runs("smoke"):
        content = yaml.safe_load((smoke / run.folder / CONFIG).read_text())
        config = content["config"]
        assert (config["env"], config["seed"], config["steps"]) == ("Rooms-K6-v0", 0, 64)
        assert config["env_options"]["clock"] is True
        assert " ".join(run.train_options()) in content["provenance"][0]["command"]
        assert json.loads((smoke / run.folder / EVALUATION).read_text())["episodes"] == run.episodes
        assert is_finished(run, smoke / run.folder, 64)


def test_what_is_finished_is_skipped_and_only_what_is_missing_is_done(smoke, tmp_path, capsys):
    root = tmp_path / "runs"
    shutil.copytree(smoke, root)
    (folder(root) / EVALUATION).unlink()
    before = {path: path.stat().st_mtime_ns for path in root.rglob("progress.csv")}
    assert main(["FIGURE=demo", "SCALE=smoke", f"RUNS={root}", "DRY=1"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert "experiments.evaluate" in line
    assert "experiments.train" not in line
    assert main(["FIGURE=demo", "SCALE=smoke", f"RUNS={root}"]) == 0
    assert "2 of 3 runs are finished" in capsys.readouterr().out
    assert (folder(root) / EVALUATION).exists()
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_dry_line_is_a_command_that_does_the_run(one_by_hand):
    _, states = one_by_hand
    assert states == [State.WAITING, State.FINISHED, State.WAITING]


def test_a_run_that_fails_is_named_with_its_reason_and_the_others_continue(smoke, tmp_path, capsys):
    root = tmp_path / "runs"
    shutil.copytree(smoke, root)
    (folder(root) / EVALUATION).unlink()
    shutil.rmtree(folder(root) / "checkpoints")
    (folder(root, "none") / EVALUATION).unlink()
    assert main(["FIGURE=demo", "SCALE=smoke", f"RUNS={root}", "CORES=2"]) == 1
    said = capsys.readouterr()
    assert "failed: Rooms-K6-clock/e3b-seed0: exit code 2: error: " in said.err
    assert "1 failed, 2 finished" in said.out
    assert (folder(root, "none") / EVALUATION).exists()


def test_what_another_scheduler_has_claimed_is_left_to_it(smoke, tmp_path, capsys):
    root = tmp_path / "runs"
    shutil.copytree(smoke, root)
    run = DEMO.runs("smoke")[0]
    (root / run.folder / EVALUATION).unlink()
    with claimed_elsewhere(root, run):
        assert main(["FIGURE=demo", "SCALE=smoke", f"RUNS={root}"]) == 0
        said = capsys.readouterr().out
        assert "left to another process or machine, which has claimed them: 1 runs (Rooms-K6-clock/e3b-seed0)" in said
        assert not (root / run.folder / EVALUATION).exists()
    scheduler = Scheduler(DEMO.runs("smoke"), root, 1, frames_of)
    scheduler.step()
    assert scheduler.jobs[0].state is State.MEASURING
    scheduler.kill()
    scheduler.wait()


def _start(root: Path) -> subprocess.Popen:
    """`make reproduce` of runs that never end, in a separate process."""
    command = [sys.executable, "-W", "ignore", "-m", "experiments.reproduce", "FIGURE=demo", f"RUNS={root}", "CORES=1"]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def _until(holds, seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_a_stopped_run_has_a_checkpoint_and_is_resumed(tmp_path):
    run = DEMO.runs("home")[0]
    process = _start(tmp_path)
    _until(lambda: len(read_rows(tmp_path / run.folder)) > 0)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=180)
    assert process.returncode == 128 + signal.SIGINT
    assert b"the same command resumes the runs" in out
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children)
    assert any((tmp_path / run.folder / "checkpoints").iterdir())
    (job, *_) = Scheduler(DEMO.runs("home"), tmp_path, 1, frames_of).jobs
    assert 0 < job.progress.frames < job.frames
    assert "RESUME=1" in job.train_command()
    assert f"STEPS={job.frames}" in job.train_command()


@pytest.mark.skipif(sys.platform != "linux", reason="needs prctl")
def test_a_killed_scheduler_leaves_no_process_behind(tmp_path):
    process = _start(tmp_path)
    _until(lambda: psutil.Process(process.pid).children(recursive=True))
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate()
    _until(lambda: not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children))


def test_a_folder_that_holds_a_lock_only_is_started_over(smoke, tmp_path):
    root = tmp_path / "runs"
    shutil.copytree(smoke, root)
    shutil.rmtree(folder(root))
    RunFolder(folder(root)).hold()
    scheduler = Scheduler(DEMO.runs("smoke"), root, 1, frames_of)
    scheduler.step()
    assert scheduler.jobs[0].state is State.TRAINING
    assert not folder(root).exists() or (folder(root) / CONFIG).exists()
    scheduler.kill()
    scheduler.wait()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["FIGURE=agregate"], "unknown FIGURE=agregate"),
        (["FIGURE=demo", "SCALE=big"], "SCALE must be paper, home or smoke; got 'big'"),
        (["FIGURE=demo", "SCALE=paper"], "demo has no SCALE=paper"),
        (["FIGURE=demo", "CORES=0"], "CORES must be a whole number of at least 1"),
        (["FIGURE=demo", "SEEDS=0"], "SEEDS must be a whole number of at least 1"),
        (["FIGURE=demo", "ridge=1"], "not ridge"),
        (["FIGURE=demo", "METHODS=e3b,nome"], "METHODS: these runs have no 'nome'; did you mean none?"),
        (["FIGURE=minihack", "TASKS=MiniHack-Labyrinth-v0"], "did you mean MiniHack-Labyrinth-Big-v0"),
    ],
)
def test_mistakes_are_answered_in_one_line(options, reason, tmp_path, capsys):
    assert main([*options, f"RUNS={tmp_path}"]) == 2
    assert reason in capsys.readouterr().err


def test_tasks_and_methods_choose_runs_of_a_study(tmp_path, capsys):
    chosen = ["TASKS=MiniHack-Labyrinth-Big-v0, MiniHack-WoD-Hard-Restricted-v0", "METHODS=none"]
    assert main(["FIGURE=minihack", "--dry", f"RUNS={tmp_path}", *chosen]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 * 2  # tasks, seeds
    assert all("METHOD=none" in line for line in lines)
    assert {"Labyrinth-Big" in line or "WoD-Hard" in line for line in lines} == {True}


def test_the_time_left_follows_the_speed_of_runs_in_the_same_environment(tmp_path):
    (job, *others) = Scheduler(DEMO.runs("home"), tmp_path, 2, frames_of).jobs
    guess = seconds_left([job, *others])
    assert rate(job.run, [job]) == 7000
    job.progress = Progress(frames=1000, seconds=10.0)
    assert rate(others[0].run, [job, *others]) == 100
    assert seconds_left([job, *others]) > guess
    job.state = State.FINISHED
    assert seconds_left([job]) == 0


def test_the_table_shows_state_speed_success_and_the_curve(tmp_path, capsys):
    (job, *_) = Scheduler(DEMO.runs("home"), tmp_path, 2, frames_of).jobs
    job.state, job.progress, job.curve = State.TRAINING, Progress(625_000, 60.0, 5000.0, 0.5), [(625_000, 0.5)]
    row = cells(job)
    assert row[3:7] == ["training", "625k/1.25M", "5,000", "0.50"]
    assert row[-1] == "2m05s"
    assert sparkline([(1000, 0.0), (2000, 0.5), (3000, 1.0)], 4000, width=4) == " ▁▅█"
    with RunTable([job], seconds_left, 1) as table:
        assert table.table().row_count == 1
        job.state = State.FINISHED
    assert "Rooms-K6-clock/e3b-seed0: finished, training success 0.50" in capsys.readouterr().out
