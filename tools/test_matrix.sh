#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test_matrix.sh [CELL...]: the golden ledgers with every compiler and optimisation level. A cell is COMPILER:LEVEL, as in
# clang++:-O0; the default is all four of g++ and clang++ with -O0 and -O3.
set -eu
cells=${*:-"g++:-O0 g++:-O3 clang++:-O0 clang++:-O3"}
failed=""
for cell in $cells; do
  compiler=${cell%%:*}
  level=${cell##*:}
  build=build-matrix/$(echo "$cell" | tr -d ':+')
  echo "test-matrix: $compiler $level"
  cmake -S . -B "$build" -G Ninja -DLOCKSTEP_CUDA=off -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_CXX_FLAGS="$level -DNDEBUG" \
    $(command -v ccache >/dev/null 2>&1 && echo -DCMAKE_CXX_COMPILER_LAUNCHER=ccache) >/dev/null
  cmake --build "$build" -j "$(nproc)" --target golden_test >/dev/null
  "$build/tests/golden_test" --gtest_brief=1 || failed="$failed $cell"
done
[ -z "$failed" ] || { echo "test-matrix: different bits or a failed run in:$failed" >&2; exit 1; }
echo "test-matrix: the same ledgers in: $cells"
