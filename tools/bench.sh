#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the benchmarks into build-bench and runs them; arguments go to bench/run_matmul.py (try --quick).
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}
launcher=()
if command -v ccache >/dev/null 2>&1; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
cmake -S . -B build-bench -G Ninja -DCMAKE_BUILD_TYPE=Release -DLOCKSTEP_BENCH=ON -DLOCKSTEP_TESTS=OFF "${launcher[@]}" >/dev/null
cmake --build build-bench -j "$jobs" --target bench_programs
python3 bench/run_matmul.py "$@"
if [ -x build-bench/bench/step_bench ]; then
  build-bench/bench/step_bench "$jobs"
fi
