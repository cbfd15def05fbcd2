#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench.sh: products against OpenBLAS, then a training and a decode step against what the machine allows.
set -eu
cmake -S . -B build-bench -G Ninja -DLOCKSTEP_BENCH=ON -DLOCKSTEP_TESTS=OFF >/dev/null
cmake --build build-bench -j "$(nproc)" --target matmul_bench openblas_bench fma_rate step_bench >/dev/null
python3 bench/run_matmul.py build-bench
build-bench/bench/step_bench "$(nproc)"
