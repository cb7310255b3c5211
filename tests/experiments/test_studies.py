"""Studies are data: every run is one that `make train` accepts, and what a claim names is there."""

import importlib

import gymnasium
import pytest

from e3b_gym.bonuses import METHODS
from e3b_gym.envs.registry import all_tasks
from experiments import paper
from experiments.catalogue import STUDIES, find_studies
from experiments.reproduce import frames_of, with_seeds
from experiments.studies import SCALES, Method, Scale, Study, Task, all_runs

EVERY = [(name, scale) for name, study in STUDIES.items() for scale in study.scales]


@pytest.mark.parametrize(("name", "scale"), EVERY)
def test_every_run_has_settings_that_train_accepts(name, scale):
    runs = STUDIES[name].runs(scale)
    assert runs
    for run in runs:
        assert run.method.method in METHODS or not run.learns
        module, _, id = run.task.env.rpartition(":")
        if module:
            importlib.import_module(module)
        assert id in all_tasks() or id in gymnasium.registry
        assert frames_of(run) > 0 or not run.learns


@pytest.mark.parametrize("scale", SCALES)
def test_runs_of_two_studies_with_one_folder_are_the_same_run(scale):
    commands = {}
    for study in STUDIES.values():
        for run in study.runs(scale) if scale in study.scales else []:
            command = (run.train_options(), run.episodes)
            assert commands.setdefault(run.folder, command) == command, f"{study.name}: {run.name}"


@pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES.keys())
def test_claims_groups_and_scales_name_what_there_is(study):
    tasks = {str(task) for task in study.tasks}
    for claim in study.claims:
        assert {*claim.methods, *claim.others} <= set(study.labels), claim.text
        assert set(study.group(claim.group)) <= tasks, claim.text
        assert bool(claim.others) == (claim.kind in ("above", "same"))
    for names in study.groups.values():
        assert set(names) <= tasks
    for name, scale in study.scales.items():
        assert name in SCALES
        assert set(scale.tasks or ()) <= tasks
        assert not isinstance(scale.frames, dict) or set(scale.frames) >= {str(t) for t in study.tasks_at(name)}


def test_the_papers_sixteen_tasks_and_the_six_of_home():
    assert (len(paper.NAVIGATION), len(paper.SKILL)) == (9, 7)
    known = all_tasks()
    assert {known[env][1].kind for env in paper.NAVIGATION} == {"navigation"}
    assert {known[env][1].kind for env in paper.SKILL} == {"skill"}
    assert sum(env in paper.NAVIGATION for env in paper.HOME) == sum(env in paper.SKILL for env in paper.HOME) == 3


def test_the_scales_of_the_paper_have_its_seeds_and_frames():
    for name, seeds, frames in (("aggregate", 5, 50_000_000), ("vizdoom", 5, 50_000_000), ("habitat", 3, 225_000_000)):
        runs = [run for run in STUDIES[name].runs("paper") if run.learns]
        assert {run.seed for run in runs} == set(range(seeds))
        assert {frames_of(run) for run in runs} == {frames}
    assert len(STUDIES["aggregate"].runs("paper")) == 16 * 9 * 5


def test_the_options_of_a_run_are_those_of_make_train():
    method = Method("a", "e3b", {"ridge": 0.01})
    study = Study(
        "s",
        "",
        "",
        "",
        (Task("Rooms-K3-v0", {"clock": True}, "clock"),),
        (method,),
        {"home": Scale(seeds=2, frames=50)},
    )
    first, second = study.runs("home")
    assert first.train_options() == [
        "ENV=Rooms-K3-v0", "METHOD=e3b", "SEED=0", "AGENT=impala", "PRESET=home", "STEPS=50", "engine=inline",
        "env.clock=true", "ridge=0.01",
    ]  # fmt: skip
    assert str(second.folder) == "home/clock/e3b,ridge=0.01-seed1"


def test_a_random_agent_is_run_once_for_more_episodes():
    runs = [run for run in STUDIES["minihack"].runs("home") if not run.learns]
    assert {run.seed for run in runs} == {0}
    assert {run.episodes for run in runs} == {1000}
    assert runs[0].train_options() == [f"ENV={runs[0].task.env}", "SEED=0", "AGENT=random"]


def test_runs_that_studies_share_are_listed_once():
    shared = all_runs([STUDIES["aggregate"], STUDIES["ablations"]], "home")
    assert len({run.folder for run in shared}) == len(shared)
    assert len(shared) < len(STUDIES["aggregate"].runs("home")) + len(STUDIES["ablations"].runs("home"))


def test_figures_are_found_by_name():
    assert [study.name for study in find_studies("keys,lambda")] == ["keys", "lambda"]
    assert len(find_studies("all")) == len(STUDIES) - 1
    with pytest.raises(ValueError, match="unknown FIGURE=agregate; choose from all, counts"):
        find_studies("agregate")
    with pytest.raises(ValueError, match="demo has no SCALE=paper; choose from home, smoke"):
        STUDIES["demo"].runs("paper")
    assert len(with_seeds(STUDIES["demo"], 4).runs("home")) == 12
