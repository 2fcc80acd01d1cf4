# Everything starts from a bare machine: python3 (3.11 or newer), make and gcc. No GPU is needed.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
OLDEST := .venv-oldest
JOBS   ?= auto

EXAMPLES      := $(sort $(wildcard examples/*.json))
EXAMPLE       := examples/qwen3.6-35b.o_proj.m1
EXAMPLE_BUILD := build/example
PIP           := -m pip --disable-pip-version-check install --quiet --quiet

# Hundreds of tests start a Python: without bytecode each of them would compile nkc, and pytest every test, once more.
unexport PYTHONDONTWRITEBYTECODE

.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help setup example test check fmt format lint types test-oldest bench-select bench-compile bench-startup mutants mutants-gfx950 clean

help:
	@echo 'make example        set up, compile one real contract for gfx950 and sm_90, and explain both'
	@echo 'make test           set up, and run all tests that need no GPU'
	@echo 'make check          format, lint, types and tests, changing nothing'
	@echo 'make fmt            format and mend what ruff can mend'
	@echo 'make lint, types    ruff, and mypy in strict mode'
	@echo 'make test-oldest    compile the examples with the oldest Triton that is claimed, 3.6'
	@echo 'make bench-startup  time --help, id, check and explain; bench-select, bench-compile likewise'
	@echo 'make mutants        seed faults into kernels and oracles; every one has to be caught (about two minutes)'
	@echo 'make mutants-gfx950 damage gfx950 machine code; what the emulator catches, by detector (minutes; the tests run a sample)'
	@echo 'make clean          remove build/ and the virtual environments'

setup: $(READY)

$(READY): pyproject.toml requirements-dev.txt hatch_build.py nkc/runtime/_launch.c
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo 'nkc needs Python 3.11 or newer (make PYTHON=python3.11 ...)' >&2; exit 1; }
	@echo 'setup: $(VENV), with torch and triton; the first time takes a few minutes'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python $(PIP) --requirement requirements-dev.txt
	@touch $@

example: $(READY)
	@echo '== compile: one contract, two targets, no GPU'
	$(BIN)/nkc compile $(EXAMPLE).gfx950.json $(EXAMPLE).sm_90.json -o $(EXAMPLE_BUILD)
	@for arch in gfx950 sm_90; do \
	  printf '\n== explain: %s\n' $$arch; \
	  $(BIN)/nkc explain $(EXAMPLE_BUILD)/$$($(BIN)/nkc id $(EXAMPLE).$$arch.json) || exit; \
	done

test: $(READY)
	$(BIN)/pytest -n $(JOBS) --dist loadfile -m 'not device'

check: format lint types test

fmt: $(READY)
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

format: $(READY)
	$(BIN)/ruff format --check

lint: $(READY)
	$(BIN)/ruff check

types: $(READY)
	$(BIN)/mypy

test-oldest:
	@test -x $(OLDEST)/bin/python || $(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python $(PIP) --editable '.[nvrtc]' 'triton==3.6.0'
	$(OLDEST)/bin/nkc compile $(EXAMPLES) -o build/oldest

bench-select: $(READY)
	$(BIN)/python benchmarks/selection.py

bench-compile bench-startup: bench-%: $(READY)
	$(BIN)/python benchmarks/$*.py

mutants: $(READY)
	$(BIN)/python benchmarks/mutants.py

mutants-gfx950: $(READY)
	$(BIN)/python -m tests.verify.gfx950.run_mutants --jobs $$(nproc)

clean:
	rm -rf build $(VENV) $(OLDEST)
