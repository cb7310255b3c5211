"""`make report` draws from folders alone: scores, verdicts, plots with their CSV, pages, and what was not run."""

import contextlib
import csv
import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from made_runs import make_folder

from experiments import report, statistics
from experiments.catalogue import STUDIES
from experiments.claims import Verdict, judge
from experiments.plots import curves_figure
from experiments.report_tables import differences, score_table
from experiments.reproduction import reproduction_page
from experiments.results import Result, keep, read_results, with_further_seeds
from experiments.statistics import aggregates, complete, difference, improvement, matrix
from experiments.studies import Claim, Method, Scale, Study, Task

ROOT = Path(__file__).parents[2]
ONE, TWO = Task("MiniHack-MultiRoom-N6-v0"), Task("MiniHack-Labyrinth-Big-v0")
STUDY = Study(
    "made",
    "A study made for a test",
    "Figure 0",
    "E3B is better.",
    (ONE, TWO),
    (Method("E3B", "e3b"), Method("IMPALA", "none"), Method("RND", "rnd", prior=True)),
    {"home": Scale(seeds=3)},
    groups={"labyrinths": (str(TWO),)},
    claims=(Claim("E3B is above no bonus", "above", ("e3b",), ("none",)), Claim("RND fails", "fails", ("rnd",))),
)
SCORES = {"e3b": (0.9, 1.0, 0.8), "none": (0.0, 0.1, 0.0)}


def csv_rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """E3B and no bonus on both tasks with three seeds; RND was not run."""
    root = tmp_path_factory.mktemp("made")
    for run in STUDY.runs("home"):
        if run.method.name in SCORES:
            bonus = {"beta": 0.1 + 0.1 * (run.task == TWO)}
            if (run.method.name, run.seed) == ("e3b", 0):
                bonus["ridge"] = 0.1  # an option that most runs do not have is no difference
            make_folder(root, run, SCORES[run.method.name][run.seed], bonus=bonus)
    return root


