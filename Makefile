# Everything starts from a bare machine with Python 3.11 or newer: each target installs what it needs first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check

# What the tests are run on; another torch from 2.11 on: make setup TORCH=torch==2.11.0
TORCH ?= torch==2.13.0

# Two thread pools that spin on the same cores slow each other down a hundredfold: parallel work is in processes here.
OMP_NUM_THREADS ?= 1
MKL_NUM_THREADS ?= 1
OMP_WAIT_POLICY ?= PASSIVE
export OMP_NUM_THREADS MKL_NUM_THREADS OMP_WAIT_POLICY

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow lint bench docs hooks clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.installed  ## Create .venv and install the package with all that the tests need

demo: $(VENV)/.installed  ## Train five methods on embedded data and make a page of the results
	$(BIN)/shiftproof demo $(ARGS)

test: $(VENV)/.installed  ## Run the tests, without the slow ones (ARGS="-k name" to choose)
	$(BIN)/python -m pytest -n 2 -m "not slow" $(ARGS)

test-slow: $(VENV)/.installed  ## Run the tests that train for minutes
	$(BIN)/python -m pytest -n 2 -m slow $(ARGS)

lint: $(VENV)/.installed  ## Check style and formatting (ruff) and types (pyright)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/pyright

bench: $(VENV)/.installed  ## Measure speed, one script after another; the last column is a ratio
	$(BIN)/python benchmarks/batching.py
	$(BIN)/python benchmarks/generation.py
	$(BIN)/python benchmarks/epochs.py
	$(BIN)/python benchmarks/ciga_epoch.py --threads 1
	$(BIN)/python benchmarks/pair_step.py --threads 2
	$(BIN)/python benchmarks/gmt_sampling.py --threads 2
	$(BIN)/python benchmarks/sweep.py --workers 2

docs: $(VENV)/.installed-docs  ## Build the site into site/
	$(BIN)/python docs/make_figures.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

hooks: $(VENV)/.installed  ## Let git run the style checks before each commit
	$(BIN)/pre-commit install

clean:  ## Remove what was built or installed here; runs and results stay
	rm -rf $(VENV) site build dist .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks examples docs -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp is newer than pyproject.toml once everything in it is installed, so a second run starts at once.
# torch comes first and by its version: that is the one the tests are run on, and where a build for the CPU is offered,
# it is taken; plain `torch` would be the newest, with gigabytes for a GPU that may not be there.
$(VENV)/.installed: pyproject.toml
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	@echo "installing shiftproof and its dependencies into $(VENV) (once; about two minutes)"
	@$(PIP) $(TORCH)
	@$(PIP) -e ".[molecules,images,dev]"
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	@$(PIP) -e ".[docs]"
	@touch $@
