# Everything a newcomer needs: `make demo` and `make test`. The rest is for those who change things.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
READY := $(VENV)/.ready
# Why $(PYTHON) cannot be used; empty if it can. An old Python must be able to run this, too. Debian's Python has no
# ensurepip without the package python3-venv.
UNUSABLE = $(shell { $(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or \
	sys.stdout.write("$(PYTHON) is Python " + sys.version.split()[0])' || echo "$(PYTHON) does not run"; } 2>/dev/null)
NO_VENV = $(shell $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || echo "$(PYTHON) cannot make one")
CHECK_PYTHON = $(if $(UNUSABLE),$(error fledge needs Python 3.11 or newer, but $(UNUSABLE)))$(if $(NO_VENV),$(error \
	fledge needs a virtual environment, but $(NO_VENV): install python3-venv (on Debian: apt-get install python3-venv)))

# Hundreds of tests start a process: each would compile the whole package.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check coverage pythons bench soak mutate docs pictures site wheel clean

# The demo needs only what users do; what developers need besides takes longer to fetch.
demo: $(if $(wildcard $(STAMP)),$(STAMP),$(READY))
	$(BIN)/fledge demo

test: $(STAMP)
	$(BIN)/pytest --numprocesses 3 --dist worksteal --durations 20

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(MAKE) --no-print-directory coverage

# The tests of core/ must reach every branch of it by themselves. Python 3.11.2 counts the lines of a `match`
# in another way; 3.11.7 is the oldest that is known to count them as they are.
coverage: $(STAMP)
	@if $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11, 7))'; then \
		$(BIN)/coverage run -m pytest tests/core && $(BIN)/coverage report --fail-under=100; \
	else echo "left out: the coverage of core/ is measured with Python 3.11.7 or newer"; fi

# The tests of core/ with every other Python that is found, WITHOUT these versions, each in a small environment of its own.
pythons:
	$(PYTHON) -m tests.pythons $(WITHOUT)

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
