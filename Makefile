# `make help` lists the targets. Every target sets up .venv first when it is missing or out of date.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
RAY    := $(VENV)/.ray-installed
# One OpenMP thread per process: two processes that oversubscribe the cores slow each other down 50x.
export OMP_NUM_THREADS ?= 1
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest -n $(WORKERS)

.DEFAULT_GOAL := help
.PHONY: help install ray demo train evaluate watch agents export doctor reproduce report homes test test-slow test-latest fuzz campaign coverage docs dist check lint types imports format bench board clean

help:  ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP)  ## make .venv with everything for all suites

$(STAMP): setup.cfg constraints.txt pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[all]'
	@touch $@

ray: $(RAY)  ## add Ray to .venv: what engine=ray, CLUSTER=ray and the tests need

$(RAY): $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[ray]'
	@touch $@

# Ray where the command line asks for it: `make train engine=ray`, `ray_address=...`, `make reproduce CLUSTER=ray`.
ASKED := $(if $(filter ray,$(engine) $(CLUSTER))$(ray_address),$(RAY))

demo: $(STAMP)  ## E3B, no bonus and a count explore rooms with a clock: live curves, then a picture (5 minutes)
	@$(BIN)/python -m experiments.reproduce FIGURE=demo RUNS=runs/demo
	@$(BIN)/python -m experiments.report FIGURE=demo RUNS=runs/demo OUT=runs

# `make train ENV=... learning_rate=3e-4` passes every NAME=value of its command line on, quoted for the shell and
# without expansion, so that spaces, quotes and $ arrive as they were typed.
OWN     := PYTHON WORKERS LATEST VENV BIN STAMP RAY ASKED PYTEST OMP_NUM_THREADS N MINUTES
GIVEN    = $(filter-out $(OWN),$(foreach name,$(.VARIABLES),$(if $(filter command,$(origin $(name))),$(name))))
QUOTE   := '
OPTIONS  = $(foreach name,$(GIVEN),$(QUOTE)$(subst $(QUOTE),$(QUOTE)\$(QUOTE)$(QUOTE),$(name)=$(value $(name)))$(QUOTE))

train: $(STAMP) $(ASKED)  ## train an agent: ENV=... [METHOD= AGENT= PRESET= STEPS= SEED= NET= RUN= <any field>=]; RUN=... RESUME=1
	@$(BIN)/python -m experiments.train $(OPTIONS)

evaluate: $(STAMP)  ## success and return of a run in unseen environments: RUN=... [EPISODES= SEED= CHECKPOINT=best GREEDY=1]
	@$(BIN)/python -m experiments.evaluate $(OPTIONS)

watch: $(STAMP)  ## an agent in the terminal, with its bonus: RUN=..., or ENV=... of `make agents` [EPISODES= STEPS= RECORD=film.gif]
	@$(BIN)/python -m experiments.watch $(OPTIONS)

agents: $(STAMP)  ## the trained agents that come with the repository, with what was measured
	@$(BIN)/python -m experiments.trained

export: $(STAMP)  ## make a small agent (float16) of a finished run, and measure it: RUN=... [CHECKPOINT= EPISODES= OUT=]
	@$(BIN)/python -m experiments.export $(OPTIONS)

doctor: $(STAMP)  ## why a run explores or does not: RUN=... [EPISODES= SEED= CHECKPOINT=best]
	@$(BIN)/python -m experiments.doctor $(OPTIONS)

reproduce: $(STAMP) $(ASKED)  ## run a figure of the paper: FIGURE=aggregate SCALE=home|paper|smoke [CORES= SEEDS= TASKS= METHODS= RUNS= DRY=1 CLUSTER=ray]
	@$(BIN)/python -m experiments.reproduce $(OPTIONS)

report: $(STAMP)  ## draw a figure from its run folders: FIGURE=aggregate SCALE=home [RUNS= OUT= KEEP=1]
	@$(BIN)/python -m experiments.report $(OPTIONS)

homes: $(STAMP)  ## how much of unseen homes Habitat runs and random agents reveal: RUNS="runs/... runs/..." [EPISODES= OUT=]
	@$(BIN)/python -m experiments.coverage $(OPTIONS)

