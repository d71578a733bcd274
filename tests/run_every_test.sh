#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Every test; then those that need PyTorch, which have run with Debian's, once more with the newest that pip offers; then
# those that need Paddle, JAX, and TensorFlow or Keras, likewise. Ends with a line "N passed, N failed[, N skipped]", the
# sum of the runs. Where a newest version cannot be had, its targets count as skipped.
set -uo pipefail
cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT

passed=0 failed=0 skipped=0

# Runs run_tests.sh with arguments from $2 on and adds its sum, which is printed with the name $1.
run() {
  local name=$1 sum
  shift
  tests/run_tests.sh "$@" | tee "$log" | sed -u '$d'
  sum=$(tail -n 1 "$log")
  if [[ ! $sum =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed(,\ ([0-9]+)\ skipped)?$ ]]; then
    echo "$name: run_tests.sh ended without a sum"
    failed=$((failed + 1))
    return
  fi
  echo "$name: $sum"
  passed=$((passed + BASH_REMATCH[1]))
  failed=$((failed + BASH_REMATCH[2]))
  skipped=$((skipped + ${BASH_REMATCH[4]:-0}))
}

# Runs the targets with the tag $1, which is the name of a module in folder tools, with the newest version; $2 is its name
# to readers, $3 PyPI's.
run_newest() {
  local module=$1 name=$2 project=$3 python version targets
  if python=$("tools/$module/environment.sh" newest); then
    version=$("$python" -c "from importlib.metadata import version; print(version('$project'))")
    run "With $name $version" --test_env=TEST_PYTHON="$python" --test_tag_filters="$module" //...
  else
    targets=$("${BAZEL:-bazel}" query --noshow_progress "attr(tags, '[\[ ]${module}[,\]]', tests(//...))" | grep -c .)
    echo "SKIPPED: the newest $name cannot be had, as said above; its $targets targets count as skipped"
    skipped=$((skipped + targets))
  fi
}

# Makes the environments of the newest versions while the tests are built. What this cannot make, run_newest reports.
for module in torch paddle jax tensorflow; do "tools/$module/environment.sh" newest; done > /dev/null 2>&1 &

run "Every test" //...
run_newest torch PyTorch torch
run_newest paddle Paddle paddlepaddle
run_newest jax JAX jax
run_newest tensorflow TensorFlow tensorflow-cpu

summary="$passed passed, $failed failed"
[ "$skipped" -gt 0 ] && summary="$summary, $skipped skipped"
echo "$summary"
[ "$failed" -eq 0 ]
