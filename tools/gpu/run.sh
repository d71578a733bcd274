#!/bin/bash
# Runs what bundle.sh has put beside it: `run.sh test`, `run.sh bench`, `run.sh sanitize`, the tests under compute-sanitizer, or `run.sh plan`,
# the most worth knowing of all these in half an hour (plan.md). Where there is no GPU it says so, and that is no failure.
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")"

readonly root=$PWD
readonly usage="usage: run.sh test|bench|sanitize|plan"
readonly what=${1:?$usage}
[[ $what =~ ^(test|bench|sanitize|plan)$ ]] || { echo "$usage" >&2 && exit 2; }
readonly logs=$(mktemp -d)
# A background job that is killed before it has forgotten its parent's traps runs them as well.
trap '[[ $BASHPID -ne $$ ]] || rm -rf "$logs"' EXIT
export LD_LIBRARY_PATH=$root/lib:${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/cuda/lib64
export RONDA_HOSTS_PLUGIN=$root/runtime/net/libronda_hosts.so
export RONDA_TEST_CUDA_PLUGIN=$root/runtime/cuda/libronda_cuda.so
readonly rondarun=$root/runtime/launch/rondarun

# Has every program started by the C library that was copied with it.
use_own_libc() {
  local program
  find . -type f -perm -u+x ! -name '*.so*' ! -name '*.elf' | while read -r program; do
    [[ $(head -c 4 "$program" | tr -d '\0') == $'\x7fELF' ]] || continue
    mv "$program" "$program.elf"
    printf '#!/bin/sh\nexec "%s/lib/glibc/ld-linux-x86-64.so.2" --argv0 "$0" --library-path "%s/lib/glibc:$LD_LIBRARY_PATH" "%s.elf" "$@"\n' \
      "$root" "$root" "$root/${program#./}" > "$program"
    chmod 755 "$program"
  done
}

# "X NVIDIA's GPUs: 1 device: ...", or "- no CUDA device: ...": of a part of Ronda, whether it can be used here.
part() {  # part NAME
  RONDA_CUDA_PLUGIN=$RONDA_TEST_CUDA_PLUGIN "$rondarun" --check-build 2>&1 |
    sed -nE "s/^ +\[(.)\] $1 +(.*)/\1 \2/p" | sed 's/^  /- /'
}

# Runs every test, for so long at most, with the given command in front of it, and prints its outcome.
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

# The tests, once with each of compute-sanitizer's tools: wrong addresses, races within a block, barriers that not all threads reach.
sanitize() {
  local sanitizer tool status=0
  sanitizer=$(PATH=$PATH:/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer command -v compute-sanitizer) || {
    echo "SKIPPED: there is no compute-sanitizer: it comes with the CUDA toolkit"
    return 0
  }
  for tool in memcheck racecheck synccheck; do
    echo "== $tool"
    run_tests 1800 "$sanitizer" --tool "$tool" --target-processes all --error-exitcode 86 || status=1
  done
  return $status
}

# Runs a benchmark, and keeps its output.
measure() {  # measure COMMAND...
  echo "== $*"
  timeout 300 "$@" < /dev/null | sed -u 's/^\[0\]<stdout>: //' | tee -a "$logs/figures"
  return "${PIPESTATUS[0]}"
}

# The figures that have an aim, as rows of a table.
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

# A job of two ranks over NCCL, which may share one GPU because they say that they are on two hosts. Each rank's process id is in a file of
# its number.
two_ranks() {  # two_ranks FOLDER PROGRAM [ARGUMENT...]
  local folder=$1
  shift
  mkdir -p "$folder"
  # shellcheck disable=SC2016  # the ranks' shells expand it
  RONDA_DEVICE_BACKEND=nccl NCCL_SOCKET_IFNAME=lo exec "$rondarun" -np 2 \
    /bin/sh -c 'echo $$ > "$0/$RONDA_RANK" && export NCCL_HOSTID=rank$RONDA_RANK && exec "$@"' "$folder" "$@"
}

# A job of two ranks of which one is sent the signal while it works: the job must end by itself, and not well.
signal_one() {  # signal_one SIGNAL PROGRAM [ARGUMENT...]
  local signal=$1 folder job code=0
  folder=$(mktemp -d "$logs/signal.XXXXXX")
  shift
  export RONDA_STALL_WARNING=2s RONDA_STALL_DEADLINE=10s
  (two_ranks "$folder" "$@") &
  job=$!
  sleep "${PLAN_SECONDS_BEFORE_SIGNAL:-5}"
  kill -s "$signal" "$(cat "$folder/1")" || return 1
  wait "$job" || code=$?
  kill -s KILL "$(cat "$folder/1")" 2> /dev/null
  echo "the job has ended with $code after SIG$signal"
  [[ $code -ne 0 ]]
}

# The tests whose paths match.
tests_like() {  # tests_like PATTERN
  local status=0 program
  export TEST_TMPDIR=$logs
  for program in $(grep -E "$1" tests.txt); do "./$program" || status=1; done
  return $status
}

# Some of the tests, with one tool of compute-sanitizer.
sanitized() {  # sanitized TOOL PATTERN
  local sanitizer status=0 program
  sanitizer=$(PATH=$PATH:/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer command -v compute-sanitizer) || {
    echo "SKIPPED: there is no compute-sanitizer: it comes with the CUDA toolkit"
    return 0
  }
  export TEST_TMPDIR=$logs
  for program in $(grep -E "$2" tests.txt); do
    "$sanitizer" --tool "$1" --target-processes all --error-exitcode 86 "./$program" || status=1
  done
  return $status
}

# Runs a step, for so long at most, and adds a row to the table. A step that says SKIPPED is left out.
step() {  # step NAME SECONDS COMMAND...
  local name=$1 seconds=$2 log=$logs/step.log begin=$SECONDS code=0 result=passed pid
  shift 2
  echo "== $name (at most $seconds s)"
  # A group of its own, all of which ends with the step.
  set -m
  ("$@") < /dev/null > "$log" 2>&1 &
  pid=$!
  set +m
  (
    sleep "$seconds"
    kill -s KILL -- "-$pid"
  ) 2> /dev/null > /dev/null &
  local timer=$!
  wait "$pid" 2> /dev/null || code=$?
  kill "$timer" 2> /dev/null
  kill -s KILL -- "-$pid" 2> /dev/null
  tail -n 40 "$log"
  sed -nE 's/^(\[0\]<stdout>: )?(.*: .* \(aim: .*\))$/\2/p' "$log" >> "$logs/figures"
  if [[ $((SECONDS - begin)) -ge $seconds ]]; then
    result="not ended in time"
  elif [[ $code -ne 0 ]]; then
    result="failed ($code)"
  elif grep -q '^SKIPPED: ' "$log"; then
    result="skipped: $(sed -n 's/^SKIPPED: //p;T;q' "$log")"
  fi
  [[ $result == passed || $result == skipped* ]] || plan_status=1
  echo "| $name | $result | $((SECONDS - begin)) s | $seconds s |" >> "$logs/plan"
}

# Says why a step that needs NCCL is skipped; otherwise runs it.
over_nccl() {  # over_nccl COMMAND...
  if [[ $(part nccl) == X* ]]; then
    "$@"
  else
    echo "SKIPPED: $(part nccl | sed 's/^. //')"
  fi
}

run_plan() {
  local host_time mnist kernels folder=$logs/two
  plan_status=0
  export RONDA_CUDA_PLUGIN=$RONDA_TEST_CUDA_PLUGIN
  host_time=$(grep host_time_bench benches.txt)
  kernels=$(grep kernels_bench benches.txt)
  mnist=$(grep '^examples/' benches.txt)
  touch "$logs/figures"
  step "driver, plugin, NCCL" 60 "$rondarun" --check-build
  step "kernels: bits" 90 tests_like '^tests/kernels/'
  step "kernels: bandwidth" 90 "./$kernels"
  step "two ranks over NCCL: steps, parts, Adasum" 180 tests_like '^tests/multiprocess/'
  step "conformance" 180 tests_like '^tests/conformance/'
  step "host time, 1 rank" 90 "./$host_time"
  step "host time, 2 ranks over NCCL" 90 over_nccl two_ranks "$folder" "./$host_time"
  step "SIGKILL of one of two ranks" 90 over_nccl signal_one KILL "./$host_time"
  step "SIGSTOP of one of two ranks" "${PLAN_STOP_LIMIT:-90}" over_nccl signal_one STOP "./$host_time"
  step "cuda_mnist --bench, 1 rank" 60 "./$mnist" --bench
  step "cuda_mnist --bench, 2 ranks over NCCL" 60 over_nccl two_ranks "$folder" "./$mnist" --bench
  step "memcheck of the kernels" 180 sanitized memcheck '^tests/kernels/'
  step "racecheck of the kernels" 120 sanitized racecheck '^tests/kernels/'
  printf '\n| step | result | took | limit |\n|---|---|---|---|\n'
  cat "$logs/plan"
  print_table
  return $plan_status
}

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
  plan) run_plan ;;
esac
