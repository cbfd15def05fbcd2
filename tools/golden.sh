#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# golden.sh [BUILD]: rebuilds every golden file after a deliberate change of bits: ledgers, known answers, the demo's hash.
set -eu
build=${1:-build}
LOCKSTEP_UPDATE_GOLDEN=1 "$build/tests/golden_test" --gtest_brief=1
LOCKSTEP_WRITE_GOLDEN=1 "$build/src/lockstep_numerics_test" --gtest_brief=1 --gtest_filter="Vectors.*"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
line=$("$build/lockstep" demo --out "$out/demo" | tail -n 1)
echo "$line" > tests/golden/demo.txt
sed -i "s|^\(    \)demo: accuracy .*|\1$line|" README.md
git --no-pager diff --stat -- tests README.md
