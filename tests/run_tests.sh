#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Runs `bazel test` with the given arguments and ends with a line "N passed, N failed[, N skipped]" that counts test
# cases: each case once a run, with --runs_per_test as well. A target or a run without a report of its cases (it does not
# build, crashes or times out) counts as one failure. Of the targets, only those that did not pass are listed.
# Where the output is no terminal, a line a minute tells the count of actions and tests.
set -uo pipefail
cd "$(dirname "$0")/.."
bazel=${BAZEL:-bazel}
events=$(mktemp)
trap 'rm -f "$events"' EXIT

progress=()
[ -t 2 ] || progress=(--show_progress_rate_limit=60)
"$bazel" test --keep_going --build_tests_only --test_summary=terse --build_event_json_file="$events" "${progress[@]}" "$@"
status=$?

# A line for each run and shard: its outcome and the path of its report, or "-" without one.
results() {
  grep '^{"id":{"testResult"' "$events" | while IFS= read -r event; do
    outcome=$(sed -nE 's/.*"status":"([A-Z_]+)".*/\1/p' <<< "$event")
    report=$(sed -nE 's/.*"name":"test\.xml","uri":"file:\/\/([^"]+)".*/\1/p' <<< "$event")
    echo "${outcome:-NO_STATUS} ${report:--}"
  done
}

# The number in attribute $1 of the first element of report $2; 0 without one.
count() {
  grep -hoE -m 1 "<testsuites?[^>]* $1=\"[0-9]+\"" "$2" | sed -E 's/.*="([0-9]+)"$/\1/; q' | grep . || echo 0
}

passed=0 failed=0 skipped=0
while read -r outcome report; do
  cases=0 failures=0 skips=0
  if [ -f "$report" ] && { [ "$outcome" = PASSED ] || [ "$outcome" = FAILED ]; }; then
    cases=$(count tests "$report")
    failures=$(count failures "$report")
    skips=$(grep -c 'result="skipped"' "$report")
  fi
  [ "$outcome" != PASSED ] && [ "$failures" -eq 0 ] && cases=1 failures=1 skips=0
  passed=$((passed + cases - failures - skips))
  failed=$((failed + failures))
  skipped=$((skipped + skips))
done < <(results)

# Targets that were not built. Those that the platform or the tags leave out are no failures.
unbuilt=$(grep '^{"id":{"targetCompleted"' "$events" | grep -v '"success":true' | grep -cv '"reason":"SKIPPED"')
failed=$((failed + unbuilt))

[ "$status" -ne 0 ] && [ "$failed" -eq 0 ] && failed=1
summary="$passed passed, $failed failed"
[ "$skipped" -gt 0 ] && summary="$summary, $skipped skipped"
echo "$summary"
[ "$failed" -eq 0 ]
