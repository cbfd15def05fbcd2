#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the GPU benchmarks into build-bench and runs them; each prints a table last.
set -euo pipefail
cd "$(dirname "$0")/.."
cmake -S . -B build-bench -G Ninja -DCMAKE_BUILD_TYPE=Release -DLOCKSTEP_BENCH=ON -DLOCKSTEP_TESTS=OFF -DLOCKSTEP_CUDA=on >/dev/null
cmake --build build-bench -j "${JOBS:-$(nproc)}" --target bench_programs
for bench in gemm_bench attention_cuda_bench decode_bench small_ops_bench sgemm_bench attention_fp32_bench; do
  if [ -x "build-bench/bench/$bench" ]; then
    echo "== $bench"
    "build-bench/bench/$bench"
  fi
done
if python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
  for peer in attention_peer step_peer; do
    echo "== $peer (PyTorch)"
    python3 "bench/cuda/$peer.py"
  done
fi
