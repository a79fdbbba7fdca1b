# `make` lists the targets. Everything is set up on first use: a virtual environment in .venv,
# llama.cpp in the user's cache, the library in build/cpu.
#
#   JOBS=N         compile with N processes (default: one per core)
#   CMAKE_ARGS=... more arguments for CMake, such as -DELIZA_NATIVE=OFF
#   PYTHON=...     the Python that makes the virtual environment

PYTHON     ?= python3
JOBS       ?= $(shell getconf _NPROCESSORS_ONLN)
CMAKE_ARGS ?=

VENV    := $(CURDIR)/.venv
BIN     := $(VENV)/bin
BUILD   := build/cpu
CPP     := $(shell git ls-files 'native/*.cpp' 'native/*.h' 'native/*.c' 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help demo test test-native test-python test-bun cpu cpu-with-tests wheel lint format clean bench bench-quick

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

demo: cpu ## choose actions with the embedded model on the eliza-1 fixtures
	@$(BIN)/eliza-ffi demo

cpu: $(VENV)/installed ## build build/cpu/libelizainference.so
	@mkdir -p build
	@test -e $(BUILD)/CMakeCache.txt || echo "Fetching and building llama.cpp if this machine has none yet (minutes, once)"
	@PATH="$(BIN):$$PATH" JOBS=$(JOBS) $(BIN)/cmake -S native -B $(BUILD) -G Ninja --log-level=STATUS \
	    -DPython3_EXECUTABLE=$(BIN)/python $(CMAKE_ARGS) > $(BUILD).log 2>&1 \
	    || { tail -n 30 $(BUILD).log; exit 1; }
	@$(BIN)/cmake --build $(BUILD) --parallel $(JOBS)

test: test-native test-python ## run every test that needs no GPU

test-native: cpu-with-tests
	@$(BUILD)/tests/native_tests --gtest_brief=1

test-python: cpu-with-tests
	@$(BIN)/python -m pytest

# What elizaOS's own client does, from JavaScript; bun comes from the npm registry.
BUN := tests/bun/node_modules

test-bun: cpu $(BUN)/.package-lock.json ## run the client in tests/bun against the library
	@cd tests/bun && node_modules/.bin/bun test

$(BUN)/.package-lock.json: tests/bun/package-lock.json
	@command -v npm > /dev/null || { echo "make: test-bun needs npm, to install bun; on Debian: apt install npm"; exit 1; }
	@echo "Installing bun into $(BUN)"
	@cd tests/bun && npm ci --silent --no-audit --no-fund
	@touch $@

cpu-with-tests:
	@$(MAKE) --no-print-directory cpu CMAKE_ARGS="$(CMAKE_ARGS) -DELIZA_BUILD_TESTS=ON"

wheel: $(VENV)/installed ## build a portable wheel into dist/
	@rm -rf dist/raw
	@$(BIN)/python -m build --wheel --outdir dist/raw -Ccmake.define.ELIZA_NATIVE=OFF .
	@PATH="$(BIN):$$PATH" $(BIN)/python -m auditwheel repair --wheel-dir dist dist/raw/*.whl
	@rm -rf dist/raw

bench: bench-ready ## measure everything that docs/performance.md shows (half an hour)
	@$(BIN)/python scripts/bench_peers.py --docs docs/performance.md --docs README.md
	@$(BIN)/python scripts/bench_growth.py --docs docs/performance.md
	@$(BIN)/python scripts/bench_streaming.py --docs docs/performance.md
	@$(BIN)/python scripts/bench_tries.py --docs docs/performance.md
	-@$(BIN)/python scripts/count_instructions.py --docs docs/performance.md  # Linux on x86-64 alone

bench-quick: bench-ready ## compare a choice here and in other libraries in under 3 minutes
	@$(BIN)/python scripts/bench_peers.py --quick

# A library to compare with that cannot be installed is named in the table as missing.
.PHONY: bench-ready
bench-ready: $(VENV)/installed
	@test $(VENV)/bench -nt pyproject.toml || { \
	    echo "Installing the libraries to compare with into .venv"; \
	    $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]' \
	        -Cwheel.cmake=false && touch $(VENV)/bench || echo "make: they could not be installed"; }
	@$(MAKE) --no-print-directory cpu CMAKE_ARGS="$(CMAKE_ARGS) -DELIZA_BUILD_TESTS=ON"

lint: $(VENV)/installed ## check style and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/clang-format --dry-run -Werror $(CPP)

format: $(VENV)/installed ## bring all sources into style
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .
	@$(BIN)/clang-format -i $(CPP)

clean: ## remove what was built here (llama.cpp stays in the user's cache)
	rm -rf build dist .venv $(BUN)

# The package in development mode; the library comes from build/cpu.
$(VENV)/installed: pyproject.toml
	@mkdir -p build
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) \
	    || { echo "make: $(PYTHON) -m venv failed; on Debian: apt install python3-venv"; rm -rf $(VENV); exit 1; }
	@echo "Installing the Python tools into .venv"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]' -Cwheel.cmake=false
	@touch $@
