#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The numerics headers must mean the same to the device compiler. All other CUDA sources are part of the build.
set -eu
cd "$(dirname "$0")/.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
nvcc -std=c++20 -gencode=arch=compute_90a,code=sm_90a --fmad=false -Xcompiler -ffp-contract=off -Isrc \
  -c src/numerics/numerics_device.cu -o "$out/numerics_device.o"
