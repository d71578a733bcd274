#!/bin/bash
# Runs what bundle.sh has put beside it: `run.sh test`, `run.sh bench`. Where there is no GPU it says so, and that is no failure.
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")"

readonly root=$PWD
readonly what=${1:?usage: run.sh test|bench}
readonly logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
export LD_LIBRARY_PATH=$root/lib:${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/cuda/lib64
export RONDA_TEST_CUDA_PLUGIN=$root/runtime/cuda/libronda_cuda.so

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

runtime/launch/rondarun --version > /dev/null 2>&1 || use_own_libc

# "[X] cuda         NVIDIA's GPUs: 1 device: ...", or "[ ] cuda         no CUDA device: ..."
read -r found cuda < <(RONDA_CUDA_PLUGIN=$RONDA_TEST_CUDA_PLUGIN runtime/launch/rondarun --check-build 2>&1 |
  sed -nE 's/^ +\[(.)\] cuda +(.*)/\1 \2/p' | sed 's/^ /- /')
if [[ $found != X ]]; then
  echo "SKIPPED: $cuda"
  exit 0
fi
echo "$cuda"

# Runs every test, and says what has become of it.
run_tests() {
  local passed=0 failed=0 skipped=0 program log
  while read -r program; do
    log=$logs/${program//\//_}.log
    if ! (export TEST_TMPDIR=$logs && timeout 300 "./$program" < /dev/null > "$log" 2>&1); then
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

run_benches() {
  local status=0 program arguments
  export RONDA_CUDA_PLUGIN=$RONDA_TEST_CUDA_PLUGIN
  while read -r program; do
    echo "== $program"
    arguments=()
    [[ $program == examples/* ]] && arguments=(--bench)  # instead of training
    timeout 300 "./$program" "${arguments[@]}" < /dev/null || status=1
  done < benches.txt
  return $status
}

case $what in
  test) run_tests ;;
  bench) run_benches ;;
  *) echo "usage: run.sh test|bench" >&2 && exit 2 ;;
esac
