#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# sanitize_gpu.sh BUILD [TOOL...]: the tests of the CUDA ops under compute-sanitizer's memcheck, racecheck, initcheck and
# synccheck, a process a test, JOBS at once; ONLY: those whose tool, program and name match it (a regular expression). Ends
# with what was found; 1 if anything was, if a test outran TIMEOUT seconds, or if one did not run.
set -uo pipefail
build=${1:?usage: tools/sanitize_gpu.sh BUILD [TOOL...]}
shift
tools=${*:-memcheck racecheck initcheck synccheck}
fail() { echo "sanitize-gpu: $1" >&2; exit 2; }
command -v compute-sanitizer >/dev/null 2>&1 || fail "compute-sanitizer is missing; it comes with the CUDA toolkit"
cd "$(dirname "$0")/.." || exit 2
export LOCKSTEP_GPU_REQUIRED=1 LOCKSTEP_SANITIZED=1 TIMEOUT=${TIMEOUT:-600} LOGS=$build/sanitize-gpu
rm -rf "$LOGS"
mkdir -p "$LOGS" || exit 2
one() {  # TOOL PROGRAM TEST
  local log="$LOGS/$1.${3//\//.}.log" name="$1 $3" status began=$SECONDS
  # API errors are not errors: tests make some on purpose (a capture that fails, memory that is not there).
  [ "$1" = memcheck ] && set -- "$1" "$2" "$3" --report-api-errors no
  timeout -k 10 "$TIMEOUT" compute-sanitizer --tool "$1" "${@:4}" --error-exitcode 9 "$2" --gtest_brief=1 --gtest_filter="$3" >"$log" 2>&1
  status=$?
  if [ $status -eq 124 ] || [ $status -eq 137 ]; then
    echo "SLOW  $name: more than $TIMEOUT s, or killed"
  # Clean is what says so itself: one test that passed, and a summary of nothing.
  elif [ $status -ne 0 ] || ! grep -q '^\[  PASSED  \] 1 test' "$log" ||
    ! grep -qE 'ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards displayed \(0 errors, 0 warnings\)' "$log"; then
    echo "FOUND $name: exit $status, $(grep -hE 'ERROR SUMMARY|RACECHECK SUMMARY|FAILED' "$log" | tail -1 | grep . || tail -1 "$log") ($log)"
  fi
  echo "$((SECONDS - began)) s $name" >>"$LOGS/times"
}
export -f one
for program in "$build"/src/*_cuda_test; do
  [ -x "$program" ] || fail "$build has no tests of CUDA ops; build it with a CUDA toolkit and -DLOCKSTEP_TESTS=on"
  list=$("$program" --gtest_list_tests) || fail "$program does not list its tests (exit $?)"
  awk -v p="$program" '/^[^ ].*\.($| )/ {suite = $1} /^  / {print p, suite $1}' <<<"$list"
done | grep -v DeathTest >"$LOGS/tests"  # those make errors on purpose
[ "${PIPESTATUS[0]}" -eq 0 ] || exit 2
# Left out: initcheck of whole models, for it does not see what the copy engine stores and says of their gradients that
# nobody wrote them (tests of ops fill their outputs first; test_gpu.sh has NaN in all new memory); racecheck of GpuMemory,
# whose kernels are those of other tests: many minutes each.
for tool in $tools; do sed "s/^/$tool /" "$LOGS/tests"; done | grep -E "${ONLY:-.}" |
  grep -Ev '^initcheck .*(HeadSizes|GpuMemory)|^racecheck .*GpuMemory' >"$LOGS/all"
[ -s "$LOGS/all" ] || fail "no test matches ONLY=${ONLY:-}"
# The test that takes all memory of the GPU: alone, after the others.
{
  grep -v WithoutRoom "$LOGS/all" | xargs -r -P "${JOBS:-$(nproc)}" -L 1 bash -c 'one "$@"' one
  grep WithoutRoom "$LOGS/all" | xargs -r -L 1 bash -c 'one "$@"' one
} | tee "$LOGS/found"
compute-sanitizer --version | tail -1
planned=$(wc -l <"$LOGS/all") ran=$(cat "$LOGS/times" 2>/dev/null | wc -l)
echo "sanitize-gpu: $ran of $planned runs, $(grep -c ^FOUND "$LOGS/found") with findings, $(grep -c ^SLOW "$LOGS/found") too slow"
[ ! -s "$LOGS/found" ] && [ "$ran" -eq "$planned" ]
