#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Tests run.sh of a GPU bundle. The bundle has the real launcher, fakes of CUDA and NCCL, and scripts as tests and
# benchmarks.
set -euo pipefail

readonly bundle=$(mktemp -d "${TEST_TMPDIR:-/tmp}/bundle.XXXXXX")
trap 'rm -rf "$bundle"' EXIT

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

program() {  # program PATH, a script on stdin
  mkdir -p "$bundle/$(dirname "$1")"
  cat <(echo '#!/bin/bash') - > "$bundle/$1"
  chmod 755 "$bundle/$1"
}

# Runs run.sh. Its output is in $output, its exit code in $code.
run() {
  code=0
  output=$(env --unset=RONDA_CUDA_PLUGIN "$bundle/run.sh" "$@" 2>&1) || code=$?
}

expect() {  # expect CODE PART...
  [[ $code -eq $1 ]] || fail "exit code $code, not $1: $output"
  shift
  for part in "$@"; do [[ $output == *"$part"* ]] || fail "no \"$part\" in: $output"; done
}

install -D -m 755 tools/gpu/run.sh "$bundle/run.sh"
cp tools/gpu/machine.sh tools/gpu/steps.sh "$bundle"
chmod u+w "$bundle"/*.sh
install -D -m 755 programs/rondarun/rondarun "$bundle/programs/rondarun/rondarun"
install -D -m 755 tests/testing/fake_cuda/libfake_cuda.so "$bundle/runtime/cuda/libronda_cuda.so"
export RONDA_NCCL_LIBRARY=$PWD/tests/testing/fake_nccl/libfake_nccl.so
export FAKE_CUDA_DEVICES=1

program tests/good <<< '[[ -f $RONDA_TEST_CUDA_PLUGIN && -d $TEST_TMPDIR ]] && echo "[       OK ] Good.Case (0 ms)"'
program tests/without <<< 'printf "%s\n" "without.cc:7: Skipped" "there is no second GPU" "[  SKIPPED ] Without.Case (0 ms)"'
program bench/one <<< 'printf "%s\n" "# not a figure" "packing, all of it: 93.1 % of a copy (aim: at least 85 %)"'
program bench/cuda/host_time_bench <<< '[[ ${RONDA_RANK:-0} -ne 0 ]] || echo "time, ${RONDA_SIZE:-1} ranks: 5 us (aim: under 60 us)"'
program examples/train <<< 'echo "training $1: 2 % (aim: under 3 %)"'
printf '%s\n' tests/good tests/without > "$bundle/tests.txt"
printf '%s\n' bench/one bench/cuda/host_time_bench examples/train > "$bundle/benches.txt"

# Tests.
run test
expect 0 "1 device" "PASSED  tests/good" "SKIPPED tests/without: there is no second GPU" "1 passed, 0 failed, 1 skipped"
program tests/bad <<< 'echo "what went wrong" && exit 1'
echo tests/bad >> "$bundle/tests.txt"
run test
expect 1 "FAILED  tests/bad" "what went wrong" "1 passed, 1 failed, 1 skipped"
sed -i '/bad/d' "$bundle/tests.txt"

# Benchmarks, and the table of figures that have an aim.
run bench
expect 0 "# not a figure" "| packing, all of it | 93.1 % of a copy | at least 85 % |" "| time, 1 ranks | 5 us | under 60 us |" \
  "| time, 2 ranks | 5 us | under 60 us |" "| training --bench | 2 % | under 3 % |" "fake GPU" "libfake_nccl.so"
RONDA_NCCL_LIBRARY=/nowhere/libnccl.so.2 run bench
expect 0 "2 ranks are left out: - " "| time, 1 ranks |"
[[ $output != *"time, 2 ranks"* ]] || fail "2 ranks without NCCL: $output"
program bench/one <<< 'exit 3'
run bench
expect 1 "| time, 1 ranks |"

# Sanitizers: each tool over each test.
program bin/compute-sanitizer <<< 'echo "$@" >> "$SANITIZED"; exec "${@: -1}"'
SANITIZED=$bundle/sanitized PATH=$bundle/bin:$PATH run sanitize
expect 0 "== memcheck" "== racecheck" "== synccheck"
[[ $(grep -c -- '--tool racecheck .* ./tests/' "$bundle/sanitized") -eq 2 ]] || fail "$(cat "$bundle/sanitized")"

# The plan: every step has a row, even if it fails, is skipped or does not end. Its log is in the folder for results.
program tests/kernels/bits <<< 'echo "[       OK ] Bits.Case (0 ms)"'
program tests/multiprocess/ranks <<< '[[ -n $RONDA_TEST_CUDA_PLUGIN ]]'
program tests/conformance/all <<< 'echo "wrong bits" && exit 7'
program bench/cuda/kernels_bench <<< 'echo "packing: 93.1 % of a copy (aim: at least 85 %)"'
program bench/cuda/host_time_bench <<< '
[[ ${RONDA_RANK:-} != 1 ]] || echo "$NCCL_HOSTID" >> "$HOST_IDS"
if [[ $* == *1000* ]]; then echo "# warm: 3 buckets of a locked schedule" && exec sleep 60; fi
[[ ${RONDA_RANK:-0} -ne 0 ]] || echo "time, ${RONDA_SIZE:-1} ranks: 5 us (aim: under 60 us)"'
printf '%s\n' tests/kernels/bits tests/multiprocess/ranks tests/conformance/all > "$bundle/tests.txt"
printf '%s\n' bench/cuda/kernels_bench bench/cuda/host_time_bench examples/train > "$bundle/benches.txt"
export HOST_IDS=$bundle/host_ids SANITIZED=$bundle/sanitized GPU_PLAN_OUT=$bundle/out
sed -i 's/"one-queue  *more  *[0-9]*/"one-queue more 1/' "$bundle/steps.sh"
sed -i 's/^one_queue() {/one_queue() {\n  sleep 20/' "$bundle/steps.sh"
PATH=$bundle/bin:$PATH run plan kernels ranks kill conformance one-queue bandwidth host-time host-time-2 memcheck
expect 1 "wrong bits" "| kernels | passed |" "| ranks | passed |" "| conformance | failed (1) |" "| kill | passed |" "ended with" \
  "| one-queue | not ended in time |" "| memcheck | passed |" "| time, 1 ranks | 5 us | under 60 us |" \
  "| time, 2 ranks | 5 us | under 60 us |" "| packing | 93.1 % of a copy | at least 85 % |"
