# Every command first installs the packages that it needs into .venv, and again when they change.
PYTHON  ?= python3
WORKERS ?= 2
# Of `make fuzz`, such as `make fuzz SECONDS=60 SEED=7 DEVICE=cuda`.
SECONDS ?= 1800
SEED    ?= 0
DEVICE  ?= cpu

BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# One file for each set of packages, as old as its installation.
DEMO      := .venv/.demo
INSTALLED := .venv/.installed
VERSIONS  := pyproject.toml studies/pyproject.toml constraints.txt \
             hatch_build.py $(wildcard src/diffurn/_kernels/native/*.[ch])

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-slow test-optional test-explore fuzz lint format types docs dist newcomer licences glance bench clean

help: ## list the commands
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

# Debian ships Python without ensurepip. There, the pip outside installs the pip inside.
.venv/.python:
	@echo "make: setting up .venv"
	@$(PYTHON) -m venv .venv || { $(PYTHON) -m venv --without-pip .venv && $(PYTHON) -m pip --python $(BIN)/python install pip; }
	@touch $@

$(DEMO): $(VERSIONS) | .venv/.python
	@echo "make: installing diffurn with its command line (torch, matplotlib, rich, typer)"
	@$(PIP) --no-compile --editable '.[cli]' # Python compiles what it imports
	@touch $@

$(INSTALLED): $(VERSIONS) | .venv/.python
	@echo "make: installing the studies and the packages for tests (a few minutes)"
	@$(PIP) --editable '.[cli,dev,explore,interop,jax]' --editable './studies[cluster]'
	@touch $(DEMO) $@

demo: $(DEMO) ## learn who got a place in the Titanic's boats; figure in build/demo
	@mkdir -p build/demo
	$(BIN)/diffurn fit --example titanic --reference Crew --contrasts --figure build/demo/titanic.png

test: lint types ## lint, types, tests, doctests, the code of README and site
	$(BIN)/python -m pytest -n $(WORKERS) -m 'not slow and not needs'

test-slow: $(INSTALLED) ## the tests marked slow
	$(BIN)/python -m pytest -n $(WORKERS) -m slow

# Only the tests in a browser need Playwright. The browser itself, R and Triton are not installed here.
.venv/.browser: $(INSTALLED)
	@$(PIP) playwright
	@touch $@

test-optional: .venv/.browser ## the tests that need R (with BiasedUrn, survival), chromium or Triton; where these are missing, it says so
	$(BIN)/python -m pytest -n $(WORKERS) -m 'needs and not slow'

test-explore: .venv/.browser ## the interactive demo in chromium; screenshots in build/explore
	$(BIN)/python -m pytest tests/test_explore*.py

fuzz: export PYTHONPATH := tests
fuzz: $(INSTALLED) ## check random hard urns for half an hour, or SECONDS; a failure is a line to paste into Python
	$(BIN)/python -m fuzzing --seconds $(SECONDS) --seed $(SEED) --workers $(WORKERS) --device $(DEVICE)

lint: $(INSTALLED) ## check style and formatting
	$(BIN)/ruff check
	$(BIN)/ruff format --check

format: $(INSTALLED) ## repair style and formatting
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

types: $(INSTALLED) ## check the types
	$(BIN)/mypy

.venv/.docs: $(INSTALLED)
	@echo "make: installing Sphinx"
	@$(PIP) --editable '.[docs]'
	@touch $@

# One thread: on small tensors, several threads mostly wait for each other.
docs: export OMP_NUM_THREADS := 1
docs: .venv/.docs ## build the site in build/docs/html: examples executed, warnings are errors
	$(BIN)/python -m sphinx -W --keep-going -b html -d build/docs/doctrees docs build/docs/html

.venv/.release: $(INSTALLED)
	@echo "make: installing the build tools"
	@$(PIP) --editable '.[release]'
	@touch $@

# The files get the time of the commit. The sdist must build the same sdist and wheel again, byte by byte.
dist: export SOURCE_DATE_EPOCH := $(shell git log -1 --format=%ct 2>/dev/null || echo 1580601600)
dist: .venv/.release ## wheel and sdist in dist/, built twice to the same bytes, and checked
	rm -rf dist build/dist
	$(BIN)/python -m build --no-isolation --outdir dist
	mkdir -p build/dist/again && tar -xzf dist/*.tar.gz -C build/dist
	$(BIN)/python -m build --no-isolation --outdir build/dist/again build/dist/diffurn-*/
	diff -r dist build/dist/again
	$(BIN)/python -m twine check --strict dist/*

newcomer: dist ## try the wheel in an empty environment: alone, then with extras and the studies
	$(PYTHON) tools/newcomer.py dist/*.whl studies

licences: .venv/.docs .venv/.release ## list the dependencies with their licences in THIRD_PARTY.md
	$(BIN)/python tools/licences.py

glance: ## write the tables of results in site and results/ again
	$(PYTHON) tools/glance.py

bench: $(INSTALLED) ## compare with peers and time every job; tables and figures in build/bench
	$(BIN)/python -m benchmarks

clean: ## remove everything that these commands made
	rm -rf .venv build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