board: $(STAMP)  ## TensorBoard on runs/
	$(BIN)/tensorboard --logdir runs

docs: $(VENV)/.docs  ## the documentation site, in site/: search, API reference, links checked
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "site/index.html; python -m http.server -d site shows it with search"

$(VENV)/.docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	@touch $@

dist: $(STAMP)  ## sdist and wheel in dist/, checked by twine and installed into an empty environment
	rm -rf dist build
	$(BIN)/python -m pip install --quiet build twine
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*
	$(PYTHON) -m venv build/empty
	build/empty/bin/python -m pip install --quiet --constraint constraints.txt dist/*.whl
	cd build && empty/bin/python -c "import e3b_gym; print('installed', e3b_gym.__version__, e3b_gym.__file__)"

test: $(RAY)  ## run the tests (about 5 minutes on 2 cores)
	$(PYTEST)

test-slow: $(RAY)  ## run the longer proofs too
	$(PYTEST) -m "slow or not slow"

# The newest releases that the index has, in a separate environment. nle asks for gymnasium 1.2.0 exactly and habitat-lab
# for numpy 1.26.4 exactly; both work with newer ones, so they and minihack are installed without what they ask for.
LATEST := .venv-latest
$(LATEST)/.installed: setup.cfg constraints-latest.txt requirements-latest.txt pyproject.toml
	@test -x $(LATEST)/bin/python || $(PYTHON) -m venv $(LATEST)
	$(LATEST)/bin/python -m pip install --quiet --upgrade pip
	$(LATEST)/bin/python -m pip install --quiet --upgrade --upgrade-strategy eager --constraint constraints-latest.txt \
		--editable '.[minigrid,vizdoom,ray,report,dev]' --requirement requirements-latest.txt
	$(LATEST)/bin/python -m pip install --quiet --upgrade --no-deps nle minihack habitat-lab==0.3.320260507
	@touch $@

test-latest: $(LATEST)/.installed  ## the tests with the newest releases of everything but torch
	@$(LATEST)/bin/python -m pip list 2>/dev/null | grep -i -E '^(gymnasium|numpy|numba|stable.baselines3|sb3.contrib|minigrid|nle|minihack|vizdoom|ray|torch) '
	$(LATEST)/bin/python -m pytest -n $(WORKERS)

N ?= 2000
fuzz: $(STAMP)  ## N malformed command lines and damaged runs [2000]; figures in results/reliability
	$(BIN)/python -m tests.reliability.fuzz CASES=$(N) OUT=results/reliability

MINUTES ?= 120
campaign: $(STAMP)  ## kill -9, lost actors, failing disks, a soak of MINUTES [120], a million resets; hours
	$(BIN)/python -m tests.reliability.campaign MINUTES=$(MINUTES) OUT=results/reliability
	$(BIN)/python -m benchmarks.resets ROUNDS=0 DRIFT=1000000 JSON=results/reliability/resets.json

coverage: $(RAY)  ## the tests, with the lines that they do not reach
	$(PYTEST) --cov --cov-report=term-missing:skip-covered

check: lint types imports test  ## what continuous integration runs

lint: $(STAMP)  ## ruff: lint and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(RAY)  ## mypy, strict on e3b_gym
	$(BIN)/mypy

imports: $(STAMP)  ## import-linter: the arrows of the architecture
	$(BIN)/lint-imports

format: $(STAMP)  ## let ruff rewrite the files
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(RAY)  ## every benchmark against its bars: the kernel, SB3, RecurrentPPO, the environments, IMPALA, its engines
	-$(BIN)/python -m benchmarks.elliptical
	-$(BIN)/python -m benchmarks.sb3
	-$(BIN)/python -m benchmarks.envs
	-$(BIN)/python -m benchmarks.habitat
	-$(BIN)/python -m benchmarks.networks
	-$(BIN)/python -m benchmarks.impala
	-$(BIN)/python -m benchmarks.scale

clean:  ## remove .venv and caches
	rm -rf $(VENV) $(LATEST) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist site *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
