# One entry point for people and for CI. `make` prints what it can do.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
PLAIN  := $(VENV)/.plain
CHECK  := $(VENV)/.check
DEV    := $(VENV)/.dev
# Tests that need no extra and end within half a minute on two cores.
FAST   := tests/agents tests/log tests/loop tests/settings tests/tools tests/test_package.py
# Two for each core: a test waits for processes, servers and browsers for about half of its time.
WORKERS ?= $(shell echo $$((2 * $$(getconf _NPROCESSORS_ONLN))))
# Hundreds of tests start the program: without byte code each of them would compile it again.
export PYTHONDONTWRITEBYTECODE :=

help: ## print this text
	@grep -hE '^[a-z-]+:.*?## ' $(MAKEFILE_LIST) | awk -F':.*?## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(PLAIN): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip
	$(PIP) --editable .
	@touch $@

$(CHECK): $(PLAIN)
	$(PIP) --group check
	@touch $@

$(DEV): $(PLAIN)
	$(PIP) --editable '.[all]' --group dev
	@touch $@

setup: $(DEV) ## create the virtual environment with everything pinned

QUESTION ?= Where is a failed request retried?

demo: $(PLAIN) ## run an Explore agent on this source with the embedded default; QUESTION="…"
	$(BIN)/retinue run Explore "$(QUESTION)" --cwd src

check: $(CHECK) ## check style and types, run the fast tests: for every change, in less than a minute
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m "not slow" $(FAST)

test: $(DEV) ## check style, types, imports, docs; run all tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	# Meanwhile the tests become byte code: otherwise every worker would compile all of them.
	$(BIN)/pytest --collect-only -q > /dev/null 2>&1 & $(BIN)/mypy; types=$$?; wait; exit $$types
	$(BIN)/lint-imports
	$(BIN)/python -m docs.generate --check
	# Thousands of real processes on few cores: a test that fails is run once more, and the summary counts it.
	$(BIN)/pytest -n $(WORKERS) --dist worksteal --reruns 1 -r fER

BURNERS ?= 4

test-busy: $(DEV) ## run all tests while four processes use the processors: no test may depend on time
	@burners=(); trap 'kill $${burners[@]}' EXIT; \
	for number in $$(seq $(BURNERS)); do $(BIN)/python -c 'while True: pass' & burners+=($$!); done; \
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -r fE

coverage: $(DEV) ## run all tests and print what they do not reach
	$(BIN)/pytest -n $(WORKERS) --dist worksteal --cov --cov-report=term:skip-covered --cov-fail-under=85

docs: $(DEV) ## write the reference pages again from the code
	$(BIN)/python -m docs.generate

site: $(DEV) ## build the site of the documentation into build/site; every link is checked
	$(PIP) --group site
	$(BIN)/zensical build --strict --config-file mkdocs.yml

screens: $(DEV) ## draw the pictures of the terminal app again
	$(BIN)/python -m docs.screens

bench: $(DEV) ## print the benchmark ratios
	@for script in bench/*.py; do echo "== $$script"; $(BIN)/python $$script; done

format: $(DEV) ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## remove what the other targets made
	rm -rf $(VENV) build dist .coverage* .mypy_cache .ruff_cache .hypothesis .pytest_cache

.PHONY: help setup demo check test test-busy coverage docs site screens bench format clean
