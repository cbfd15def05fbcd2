#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Unit tests and the short whole runs under AddressSanitizer + UndefinedBehaviorSanitizer, then under ThreadSanitizer.
# sanitize.sh [address|thread]: only one of them.
set -eu
which=${1:-both}
one() {
  cmake -S . -B "build-$1" -G Ninja -DLOCKSTEP_CUDA=off -DLOCKSTEP_SANITIZE="$2" -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS="-O1 -DNDEBUG" \
    $(command -v ccache >/dev/null 2>&1 && echo -DCMAKE_CXX_COMPILER_LAUNCHER=ccache) >/dev/null
  cmake --build "build-$1" -j "$(nproc)"
  (cd "build-$1" && ctest --output-on-failure -j "$(nproc)" -LE slow)
}
[ "$which" = thread ] || one asan address,undefined
[ "$which" = address ] || one tsan thread
