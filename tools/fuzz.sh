#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fuzz.sh [SECONDS]: every libFuzzer target for SECONDS (60), with address and undefined sanitizers. What is found is kept
# in build-fuzz/corpus; a failing input in build-fuzz/<target>-*.
set -eu
seconds=${1:-60}
launcher=""
if command -v ccache >/dev/null 2>&1; then launcher=-DCMAKE_CXX_COMPILER_LAUNCHER=ccache; fi
cmake -S . -B build-fuzz -G Ninja -DLOCKSTEP_CUDA=off -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_C_COMPILER=clang -DLOCKSTEP_FUZZ=ON $launcher \
  -DLOCKSTEP_TESTS=OFF -DLOCKSTEP_SANITIZE=address,undefined -DCMAKE_CXX_FLAGS=-fsanitize=fuzzer-no-link >/dev/null
targets=$(git ls-files 'src/*_fuzz.cpp' | xargs -n 1 basename | sed 's/\.cpp$//')
cmake --build build-fuzz -j "$(nproc)" --target $targets
python3 tools/fuzz_seeds.py build-fuzz/seeds
for target in $targets; do
  echo "fuzz: $target for $seconds s"
  mkdir -p "build-fuzz/corpus/$target" "build-fuzz/seeds/$target"
  "build-fuzz/src/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=0 -verbosity=0 \
    -artifact_prefix="build-fuzz/$target-" "build-fuzz/corpus/$target" "build-fuzz/seeds/$target"
done
echo "fuzz: all targets passed"
