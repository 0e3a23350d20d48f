# make demo           two workers learn to read handwritten digits, then one does the same
# make test           format, lint, types, tests
# make test-oldest    a short part of the tests with the oldest supported versions
# make bench          measures, and writes benchmarks/results.md
# make format         puts the code in shape
# make docs           writes the generated pages of docs/ again
# make clean          removes environments and caches
#
# Every target sets up what it needs and can be repeated; a second run installs nothing and needs no network.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo set-up set-up-oldest test test-oldest bench format docs clean

# Tests start hundreds of processes: each would compile anew what it imports.
unexport PYTHONDONTWRITEBYTECODE

PY := .venv/bin/python
PYTEST_ARGS ?=
KERAS_BACKEND ?= tensorflow

# These wait for most of their time: four tests run at a time.
PATIENT := $(addprefix tests/multiprocess/,test_launch.py test_runtime.py) tests/contract/test_mpi_failures.py
# Tests of contracts that keep one core busy; these, and others of that kind, run two files at a time.
ONE_CORE := $(addprefix tests/contract/,test_resolvers.py test_sources.py test_sources_by_backend.py)

CPU_BUILD_tensorflow := tensorflow-cpu
CPU_BUILD_jax := jax
CPU_BUILD_torch := torch==2.13.0
CPU_BUILD := $(CPU_BUILD_$(KERAS_BACKEND))

help:
	@sed -n '/^# make /s/^# //p' Makefile

demo: export KERAS_BACKEND := $(KERAS_BACKEND)
demo:
	$(if $(CPU_BUILD),,$(error KERAS_BACKEND=$(KERAS_BACKEND) is none of tensorflow, jax, torch))
	scripts/set-up .venv demo-$(KERAS_BACKEND) requirements/newest.txt '.[demo]' $(CPU_BUILD)
	$(PY) examples/demo.py

set-up:
	scripts/set-up .venv test requirements/newest.txt '.[test]'

set-up-oldest:
	scripts/set-up .venv-oldest test requirements/oldest.txt . tensorflow-cpu jax pytest pytest-timeout hypothesis psutil

test: set-up
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(PY) -m pytest -n 2 --dist loadfile tests/unit tests/architecture $(ONE_CORE) $(PYTEST_ARGS)
	$(PY) -m pytest -n 4 $(PATIENT) $(PYTEST_ARGS)
	$(PY) -m pytest tests/contract tests/multiprocess $(addprefix --deselect ,$(ONE_CORE) $(PATIENT)) $(PYTEST_ARGS)

test-oldest: set-up-oldest
	.venv-oldest/bin/python -m pytest tests/multiprocess/test_exact.py -k 'tensorflow-2 or jax-2' $(PYTEST_ARGS)

bench: set-up
	$(PY) -m pip show --quiet tf-keras 2>/dev/null || \
		$(PY) -m pip install --quiet --no-deps --constraint requirements/newest.txt tf-keras
	$(PY) benchmarks/run.py

format: set-up
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

docs: set-up
	$(PY) docs/generate.py

clean:
	rm -rf .venv .venv-oldest build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
