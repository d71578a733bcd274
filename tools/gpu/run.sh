#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Runs the content of the bundle that bundle.sh has made, on a machine with a GPU:
#
#   run.sh plan [STEP | GROUP]...   the most useful checks, in steps (plan.md); without a name all of them
#   run.sh test                     every test that needs a GPU
#   run.sh bench                    every benchmark
#   run.sh sanitize                 the tests under compute-sanitizer
#
# GPU_PLAN_OUT is the folder for tables and logs. Without a GPU the script reports that there is none, and does not
# fail.
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")"

readonly root=$PWD
readonly usage="usage: run.sh test|bench|sanitize|plan [STEP|GROUP]..."
readonly what=${1:?$usage}
shift
[[ $what =~ ^(test|bench|sanitize|plan)$ ]] || { echo "$usage" >&2 && exit 2; }
logs=$(mktemp -d)
readonly logs out=${GPU_PLAN_OUT:-$logs/out}
mkdir -p "$out"
# A background job that is killed before it has reset its parent's traps also runs these traps.
trap '[[ $BASHPID -ne $$ ]] || rm -rf "$logs"' EXIT
export RONDA_HOSTS_PLUGIN=$root/runtime/net/libronda_hosts.so
export RONDA_TEST_CUDA_PLUGIN=$root/runtime/cuda/libronda_cuda.so
readonly rondarun=$root/programs/rondarun/rondarun
readonly package=$root/client/python/package

# shellcheck source=tools/gpu/machine.sh
source "$root/machine.sh"
# shellcheck source=tools/gpu/steps.sh
source "$root/steps.sh"

# Runs every test with the given command in front of it, within the given time, and prints its outcome.
run_tests() {  # run_tests SECONDS [COMMAND...]
  local seconds=$1 passed=0 failed=0 skipped=0 program log
  shift
  while read -r program; do
    log=$logs/${program//\//_}.log
    if ! (export TEST_TMPDIR=$logs && timeout "$seconds" "$@" "./$program" < /dev/null > "$log" 2>&1); then
      failed=$((failed + 1))
      echo "FAILED  $program" && tail -n 40 "$log"
    elif grep -q '^\[  SKIPPED \]' "$log" && ! grep -q '^\[       OK \]' "$log"; then
      skipped=$((skipped + 1))
      echo "SKIPPED $program: $(grep -m 1 -A 1 ': Skipped$' "$log" | tail -n 1)"
    else
      passed=$((passed + 1))
      echo "PASSED  $program"
    fi
  done < tests.txt
  echo "$passed passed, $failed failed, $skipped skipped"
  [[ $failed -eq 0 ]]
}

# Runs the tests once with each of compute-sanitizer's tools, which find wrong addresses, races within a block, and
# barriers that not all threads reach.
sanitize() {
  local tool status=0
  if [[ -z $(sanitizer) ]]; then
    echo "SKIPPED: there is no compute-sanitizer: it comes with the CUDA toolkit"
    return 0
  fi
  for tool in memcheck racecheck synccheck; do
    echo "== $tool"
    run_tests 1800 "$(sanitizer)" --tool "$tool" --target-processes all --error-exitcode 86 || status=1
  done
  return $status
}

# Runs a benchmark, and keeps its output.
measure() {  # measure COMMAND...
  echo "== $*"
  timeout 300 "$@" < /dev/null | sed -u 's/^\[0\]<stdout>: //' | tee -a "$logs/figures"
  return "${PIPESTATUS[0]}"
}

# Prints the figures that have an aim, as rows of a table.
print_table() {
  echo "== for docs/benchmarks.md: ${cuda#X }; $(part nccl | sed 's/^. //'); $(date --utc +%F)"
  printf '\n| what | measured | aim |\n|---|---|---|\n'
  sed -nE 's/^(.*): (.*) \(aim: (.*)\)$/| \1 | \2 | \3 |/p' "$logs/figures"
}

run_benches() {
  local status=0 program
  export RONDA_CUDA_PLUGIN=$RONDA_TEST_CUDA_PLUGIN
  while read -r program; do
    case $program in
      examples/*) measure "./$program" --bench || status=1 ;; # instead of training
      */host_time_bench)
        measure "./$program" || status=1
        if [[ $(part nccl) == X* ]]; then
          RONDA_DEVICE_BACKEND=nccl measure "$rondarun" -np 2 "./$program" || status=1
        else
          echo "== 2 ranks are left out: $(part nccl)"
        fi
        ;;
      *) measure "./$program" || status=1 ;;
    esac
  done < benches.txt
  print_table
  return $status
}

if [[ $what == plan ]]; then check_names "$@"; fi
"$rondarun" --version > /dev/null 2>&1 || use_own_libc
readonly cuda=$(part cuda)
if [[ $cuda != X* ]]; then
  echo "SKIPPED: ${cuda#- }"
  exit 0
fi
echo "${cuda#X }"

case $what in
  test) run_tests 300 ;;
  bench) run_benches ;;
  sanitize) sanitize ;;
  plan) run_plan "$@" ;;
esac
