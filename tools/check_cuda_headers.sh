#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compiles every CUDA source for Hopper; the numerics headers must mean the same to the device compiler.
set -eu
cd "$(dirname "$0")/.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for file in $(git ls-files 'src/*.cu' 'tests/*.cu'); do
  echo "nvcc $file"
  nvcc -std=c++20 -gencode=arch=compute_90a,code=sm_90a --fmad=false -Xcompiler -ffp-contract=off -Isrc -c "$file" -o "$out/$(basename "$file").o"
done
