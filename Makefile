# Everything needs only cargo and python3; what is installed stays in .venv, what is built in target.
#
#   make setup   .venv with outercore in it
#   make demo    train on a graph nine times larger than its memory budget
#   make test    all that CI checks

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:
.DEFAULT_GOAL := help

# Any Python from 3.10 on; `make setup PYTHON=python3.12` picks one.
PYTHON ?= $(firstword $(foreach candidate,python3 python3.13 python3.12 python3.11 python3.10,\
	$(if $(shell $(candidate) -c 'import sys; sys.version_info >= (3, 10) and print(1)' 2>/dev/null),\
	$(candidate))))
VENV := .venv
BIN := $(VENV)/bin
UV := VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/uv --no-progress
LOCK := $(BIN)/uv pip compile --quiet --generate-hashes --no-header --no-annotate \
	--no-emit-index-url --universal --python-version 3.10

# One interpreter for every build of the bindings, so that cargo does not build them twice.
export PYO3_PYTHON := $(abspath $(BIN)/python)

# `make demo SMALL=1` takes seconds; CI uses it.
SMALL ?=

NATIVE_SOURCES := Cargo.toml Cargo.lock pyproject.toml $(wildcard crates/*/Cargo.toml) \
	$(shell find crates -path '*/src/*' -name '*.rs' 2>/dev/null)

.PHONY: help
help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 21

.PHONY: setup
setup: $(VENV)/.package ## Make .venv with outercore, PyTorch and the development tools

.PHONY: demo
demo: setup ## Train on a generated graph out of core (SMALL=1: in seconds)
	$(BIN)/python examples/demo.py $(if $(SMALL),--small)

.PHONY: test
test: setup lint test-rust test-python ## Everything that CI checks

.PHONY: lint
lint: setup ## Formatting, lints, types and documentation
	cargo fmt --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cd benchmarks/fetch && cargo fmt --check
	cd benchmarks/fetch && cargo clippy --locked --target-dir ../../target/bench-fetch -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

.PHONY: test-rust
test-rust: setup ## Rust tests, documentation examples included
	cargo test --workspace --locked

.PHONY: test-python
test-python: setup ## Python tests, documentation examples included
	$(BIN)/pytest --numprocesses auto --maxprocesses 4 --dist loadfile tests/python
	$(BIN)/pytest --doctest-modules python/outercore

.PHONY: wheel
wheel: $(VENV)/.requirements ## Make a wheel in dist/: installs without Rust on any Python from 3.10 on
	rm -rf dist
	VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin build --release --locked \
		--interpreter $(BIN)/python --out dist
	@ls dist/outercore-*-cp310-abi3-manylinux_*.whl

.PHONY: bench
bench: setup ## Measure the figures of docs/benchmarks again (long)
	$(BIN)/python benchmarks/run.py

.PHONY: format
format: setup ## Format Rust and Python
	cargo fmt
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

.PHONY: lock
lock: $(VENV)/.uv ## Pin the newest Python dependencies in requirements/
	$(LOCK) requirements/uv.in --output-file requirements/uv.txt
	$(LOCK) requirements/dev.in --output-file requirements/dev.txt --upgrade
	$(LOCK) requirements/core.in --output-file requirements/core.txt --constraints requirements/dev.txt --upgrade

.PHONY: clean
clean: ## Remove everything that the other targets made
	rm -rf $(VENV) target demo-data python/outercore/_core*.so
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find python tests examples benchmarks -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# The stamps make a second `make setup` return at once.

$(VENV)/.python:
	@command -v cargo > /dev/null || { \
		echo "make: cargo is not installed, expected Rust 1.89 or newer" >&2; \
		echo "hint: install it with rustup, then run the same command again" >&2; exit 1; }
	@test -n "$(PYTHON)" || { \
		echo "make: no Python 3.10 or newer was found" >&2; \
		echo "hint: install one, or name it: make setup PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { \
		echo "hint: on Debian and Ubuntu the module is a package of its own: python3-venv" >&2; exit 1; }
	@touch $@

$(VENV)/.uv: requirements/uv.txt $(VENV)/.python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

$(VENV)/.requirements: requirements/dev.txt $(VENV)/.uv
	$(UV) pip install --require-hashes -r requirements/dev.txt
	@touch $@

# Sources that change while it is built are built the next time: the time of the file is that of the
# beginning.
$(VENV)/.package: $(NATIVE_SOURCES) $(VENV)/.requirements
	@touch $@.begun
	VIRTUAL_ENV=$(abspath $(VENV)) PATH="$(abspath $(BIN)):$$PATH" \
		maturin develop --release --uv --locked
	@mv $@.begun $@
	@echo "$(VENV) is ready: source $(BIN)/activate"
