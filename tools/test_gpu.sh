#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_gpu.sh BUILD: the CUDA ops against their definitions, byte for byte, and whole runs on the GPU against the golden
# ledgers that CPU runs gave, with NaN in all new memory of the GPU. Nothing is skipped: without a GPU it fails.
set -euo pipefail
build=${1:?usage: tools/test_gpu.sh BUILD}
cd "$(dirname "$0")/.."
if ! grep -q 'CMAKE_CUDA_COMPILER:' "$build/CMakeCache.txt"; then
  echo "test-gpu: $build was configured without a CUDA toolkit; install one with nvcc (12.4 or later), or set CUDAToolkit_ROOT" >&2
  exit 2
fi
cd "$build"
runs=(golden_test axes_test axes_bf16_test)
listed=$(ctest -N)
for name in lockstep_op_matmul_cuda "${runs[@]}"; do
  grep -q ": $name\$" <<<"$listed" || { echo "test-gpu: $build has no test $name; configure it with -DLOCKSTEP_TESTS=on" >&2; exit 2; }
done
export LOCKSTEP_GPU_REQUIRED=1 LOCKSTEP_POISON=1
ctest --output-on-failure --no-tests=error -j 4 -L gpu
LOCKSTEP_TEST_DEVICE=cuda ctest --output-on-failure --no-tests=error -R "^($(IFS='|'; echo "${runs[*]}"))\$"
