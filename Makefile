# Everything a newcomer needs: `make demo` and `make test`. The rest is for those who change things.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
READY := $(VENV)/.ready
# Why $(PYTHON) cannot be used; empty if it can. An old Python must be able to run this, too.
UNUSABLE = $(shell { $(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or \
	sys.stdout.write("$(PYTHON) is Python " + sys.version.split()[0])' || echo "$(PYTHON) does not run"; } 2>/dev/null)
CHECK_PYTHON = $(if $(UNUSABLE),$(error fledge needs Python 3.11 or newer, but $(UNUSABLE)))

# Hundreds of tests start a process: each would compile the whole package.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check bench soak mutate docs pictures site wheel clean

# The demo needs only what users do; what developers need besides takes longer to fetch.
demo: $(if $(wildcard $(STAMP)),$(STAMP),$(READY))
	$(BIN)/fledge demo

# Coverage is measured where it is a gate: the tests of core/ must reach every branch of it by themselves.
test: $(STAMP)
	$(BIN)/coverage run -m pytest tests/core
	$(BIN)/coverage report --fail-under=100
	$(BIN)/pytest --numprocesses 3 --dist worksteal --durations 20 --ignore tests/core

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP)
	$(BIN)/python -m bench

soak: $(STAMP)
	FLEDGE_SOAK=$${FLEDGE_SOAK:-20} FLEDGE_SEED=$${FLEDGE_SEED:-$$(date +%s)} \
	$(BIN)/pytest --numprocesses 3 --dist worksteal tests/sim tests/model tests/crash tests/store tests/cluster tests/workspaces tests/browser

mutate: $(STAMP)
	$(BIN)/python -m tests.mutate

docs: $(STAMP)
	$(BIN)/python -m docs.generate
	$(BIN)/python -m fledge.config > docs/config.md

pictures: $(STAMP)
	$(BIN)/python -m docs.pictures

# The documents as a site, in build/site. A broken link fails, but not with --quiet: mkdocs counts warnings that it logs.
site: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Build the package, install the wheel in an empty environment, use it there.
wheel: $(STAMP)
	$(BIN)/python -m tests.wheel

$(READY): pyproject.toml
	$(CHECK_PYTHON)
	@echo "Setting up $(VENV), once; this takes a few seconds."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[gateway,chat]'
	touch $(READY)

$(STAMP): pyproject.toml
	$(CHECK_PYTHON)
	@echo "Setting up $(VENV) for development, once; this takes a minute."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $(STAMP)

clean:
	rm -rf $(VENV) .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
