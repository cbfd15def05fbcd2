#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run_clang_tidy.sh BUILD [FILE...]: clang-tidy over the program's sources (not tests and benches); fails on the first finding.
set -eu
build=$1
shift
if [ $# -gt 0 ]; then files=$*; else files=$(git ls-files 'src/*.cpp' | grep -vE '_(test|bench|fuzz|avx512)\.cpp$'); fi
printf '%s\n' $files | xargs -P "$(nproc)" -n 4 clang-tidy -p "$build" --quiet
