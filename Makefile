# `make` lists the targets. Everything is set up on first use: a virtual environment in .venv,
# llama.cpp in the user's cache, the library in build/cpu.
#
#   JOBS=N         compile with N processes (default: one per core)
#   ELIZA_NATIVE=0 compile for any x86-64-v3 or Armv8.2 machine, not for this one's CPU
#   CMAKE_ARGS=... more arguments for CMake
#   PYTHON=...     the Python that makes the virtual environment
#
# docs/backends.md has the variables of the other backends.

PYTHON     ?= python3
JOBS       ?= $(shell getconf _NPROCESSORS_ONLN)
CMAKE_ARGS ?=

VENV    := $(CURDIR)/.venv
BIN     := $(VENV)/bin
BUILD   := build/cpu
CPP     := $(shell git ls-files 'native/*.cpp' 'native/*.h' 'native/*.c' 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help demo test test-native test-python test-bun test-asan cpu cpu-with-tests wheel lint format clean bench bench-quick

help: ## list the targets
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

demo: cpu ## choose actions with the embedded model on the eliza-1 fixtures
	@$(BIN)/eliza-ffi demo

# $(1): the backend, $(2): the folder it is built in. Sanitized libraries load in sanitized programs alone.
define build-library
	@$(BIN)/python scripts/check_toolchain.py $(1)
	@mkdir -p build
	@test -e $(2)/CMakeCache.txt || echo "Fetching and building llama.cpp ($(1)) if this machine has none yet (minutes, once)"
	@PATH="$(BIN):$$PATH" JOBS=$(JOBS) $(BIN)/cmake -S native -B $(2) -G Ninja --log-level=STATUS \
	    -DPython3_EXECUTABLE=$(BIN)/python -DELIZA_BACKEND=$(1) $(BACKEND_ARGS) $(CMAKE_ARGS) > $(2).log 2>&1 \
	    || { tail -n 30 $(2).log; exit 1; }
	@$(BIN)/cmake --build $(2) --parallel $(JOBS)
	$(if $(findstring ELIZA_SANITIZE,$(CMAKE_ARGS)),,@$(BIN)/python scripts/check_load.py $(2) $(1))
endef

cpu: $(VENV)/installed ## build build/cpu/libelizainference.so
	$(call build-library,cpu,$(BUILD))

# Every other backend has a folder of its own and keeps the CPU beside it: build/cuda and so on.
BACKENDS := cuda vulkan metal hip sycl opencl blas rpc
.PHONY: $(BACKENDS) $(BACKENDS:%=check-%) check-cpu arm64 check-arm64

cuda: ## build build/cuda for NVIDIA GPUs (CUDA_ARCHITECTURES, CUBLAS_DIR)
vulkan: ## build build/vulkan (VULKAN_INCLUDE_DIR)
metal: ## build build/metal on macOS
hip: ## build build/hip for AMD GPUs
sycl: ## build build/sycl for Intel GPUs
opencl: ## build build/opencl
blas: ## build build/blas (BLAS_VENDOR)
rpc: ## build build/rpc, which splits a model over machines, and its rpc-server

export CUDA_ARCHITECTURES CUBLAS_DIR VULKAN_INCLUDE_DIR BLAS_VENDOR
BACKEND_ARGS = $(if $(ELIZA_NATIVE),-DELIZA_NATIVE=$(ELIZA_NATIVE)) \
    $(if $(CUDA_ARCHITECTURES),'-DELIZA_CUDA_ARCHITECTURES=$(CUDA_ARCHITECTURES)') \
    $(if $(CUBLAS_DIR),-DELIZA_CUBLAS_DIR=$(abspath $(CUBLAS_DIR))) \
    $(if $(VULKAN_INCLUDE_DIR),-DVULKAN_INCLUDE_DIR=$(abspath $(VULKAN_INCLUDE_DIR))) \
    $(if $(BLAS_VENDOR),-DELIZA_BLAS_VENDOR=$(BLAS_VENDOR))
# Intel's compiler knows SYCL.
sycl: BACKEND_ARGS += -DCMAKE_C_COMPILER=icx -DCMAKE_CXX_COMPILER=icpx

$(BACKENDS): $(VENV)/installed
	$(call build-library,$@,build/$@)

# CHECK_ARGS=... goes to scripts/check_backend.py, such as --quick
check-cpu: cpu ## compare all ways to decode with the reference, on the CPU
	@$(BIN)/python scripts/check_backend.py cpu $(CHECK_ARGS)

$(BACKENDS:%=check-%): check-%: cpu %
	@$(BIN)/python scripts/check_backend.py $* $(CHECK_ARGS)
	$(if $(filter rpc,$*),@$(BIN)/python -m pytest --no-cov tests/test_backends_rpc.py)

# Cross-compiled, and run by an emulator.
arm64: $(VENV)/installed ## build build/arm64 for 64-bit Arm Linux, with its tests
	@$(BIN)/python scripts/check_toolchain.py arm64
	@mkdir -p build
	@PATH="$(BIN):$$PATH" JOBS=$(JOBS) $(BIN)/cmake -S native -B build/arm64 -G Ninja --log-level=STATUS \
	    -DCMAKE_TOOLCHAIN_FILE=$(CURDIR)/native/cmake/aarch64-linux-gnu.cmake -DELIZA_BUILD_TESTS=ON \
	    -DPython3_EXECUTABLE=$(BIN)/python $(CMAKE_ARGS) > build/arm64.log 2>&1 \
	    || { tail -n 30 build/arm64.log; exit 1; }
	@$(BIN)/cmake --build build/arm64 --parallel $(JOBS)

check-arm64: arm64 ## run the native tests for 64-bit Arm under qemu
	@command -v qemu-aarch64 > /dev/null || { echo "make: qemu-aarch64 is missing; on Debian: apt install qemu-user"; exit 1; }
	@qemu-aarch64 -L /usr/aarch64-linux-gnu build/arm64/tests/native_tests --gtest_brief=1 $(CHECK_ARGS)

test: test-native test-python ## run every test that needs no GPU

test-native: cpu-with-tests
	@$(BUILD)/tests/native_tests --gtest_brief=1

test-python: cpu-with-tests
	@$(BIN)/python -m pytest

# Our own code under AddressSanitizer and UBSan, leaks included; llama.cpp stays as it is.
test-asan: BUILD := build/asan
test-asan: ## run the native tests under sanitizers (minutes)
	@$(MAKE) --no-print-directory cpu BUILD=$(BUILD) \
	    CMAKE_ARGS="$(CMAKE_ARGS) -DELIZA_BUILD_TESTS=ON -DELIZA_SANITIZE=address,undefined"
	@ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1 \
	    UBSAN_OPTIONS=print_stacktrace=1 $(BUILD)/tests/native_tests --gtest_brief=1

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

bench: bench-ready ## measure everything that the docs show (half an hour)
	@$(BIN)/python scripts/bench_peers.py --docs docs/performance.md --docs README.md
	@$(BIN)/python scripts/bench_growth.py --docs docs/performance.md
	@$(BIN)/python scripts/bench_streaming.py --docs docs/performance.md
	@$(BIN)/python scripts/bench_tries.py --docs docs/performance.md
	@$(BIN)/python scripts/bench_masks.py --docs docs/toktrie.md
	@$(BIN)/python scripts/bench_sampling.py --docs docs/sampling.md
	@$(BIN)/python scripts/bench_guessing.py --docs docs/drop-in.md
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