@contextlib.contextmanager
def few_draws() -> Iterator[None]:
    """A tenth of the bootstrap's draws, which are most of a report's time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statistics, "REPEATS", statistics.REPEATS // 10)
        patch.setattr(statistics, "CURVE_REPEATS", statistics.CURVE_REPEATS // 10)
        yield


def quick_report(runs: Path, out: Path) -> report.Report:
    with few_draws():
        return report.make_report(STUDY, "home", runs, out)


@pytest.fixture(scope="module")
def made(runs, tmp_path_factory) -> report.Report:
    from experiments.report_pages import write_pages

    made = quick_report(runs, tmp_path_factory.mktemp("out") / "made")
    write_pages(made)
    return made


def test_plots_are_png_and_svg_with_the_csv_that_is_drawn(made):
    assert [plot.name for plot in made.plots] == ["aggregate", "improvement", "curves", "efficiency", "profiles"]
    for plot in made.plots:
        assert (made.out / f"{plot.name}.png").read_bytes().startswith(b"\x89PNG")
        assert b"<svg" in (made.out / f"{plot.name}.svg").read_bytes()
    rows = csv_rows(made.out / "aggregate.csv")
    (mean,) = (r for r in rows if (r["method"], r["metric"], r["group"]) == ("E3B", "mean", "all 2 tasks"))
    assert float(mean["value"]) == pytest.approx(0.9)
    assert float(mean["low"]) < 0.9 < float(mean["high"])
    assert {row["group"] for row in rows} == {"all 2 tasks", "labyrinths"}
    curve = [r for r in csv_rows(made.out / "curves.csv") if r["method"] == "E3B"]
    assert [float(curve[-1][name]) for name in ("mean", "low", "high")] == pytest.approx([0.9, 0.8, 1.0])


def test_the_page_needs_no_other_file_and_says_what_was_not_run(made):
    page = (made.out / "index.html").read_text()
    assert page.count("data:image/svg+xml;base64,") == len(made.plots)
    assert "http" not in page
    assert "6 runs of the plan missing" in page
    assert "3 seeds per method and task; these are few seeds" in page
    assert '<span class="verdict agrees">agrees</span>' in page
    assert '<span class="verdict not-run">not run</span>' in page
    assert "abc1234" in page
    readme = (made.out / "README.md").read_text()
    assert "| RND* | not run | not run |" in readme
    assert "| E3B | 0.900 [0.800, 1.000] (3 seeds) |" in readme
    assert (
        "| Labyrinth-Big | E3B | 0 | 0.00M | 0.01 | 0.900 [0.800, 1.000] | 200 | 0.00M | beta=0.2 | abc1234 |" in readme
    )


def test_plots_that_the_runs_no_longer_allow_are_removed(runs, tmp_path):
    first = STUDY.runs("home")[0]
    shutil.copytree(runs / first.folder, tmp_path / "one" / first.folder)
    out = tmp_path / "made"
    out.mkdir()
    (out / "aggregate.png").write_bytes(b"old")
    (out / "tuning.md").write_text("mine")
    drawn = quick_report(tmp_path / "one", out).plots
    assert "aggregate" not in {plot.name for plot in drawn}
    kinds = ("csv", "png", "svg")
    assert {path.name for path in out.iterdir()} == {
        "tuning.md",
        *(f"{plot.name}.{kind}" for plot in drawn for kind in kinds),
    }


def test_a_report_is_the_same_when_it_is_made_again(made, runs, tmp_path):
    again = quick_report(runs, tmp_path / "made")
    for plot in again.plots:
        for kind in ("csv", "svg"):
            name = f"{plot.name}.{kind}"
            assert (tmp_path / "made" / name).read_bytes() == (made.out / name).read_bytes(), name


@pytest.mark.parametrize(
    ("kind", "methods", "others", "verdict"),
    [
        ("above", ("e3b",), ("none",), Verdict.AGREES),
        ("above", ("none",), ("e3b",), Verdict.DISAGREES),
        ("above", ("e3b",), ("none", "rnd"), Verdict.PARTLY),
        ("same", ("e3b",), ("none",), Verdict.DISAGREES),
        ("same", ("e3b",), ("e3b",), Verdict.AGREES),
        ("solves", ("e3b",), (), Verdict.AGREES),
        ("solves", ("none",), (), Verdict.DISAGREES),
        ("fails", ("none",), (), Verdict.AGREES),
        ("fails", ("e3b",), (), Verdict.DISAGREES),
        ("fails", ("rnd",), (), Verdict.NOT_RUN),
    ],
)
def test_a_claim_is_judged_by_the_runs(runs, kind, methods, others, verdict):
    judged = judge(STUDY, Claim("", kind, methods, others), read_results(STUDY, "home", runs))
    assert judged.verdict is verdict
    assert verdict is Verdict.NOT_RUN or "3 seeds, few" in judged.evidence


def test_one_seed_decides_no_difference_and_a_mean_in_between_decides_nothing(tmp_path):
    for run in STUDY.runs("home"):
        if run.seed == 0 and run.method.name != "rnd":
            make_folder(tmp_path, run, 0.3 if run.method.name == "e3b" else 0.0)
    results = read_results(STUDY, "home", tmp_path)
    assert judge(STUDY, STUDY.claims[0], results).verdict is Verdict.UNDECIDED
    assert judge(STUDY, Claim("", "solves", ("e3b",)), results).verdict is Verdict.UNDECIDED
    assert difference(np.array([[0.3]]), np.array([[0.0]])).interval is None


def test_aggregates_are_over_the_tasks_that_the_methods_share(runs, tmp_path):
    root = tmp_path / "runs"
    shutil.copytree(runs, root)
    extra = next(run for run in STUDY.runs("home") if run.method.name == "rnd" and run.task == ONE)
    make_folder(root, extra, 0.5)
    results = read_results(STUDY, "home", root)
    names = [method.name for method in STUDY.methods]
    scores, tasks = complete(results, [str(ONE), str(TWO)], names)
    assert (sorted(scores), tasks) == (["e3b", "none"], [str(ONE), str(TWO)])  # RND lacks a task
    assert {values.shape for values in scores.values()} == {(3, 2)}
    scores, tasks = complete(results, [str(ONE)], names)
    assert sorted(scores) == ["e3b", "none", "rnd"]
    with few_draws():
        assert aggregates(scores)["rnd"]["IQM"].interval is None
        assert improvement(scores, "e3b")["none"].value == 1.0


def test_a_task_with_more_seeds_weighs_no_more():
    assert matrix({"a": [1.0, 0.0], "b": [0.5]}, ["a", "b"]).tolist() == [[1.0, 0.5]]


def test_the_success_before_the_first_value_of_a_run_counts_as_nothing(runs):
    results = read_results(STUDY, "home", runs)
    scores, tasks = complete(results, [str(task) for task in STUDY.tasks], ["e3b", "none"])
    with few_draws():
        curve = statistics.efficiency(results, scores, tasks, points=9)["curves"]["e3b"]
    assert curve[0].value == curve[1].value == 0  # the first of four values is at a quarter of the frames
    assert curve[2].value > 0


def test_a_run_that_was_continued_counts_up_to_its_budget(tmp_path):
    study = STUDIES["demo"]
    run = study.runs("home")[0]
    make_folder(tmp_path, run, 1.0, frames=2_500_000)
    result = Result(run, tmp_path / run.folder)
    assert (result.frames, result.score) == (1_250_000, 0.5)
    assert result.steps_to(0.5) == 1_250_000
    assert result.steps_to(0.8) is None


def test_a_curve_starts_with_its_first_full_window_of_episodes(tmp_path):
    run = STUDIES["demo"].runs("home")[0]
    folder = make_folder(tmp_path, run, 1.0)
    rows = ["100,1,3,0.9", "200,2,150,0.1", "300,3,200,0.2", "400,4,260,0.3"]
    (folder / "progress.csv").write_text("\n".join(["frames,seconds,episodes,success", *rows]) + "\n")
    assert Result(run, folder).curve["success"].tolist() == [0.2, 0.3]
    assert Result(run, folder).steps_to(0.8) is None
    drawn = report.curve_rows(STUDIES["demo"], [Result(run, folder)])
    assert (drawn[0]["frames"], drawn[0]["mean"], drawn[-1]["mean"]) == (300, 0.2, 0.3)  # nothing is known of 0 to 300
    (folder / "progress.csv").write_text("\n".join(["frames,seconds,episodes,success", *rows[:2]]) + "\n")
    assert Result(run, folder).curve["success"].tolist() == [0.9, 0.1]  # all there is


def test_panels_without_a_task_are_not_shown():
    row = {"method": "E3B", "frames": 1e6, "mean": 0.5, "low": 0.4, "high": 0.6}
    figure = curves_figure([{"task": f"task {number}", **row} for number in range(6)])
    assert [axis.get_visible() for axis in figure.axes] == [True] * 6 + [False] * 2


def test_further_seeds_in_the_folder_are_shown_and_kept(tmp_path):
    first = STUDY.runs("home")[0]
    further = dataclasses.replace(first, seed=3)
    for run in (first, further):
        make_folder(tmp_path / "runs", run, 0.7)
    (tmp_path / "runs" / first.folder.parent / "e3b-seedling").mkdir()
    assert [r.run.seed for r in read_results(STUDY, "home", tmp_path / "runs")] == [0, 3]
    kept = keep(with_further_seeds(STUDY, "home", tmp_path / "runs"), tmp_path / "runs", tmp_path / "stored")
    assert [folder.name for folder in kept] == ["e3b-seed0", "e3b-seed3"]


def test_only_settings_and_measurements_are_kept(runs, tmp_path):
    first = STUDY.runs("home")[0]
    (runs / first.folder / "checkpoints").mkdir(exist_ok=True)
    (kept, *_) = keep(STUDY.runs("home"), runs, tmp_path)
    assert {path.name for path in kept.iterdir()} == {"config.yaml", "progress.csv", "evaluation-latest-seed0.json"}
    assert len(read_results(STUDY, "home", tmp_path)) == 12


def test_the_table_names_the_settings_in_which_a_run_differs(runs):
    results = read_results(STUDY, "home", runs)
    assert set(differences(results).values()) == {"", "beta=0.2"}


def test_no_run_is_an_error_that_names_the_command(tmp_path, capsys):
    assert report.main(["FIGURE=keys", f"RUNS={tmp_path}", f"OUT={tmp_path}"]) == 2
    assert "make reproduce FIGURE=keys SCALE=home" in capsys.readouterr().err
    assert report.main(["FIGURE=keys", "SCALE=huge"]) == 2
    assert report.main(["FIGURE=keys", "KEEP=1", "OUT=x"]) == 2


def test_the_tables_of_the_stored_runs_are_those_of_earlier_commits():
    """Numbers of the pages that earlier commits made from the same runs."""
    stored = ROOT / "results" / "runs"

    def table(name: str) -> dict[str, list[str]]:
        return {
            row[0]: row[1:]
            for row in score_table(STUDIES[name], "home", read_results(STUDIES[name], "home", stored))[1]
        }

    rooms = table("rooms")
    assert [cell[:4] for cell in rooms["E3B"]] == ["0.94", "0.57", "0.39"]
    assert rooms["no bonus"][0].startswith("0.000 [0.000, 0.000]")
    clock = [
        r for r in read_results(STUDIES["rooms"], "home", stored) if r.run.name.startswith("Rooms-K6-clock/e3b-seed")
    ]
    assert sorted(r.steps_to() // 10_000 for r in clock) == [86, 95, 100]
    assert table("habitat")["E3B"] == ["0.375, 0.369 (2 seeds)"]
    assert table("minigrid")["E3B"][0].startswith("0.988 [0.980, 1.000]")


def test_the_reproduction_page_lists_every_claim_of_the_paper():
    page = reproduction_page(list(STUDIES.values()), ROOT / "results" / "runs")
    for study in STUDIES.values():
        for claim in study.claims:
            assert f"| {claim.text} |" in page
    assert "Not run. To run it: `make reproduce FIGURE=keys SCALE=home`" in page
    assert (ROOT / "docs" / "reproduction.md").read_text() == page, "make report FIGURE=all KEEP=1"


def test_coverage_is_read_from_its_file(tmp_path):
    run = STUDIES["habitat"].runs("home")[0]
    folder = make_folder(tmp_path, run, 0.0)
    agents = [
        {
            "agent": "E3B",
            "method": "e3b",
            "frames": 64,
            "coverage": {"mean": 0.4, "low": 0.3, "high": 0.5},
            "played": [[]] * 7,
        }
    ]
    (folder / "coverage.json").write_text(json.dumps({"episodes": 7, "agents": agents}))
    result = Result(run, folder)
    assert (result.score, result.interval, result.episodes) == (0.4, (0.3, 0.5), 7)
