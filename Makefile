# SPDX-License-Identifier: Apache-2.0
# make demo | make test: each complete in itself on a fresh Debian/Ubuntu with git and make (root or sudo).
BUILD ?= build
JOBS ?= $(shell nproc)
CXX_LAUNCHER := $(shell command -v ccache >/dev/null 2>&1 && echo -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
CMAKE_ARGS ?=

.PHONY: help deps deps-dev configure build program demo test format format-check lint layers needs-nvcc test-matrix test-gpu sanitize-gpu bench bench-gpu golden sanitize fuzz test-interop clean
help:
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 16

deps: ## install what building and testing need (apt; root or sudo)
	@tools/install_deps.sh build

deps-dev: ## also formatters, linters, a second compiler, benchmarks
	@tools/install_deps.sh dev

configure: deps
	@cmake -S . -B $(BUILD) -G Ninja $(CXX_LAUNCHER) $(CMAKE_ARGS) > $(BUILD).cmake.log 2>&1 || { cat $(BUILD).cmake.log; exit 1; }
	@rm -f $(BUILD).cmake.log

LINK_PROGRAM = if [ -x $(BUILD)/src/lockstep ]; then ln -f $(BUILD)/src/lockstep $(BUILD)/lockstep 2>/dev/null || cp $(BUILD)/src/lockstep $(BUILD)/lockstep; fi

build: configure ## configure and build everything; the program is build/lockstep
	@cmake --build $(BUILD) -j $(JOBS)
	@$(LINK_PROGRAM)

program: configure ## configure and build the program alone, without the tests
	@cmake --build $(BUILD) -j $(JOBS) --target lockstep
	@$(LINK_PROGRAM)

demo: program ## the whole story in three minutes
	@$(BUILD)/lockstep demo

test: build layers ## unit tests and whole runs
	@cd $(BUILD) && ctest --output-on-failure -j $(JOBS) -LE gpu

layers:
	@python3 tools/check_layers.py

CODE := $(shell git ls-files '*.cpp' '*.h' '*.cu' '*.cuh' 2>/dev/null)
format: ## clang-format in place (make deps-dev installs it)
	@clang-format -i $(CODE)
format-check:
	@command -v clang-format >/dev/null 2>&1 || { echo "clang-format is missing: make deps-dev installs it" >&2; exit 2; }
	@clang-format --dry-run --Werror $(CODE)
lint: layers ## clang-tidy over the compile commands
	@cmake -S . -B build-lint -G Ninja -DLOCKSTEP_CUDA=off -DCMAKE_CXX_COMPILER=clang++ > /dev/null
	@tools/run_clang_tidy.sh build-lint

sanitize: deps-dev ## address, undefined and thread sanitizers over the unit tests
	@tools/sanitize.sh
test-matrix: deps-dev ## GCC and Clang, -O0 and -O3: the same golden ledgers
	@tools/test_matrix.sh
bench: deps-dev ## products and steps against OpenBLAS and the measured machine
	@tools/bench.sh
golden: build ## rebuild golden files after a change of bits (a new numerics version)
	@tools/golden.sh
fuzz: deps-dev ## libFuzzer over every parser, a minute each
	@tools/fuzz.sh
test-interop: build ## saved checkpoints load in transformers (installs torch and transformers in a venv)
	@tools/test_interop.sh
test-gpu: needs-nvcc build ## every CUDA op against its definition, then whole runs against the CPU's golden ledgers (needs a GPU)
	@tools/test_gpu.sh $(BUILD)
sanitize-gpu: needs-nvcc build ## compute-sanitizer's four tools over every test of the CUDA ops (needs a GPU)
	@tools/sanitize_gpu.sh $(BUILD)
bench-gpu: needs-nvcc ## the GPU's products, attention, decode and small ops against vendor libraries and PyTorch; rows in build-bench/bench_gpu.json
	@tools/bench_gpu.sh
needs-nvcc:
	@command -v nvcc >/dev/null 2>&1 || [ -x "$${CUDAToolkit_ROOT:-/usr/local/cuda}/bin/nvcc" ] || { echo "this needs a CUDA toolkit (12.4 or later) with nvcc: put it on PATH or set CUDAToolkit_ROOT" >&2; exit 2; }
clean:
	@rm -rf build build-*
