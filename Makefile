# Every command sets up .venv first, once, and again when the dependencies change.
PYTHON  ?= python3
WORKERS ?= 2
# Of `make fuzz`; such as `make fuzz SECONDS=60 SEED=7 DEVICE=cuda`.
SECONDS ?= 1800
SEED    ?= 0
DEVICE  ?= cpu

BIN       := .venv/bin
INSTALLED := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-optional test-explore fuzz lint format types docs dist newcomer licences glance bench clean

help: ## list the commands
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

# Debian ships Python without ensurepip: there the outer pip installs the inner one.
$(INSTALLED): pyproject.toml studies/pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv || { $(PYTHON) -m venv --without-pip .venv && $(PYTHON) -m pip --python $(BIN)/python install pip; }
	$(BIN)/python -m pip install --editable '.[dev,explore,interop]' --editable ./studies --constraint constraints.txt
	@touch $@

demo: $(INSTALLED) ## learn who got a place in the Titanic's boats; figure in build/demo
	@mkdir -p build/demo
	$(BIN)/diffurn fit --example titanic --reference Crew --contrasts --figure build/demo/titanic.png

test: lint types ## lint, types, tests, doctests and the README's code
	$(BIN)/python -m pytest -n $(WORKERS) -m 'not slow and not needs'

test-slow: $(INSTALLED) ## the tests marked slow
	$(BIN)/python -m pytest -n $(WORKERS) -m slow

# Only the tests in a browser need Playwright; the browser is the machine's own, as are R and Triton.
.venv/.browser: $(INSTALLED)
	$(BIN)/python -m pip install playwright --constraint constraints.txt
	@touch $@

test-optional: .venv/.browser ## the tests that need R with BiasedUrn, chromium or Triton; skips name what is missing
	$(BIN)/python -m pytest -n $(WORKERS) -m 'needs and not slow'

test-explore: .venv/.browser ## the interactive page in chromium; screenshots in build/explore
	$(BIN)/python -m pytest tests/test_explore*.py

fuzz: export PYTHONPATH := tests
fuzz: $(INSTALLED) ## check random hard urns for half an hour, or SECONDS; failures are lines to paste into Python
	$(BIN)/python -m fuzzing --seconds $(SECONDS) --seed $(SEED) --workers $(WORKERS) --device $(DEVICE)

lint: $(INSTALLED) ## check style and formatting
	$(BIN)/ruff check
	$(BIN)/ruff format --check

format: $(INSTALLED) ## repair style and formatting
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

types: $(INSTALLED) ## check the types of the library
	$(BIN)/mypy

# Only the site needs Sphinx and a kernel for notebooks.
.venv/.docs: $(INSTALLED)
	$(BIN)/python -m pip install --editable '.[docs]' --constraint constraints.txt
	@touch $@

# One thread: on small tensors several wait for each other, on a busy machine for minutes.
docs: export OMP_NUM_THREADS := 1
docs: .venv/.docs ## build the site in build/docs/html: examples executed, warnings are errors
	$(BIN)/python -m sphinx -W --keep-going -b html -d build/docs/doctrees docs build/docs/html

.venv/.release: $(INSTALLED)
	$(BIN)/python -m pip install --editable '.[release]' --constraint constraints.txt
	@touch $@

# Files are as old as the commit. What is in the sdist must build the sdist again, and the wheel, byte by byte.
dist: export SOURCE_DATE_EPOCH := $(shell git log -1 --format=%ct 2>/dev/null || echo 1580601600)
dist: .venv/.release ## wheel and sdist in dist/, built twice to the same bytes, and checked
	rm -rf dist build/dist
	$(BIN)/python -m build --no-isolation --outdir dist
	mkdir -p build/dist/again && tar -xzf dist/*.tar.gz -C build/dist
	$(BIN)/python -m build --no-isolation --outdir build/dist/again build/dist/diffurn-*/
	diff -r dist build/dist/again
	$(BIN)/python -m twine check --strict dist/*

newcomer: dist ## try the wheel as a stranger would, in an empty environment: alone, then with extras
	$(PYTHON) tools/newcomer.py dist/*.whl

licences: .venv/.docs .venv/.release ## list what the package depends on, with licences, in THIRD_PARTY.md
	$(BIN)/python tools/licences.py

glance: ## bring the README's table of results up to date
	$(PYTHON) tools/glance.py

bench: $(INSTALLED) ## compare with peers and time every job; tables and figures in build/bench
	$(BIN)/python -m benchmarks

clean: ## remove all that these commands made
	rm -rf .venv build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
