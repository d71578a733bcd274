#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Tests tests/run_tests.sh, with a stand-in for Bazel that writes the events and reports of runs as Bazel does.
set -euo pipefail

readonly folder=$(mktemp -d "${TEST_TMPDIR:-/tmp}/runs.XXXXXX")
trap 'rm -rf "$folder"' EXIT

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# result OUTCOME RUN SHARD CASES FAILURES SKIPPED: the event of a run, and its report unless CASES is "-"
result() {
  local report=$folder/$RANDOM$RANDOM.xml files='{"name":"test.log","uri":"file:///nowhere/test.log"}' i
  if [[ $4 != - ]]; then
    files+=",{\"name\":\"test.xml\",\"uri\":\"file://$report\"}"
    {
      echo '<?xml version="1.0" encoding="UTF-8"?>'
      echo "<testsuites tests=\"$4\" failures=\"$5\" disabled=\"0\" errors=\"0\" name=\"AllTests\">"
      echo "  <testsuite name=\"Suite\" tests=\"$4\" failures=\"$5\">"
      for ((i = 0; i < $6; ++i)); do echo "    <testcase name=\"Case$i\" status=\"run\" result=\"skipped\" />"; done
      echo '  </testsuite></testsuites>'
    } > "$report"
  fi
  local id="{\"testResult\":{\"label\":\"//a:b\",\"run\":$2,\"shard\":$3,\"attempt\":1}}"
  echo "{\"id\":$id,\"testResult\":{\"testActionOutput\":[$files],\"status\":\"$1\"}}"
}

built() { echo '{"id":{"targetCompleted":{"label":"//a:b"}},"completed":{"success":true,"outputGroup":[]}}'; }
unbuilt() { echo '{"id":{"targetCompleted":{"label":"//a:c"}},"completed":{"failureDetail":{"message":"no"}}}'; }
left_out() { echo '{"id":{"targetCompleted":{"label":"//a:d"}},"aborted":{"reason":"SKIPPED"}}'; }

# Runs run_tests.sh with the events on stdin and a Bazel whose exit code is $1. The last line must be $2.
expect() {
  cat > "$folder/events"
  cat > "$folder/bazel" << END
#!/bin/bash
for argument; do [[ \$argument != --build_event_json_file=* ]] || cp "$folder/events" "\${argument#*=}"; done
echo "\$*" > "$folder/arguments"
exit $1
END
  chmod 755 "$folder/bazel"
  local code=0 output
  output=$(BAZEL=$folder/bazel tests/run_tests.sh "${@:3}" //a/... 2>&1) || code=$?
  [[ $(tail -n 1 <<< "$output") == "$2" ]] || fail "not \"$2\" but: $output"
  local failures=0
  [[ $2 == *" 0 failed"* ]] || failures=1
  [[ $((code != 0)) -eq $failures ]] || fail "exit code $code: $output"
}

{ built; result PASSED 1 1 7 0 0; } | expect 0 "7 passed, 0 failed"
{ built; result PASSED 1 1 7 0 2; left_out; } | expect 0 "5 passed, 0 failed, 2 skipped"

# Each run and each shard is counted.
{
  built
  for run in 1 2 3; do result PASSED $run 1 4 0 1 && result PASSED $run 2 3 0 0; done
} | expect 0 "18 passed, 0 failed, 3 skipped"
{ built; result PASSED 1 1 4 0 0; result FAILED 2 1 4 3 0; result FAILED 3 1 4 1 0; } | expect 3 "8 passed, 4 failed"

# A run that has no report, or the report of a program that does not use GoogleTest, is one failure.
{ built; result TIMEOUT 1 1 - 0 0; result PASSED 2 1 4 0 0; } | expect 3 "4 passed, 1 failed"
{ built; result FAILED 1 1 1 0 0; } | expect 3 "0 passed, 1 failed"
{ built; result FAILED 1 1 - 0 0; result FAILED 1 2 9 2 0; } | expect 3 "7 passed, 3 failed"

# Targets that are not built, and a failure of Bazel itself.
{ built; result PASSED 1 1 4 0 0; unbuilt; } | expect 1 "4 passed, 1 failed"
expect 37 "0 passed, 1 failed" < /dev/null

# The user's options come after the script's, so that they override them. The output is not a terminal here.
{ built; result PASSED 1 1 1 0 0; } | expect 0 "1 passed, 0 failed" --runs_per_test=3
readonly own="test --keep_going --build_tests_only --test_summary=terse --build_event_json_file="
[[ $(< "$folder/arguments") == "$own"*" --show_progress_rate_limit=60 --runs_per_test=3 //a/..." ]] ||
  fail "arguments: $(< "$folder/arguments")"
echo "all is well"
