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

# Attribute $1 of the first element of the report $2; 0 if it has none.
attribute() {
  grep -oE "<testsuites?[^>]* $1=\"[0-9]+\"" "$2" | head -n 1 | grep -oE '[0-9]+"$' | tr -d '"' || echo 0
}

passed=0 failed=0 skipped=0
while read -r target outcome; do
  report=".bazel/testlogs/$(echo "${target#//}" | tr : /)/test.xml"
  if [ "$outcome" = PASSED ]; then
    skips=$(grep -c 'result="skipped"' "$report" || true)
    cases=$(attribute tests "$report")
    skipped=$((skipped + skips))
    passed=$((passed + cases - skips))
  else
    failures=0
    [ "$outcome" = FAILED ] && [ -s "$report" ] && failures=$(attribute failures "$report")
    failed=$((failed + (failures > 0 ? failures : 1)))
    [ "$failures" -gt 0 ] && passed=$((passed + $(attribute tests "$report") - failures))
  fi
done < <(sed -nE 's#^(//[^ ]+) +(\(cached\) )?(PASSED|FAILED TO BUILD|FAILED|TIMEOUT|NO STATUS|FLAKY).*#\1 \3#p' "$log" | awk '{print $1, $2}' | sort -u)

[ "$status" -ne 0 ] && [ "$failed" -eq 0 ] && failed=1
summary="$passed passed, $failed failed"
[ "$skipped" -gt 0 ] && summary="$summary, $skipped skipped"
echo "$summary"
[ "$failed" -eq 0 ]