[[ $(sort -u "$HOST_IDS") == rank1 ]] || fail "ranks on one host: $(cat "$HOST_IDS")"
grep -q 'wrong bits' "$bundle/out/log.txt" || fail "no log: $(ls "$bundle/out")"
grep -q '| kill | passed |' "$bundle/out/plan.md" || fail "no table: $(cat "$bundle/out/plan.md")"
grep -q '| packing |' "$bundle/out/figures.md" || fail "no figures: $(cat "$bundle/out/figures.md")"
# A plan must show NCCL, so the step that needs it fails without it.
RONDA_NCCL_LIBRARY=/nowhere/libnccl.so.2 run plan host-time host-time-2
expect 1 "| host-time | passed |" "| host-time-2 | failed (1) |" "no NCCL: "
# Gradients that lie one after the other.
program bin/nvidia-smi <<< 'printf "GPU %s: fake\n" $(seq "$GPUS")'
program bench/cuda/host_time_bench <<< 'echo "rank $RONDA_RANK of $RONDA_SIZE, in place: $RONDA_REDUCE_IN_PLACE, $*"'
for gpus in 1 3; do
  GPUS=$gpus PATH=$bundle/bin:$PATH run plan in-place
  ranks=$((gpus == 1 ? 2 : gpus))
  expect 0 "| packed | passed |" "rank 1 of $ranks, in place: 0, --places adjacent" "rank 0 of $ranks, in place: 1, "
done
# Windows need a GPU for each rank.
mkdir -p "$bundle/client/python/package/ronda/lib"
ln -s "$bundle/programs/rondarun/rondarun" "$bundle/client/python/package/ronda/lib/rondarun"
program bin/python3 <<< '[[ $1 != bench/* ]] || echo "rank $RONDA_RANK of $RONDA_SIZE, windows: $RONDA_NCCL_WINDOWS"'
GPUS=1 PATH=$bundle/bin:$PATH run plan windows
expect 0 "| windows-off | skipped: windows of NCCL need two GPUs |" "| windows-on | skipped: "
GPUS=2 PATH=$bundle/bin:$PATH run plan windows
expect 0 "| windows-off | passed |" "rank 1 of 2, windows: 0" "rank 0 of 2, windows: 1"
# So does the memory for gradients, and the memory of a lane.
program bin/python3 <<< '[[ $1 != bench/* ]] || echo "rank $RONDA_RANK of $RONDA_SIZE: $RONDA_GRADIENT_MEMORY_MB MiB"'
GPUS=2 PATH=$bundle/bin:$PATH run plan gradients
expect 0 "| outside | passed |" "rank 1 of 2: 0 MiB" "rank 0 of 2: 512 MiB"
program bin/python3 <<< '[[ $1 != bench/* ]] || echo "rank $RONDA_RANK of $RONDA_SIZE: $RONDA_GRADIENT_MEMORY_MB MiB, $2"'
GPUS=2 PATH=$bundle/bin:$PATH run plan gradients-kept
expect 0 "| inside-kept | passed |" "rank 0 of 2: 512 MiB, --keep-gradients"
program bin/python3 <<< '[[ $1 != bench/* ]] || echo "rank $RONDA_RANK of $RONDA_SIZE, $1: $RONDA_LANE_MEMORY_MB MiB"'
GPUS=1 PATH=$bundle/bin:$PATH run plan memory
expect 0 "| lane-memory | skipped: windows of NCCL need two GPUs |"
GPUS=2 PATH=$bundle/bin:$PATH run plan memory
expect 0 "| lane-memory | passed |" "rank 1 of 2, bench/python/gpu_fsdp_step.py: 8192 MiB"
run plan kernels nonsense
expect 2 'there is no step or group "nonsense"' "kernels first"
# Every group fits into the four minutes for which a machine may be lent.
awk '/^  "/ { limit[$2] += $3 } END { for (group in limit) if (limit[group] > 240) exit 1 }' tools/gpu/steps.sh ||
  fail "a group of steps takes too long"

# Without a GPU there is nothing to do, and mistakes are refused.
for what in test bench sanitize plan; do
  FAKE_CUDA_DEVICES=0 run "$what"
  expect 0 "SKIPPED: no CUDA device: "
done
FAKE_CUDA_DEVICES=0 run nonsense
expect 2 "usage: run.sh"
