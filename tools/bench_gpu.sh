#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the GPU benchmarks into build-bench and runs them; where python3 has torch, PyTorch's peers too. Ends with a short
# table; all rows are in build-bench/bench_gpu.json.
set -euo pipefail
cd "$(dirname "$0")/.."
cmake -S . -B build-bench -G Ninja -DCMAKE_BUILD_TYPE=Release -DLOCKSTEP_BENCH=ON -DLOCKSTEP_TESTS=OFF -DLOCKSTEP_CUDA=on >/dev/null
cmake --build build-bench -j "${JOBS:-$(nproc)}" --target bench_programs
texts=build-bench/bench-gpu
rm -rf "$texts"
mkdir -p "$texts"
for bench in gemm_bench attention_cuda_bench decode_bench small_ops_bench sgemm_bench attention_fp32_bench; do
  if [ -x "build-bench/bench/$bench" ]; then
    echo "== $bench"
    "build-bench/bench/$bench" | tee "$texts/$bench.txt"
  fi
done
if python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
  for peer in attention_peer step_peer; do
    echo "== $peer (PyTorch)"
    python3 "bench/cuda/$peer.py" | tee "$texts/$peer.txt"
  done
fi
python3 bench/cuda/summary.py build-bench/bench_gpu.json "$texts"/*.txt
