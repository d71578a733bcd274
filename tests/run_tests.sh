#!/usr/bin/env bash
# Runs `bazel test` with the given arguments and ends with a line "N passed, N failed[, N skipped]" that counts test cases.
# A target that ends without a report of its cases (it does not build, crashes or times out) counts as one failure.
set -uo pipefail
cd "$(dirname "$0")/.."
bazel=${BAZEL:-bazel}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

"$bazel" test --keep_going --noshow_progress "$@" 2>&1 | tee "$log"
status=${PIPESTATUS[0]}

# The sum of attribute $1 over the reports of target directory $2: one report, or one a shard.
total() {
  find "$2" -name test.xml -exec grep -hoE -m 1 "<testsuites?[^>]* $1=\"[0-9]+\"" {} + |
    sed -E 's/.*="([0-9]+)"$/\1/' | awk '{ sum += $1 } END { print sum + 0 }'
}

passed=0 failed=0 skipped=0
while read -r target outcome; do
  reports=".bazel/testlogs/$(echo "${target#//}" | tr : /)"
  cases=0 failures=0
  if [ "$outcome" = PASSED ] || [ "$outcome" = FAILED ]; then
    cases=$(total tests "$reports")
    failures=$(total failures "$reports")
  fi
  [ "$outcome" != PASSED ] && [ "$failures" -eq 0 ] && cases=1 failures=1
  skips=$(find "$reports" -name test.xml -exec grep -h 'result="skipped"' {} + 2>/dev/null | wc -l)
  passed=$((passed + cases - failures - skips))
  failed=$((failed + failures))
  skipped=$((skipped + skips))
done < <(sed -nE 's#^(//[^ ]+) +(\(cached\) )?(PASSED|FAILED TO BUILD|FAILED|TIMEOUT|NO STATUS|FLAKY).*#\1 \3#p' "$log" |
  awk '{print $1, $2}' | sort -u)

[ "$status" -ne 0 ] && [ "$failed" -eq 0 ] && failed=1
summary="$passed passed, $failed failed"
[ "$skipped" -gt 0 ] && summary="$summary, $skipped skipped"
echo "$summary"
[ "$failed" -eq 0 ]
