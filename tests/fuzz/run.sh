#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# run.sh [TARGET...]: builds fuzz targets (all of them by default) and runs each for FUZZ_SECONDS (60), one per core,
# from the inputs in corpus/. Prints one line per target. The input that made a target fail is kept under .fuzz/, with
# the target's output. With FUZZ_KEEP=1, the inputs in corpus/ that have a hash as their name are replaced by the fewest
# inputs that reach as much code as all inputs together.
set -euo pipefail
cd "$(dirname "$0")/../.."
bazel=${BAZEL:-bazel}
progress=() && [ -t 2 ] || progress=(--show_progress_rate_limit=60)  # one line per minute
export FUZZ_SECONDS=${FUZZ_SECONDS:-60} FUZZ_KEEP=${FUZZ_KEEP:-0}
export ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1

targets=("$@")
[ $# -gt 0 ] || mapfile -t targets < <("$bazel" query 'kind(cc_binary, //tests/fuzz:all)' 2>/dev/null | sed -E 's/.*:(.*)_fuzzer$/\1/')
"$bazel" build --config=fuzz "${progress[@]}" $(printf '//tests/fuzz:%s_fuzzer ' "${targets[@]}")
export BINARIES
BINARIES=$("$bazel" info --config=fuzz bazel-bin 2>/dev/null)/tests/fuzz

run_one() {
  local name=$1 binary=$BINARIES/$1_fuzzer work=.fuzz/$1 corpus=tests/fuzz/corpus/$1 log=.fuzz/$1/output
  mkdir -p "$work/found"
  if ! "$binary" -max_total_time="$FUZZ_SECONDS" -timeout=10 -max_len=4096 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$work/" "$work/found" "$corpus" >"$log" 2>&1; then
    echo "$name: FAILED, see $log"
    grep -E -m 3 'does not hold|ERROR|runtime error|SUMMARY' "$log" || tail -3 "$log"
    return 1
  fi
  if [ "$FUZZ_KEEP" = 1 ]; then
    find "$corpus" -regextype egrep -regex '.*/[0-9a-f]{40}' -exec mv -t "$work/found" {} +
    "$binary" -set_cover_merge=1 -use_counters=0 -max_len=4096 "$corpus" "$work/found" >"$log.merge" 2>&1
  fi
  echo "$name: no failure in $(sed -nE 's/^stat::number_of_executed_units: *//p' "$log") runs"
}
export -f run_one

printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I{} bash -c 'run_one {}'
