# One entry point for people and for CI. `make` prints what it can do.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

help: ## print this text
	@grep -hE '^[a-z-]+:.*?## ' $(MAKEFILE_LIST) | awk -F':.*?## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable . --group dev
	@touch $@

setup: $(STAMP) ## create the virtual environment with everything pinned

demo: $(STAMP) ## run the main job on an embedded default
	$(BIN)/retinue agents list --cwd examples/agents
	-$(BIN)/retinue agents lint --cwd examples/agents

test: $(STAMP) ## check style, types, imports, docs; run all tests with coverage
	$(BIN)/ruff check src tests bench
	$(BIN)/ruff format --check src tests bench
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m docs.generate --check
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --fail-under=80

docs: $(STAMP) ## write the reference pages again from the code
	$(BIN)/python -m docs.generate

bench: $(STAMP) ## print the benchmark ratios
	@for script in bench/*.py; do echo "== $$script"; $(BIN)/python $$script; done

format: $(STAMP) ## format the code
	$(BIN)/ruff format src tests bench
	$(BIN)/ruff check --fix src tests bench

clean: ## remove what the other targets made
	rm -rf $(VENV) build dist .coverage* .mypy_cache .ruff_cache .hypothesis .pytest_cache

.PHONY: help setup demo test docs bench format clean
