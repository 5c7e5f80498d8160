# One gate for people and CI. Stamps make repeated calls fast; `make clean` starts over.
PYTHON ?= python3
VENV := .venv
ORACLES := .venv-oracles
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check
# installed first, so that what is installed after it keeps this build instead of choosing one
TORCH := torch==2.13.0
STAMP := $(VENV)/.stamp

.PHONY: plan test check format bench messages questions accuracy peers oracles wheel clean python calibrate \
  stack prove-stack

plan: $(STAMP)-core
	$(VENV)/bin/raceline plan llama-3.1-8b

test: $(STAMP)-test
	$(VENV)/bin/python -m pytest -q -n 2 --ignore=tests/oracles

check: $(STAMP)-dev
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(VENV)/bin/python tools/messages.py --check

format: $(STAMP)-dev
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

bench: $(STAMP)-core
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(VENV)/bin/python tools/bench.py --write

# other estimators on the same rows, each in an environment of its own
peers: $(STAMP)-core
	$(VENV)/bin/python -m tools.peers

questions: $(STAMP)-core
	$(VENV)/bin/python tools/questions.py

accuracy: $(STAMP)-core
	$(VENV)/bin/python tools/accuracy.py --write

# the pages on the software stack: causes, score on reported conflicts, tables
stack: $(STAMP)-test
	$(VENV)/bin/python tools/stack_page.py
	$(VENV)/bin/python tools/stack_facts_page.py

# install solved sets and import them together; SHORT=--short proves the first alone and writes nothing
prove-stack: $(STAMP)-core
	$(VENV)/bin/python tools/prove_stack.py $(SHORT)

# one thread: the last digits of sums depend on how they are split
calibrate: $(STAMP)-core
	$(VENV)/bin/python tools/pack_evidence.py
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(VENV)/bin/raceline calibrate

messages: $(STAMP)-test
	$(VENV)/bin/python tools/messages.py

oracles: $(ORACLES)/.stamp
	$(ORACLES)/bin/python -m pytest -q -n 2 tests/oracles

wheel: $(STAMP)-dev
	rm -rf dist
	$(VENV)/bin/python -m build --wheel --outdir dist .

clean:
	rm -rf $(VENV) $(ORACLES) .venv-peers dist build

python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "raceline needs Python 3.11 or newer; $$($(PYTHON) --version 2>&1) is $(PYTHON). Try: make PYTHON=python3.12 …" >&2; exit 1; }

$(VENV)/bin/python: | python
	$(PYTHON) -m venv $(VENV)

$(STAMP)-core: pyproject.toml | $(VENV)/bin/python
	$(VENV)/bin/python $(PIP_INSTALL) --editable .
	@touch $@

$(STAMP)-test: pyproject.toml | $(VENV)/bin/python
	$(VENV)/bin/python $(PIP_INSTALL) --editable '.[test]'
	@touch $@ $(STAMP)-core

$(STAMP)-dev: pyproject.toml | $(VENV)/bin/python
	$(VENV)/bin/python $(PIP_INSTALL) --editable '.[dev]'
	@touch $@ $(STAMP)-core $(STAMP)-test

$(ORACLES)/.stamp: pyproject.toml | python
	$(PYTHON) -m venv $(ORACLES)
	$(ORACLES)/bin/python $(PIP_INSTALL) $(TORCH)
	$(ORACLES)/bin/python $(PIP_INSTALL) $(TORCH) --editable '.[oracles]'
	@touch $@
