#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# What make bench calls, with a ronda-bench that notes its words: each run's results are on the page at once, and BENCH_SCALE shortens every
# part.
set -euo pipefail

readonly work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/make_bench.XXXXXX")
trap 'rm -rf "$work"' EXIT

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

mkdir -p "$work/bench" "$work/.bazel/bin/bench"
cp bench/make_bench.sh "$work/bench"
cat > "$work/.bazel/bin/bench/ronda-bench" << 'END_OF_TOOL'
#!/bin/bash
echo "$*" >> "$CALLS"
[[ $* != *"$FAILING"* ]]
END_OF_TOOL
cp "$work/.bazel/bin/bench/ronda-bench" "$work/.bazel/bin/bench/kernels_bench"
chmod +x "$work"/.bazel/bin/bench/*
export BAZEL=true BENCH_REPORT=$work/report FAILING=nothing

# Writes the calls at this scale to the file CALLS.
make_bench() {  # make_bench SCALE
  export CALLS=$work/calls-$1
  BENCH_SCALE=$1 "$work/bench/make_bench.sh" > "$work/log" 2>&1
}

make_bench 1 || fail "$(< "$work/log")"
make_bench 0.1 || fail "$(< "$work/log")"
(($(wc -l < "$work/calls-1") > 20)) || fail "make bench makes few calls: $(< "$work/calls-1")"
while IFS=$'\t' read -r full short; do
  [[ $full == report* || $full != "$short" ]] || fail "BENCH_SCALE does not shorten: $full"
done < <(paste "$work/calls-1" "$work/calls-0.1")

# The page follows each run but kernels_bench's, which has no file.
awk '/--json/ { runs++; getline; if ($0 !~ /^report /) exit 1 } END { if (runs == 0) exit 1 }' "$work/calls-1" ||
  fail "a run is not followed by the page: $(< "$work/calls-1")"

# A run that fails is named, and the others follow.
export FAILING=startup
if make_bench 0.2; then fail "make bench is content with a run that fails"; fi
[[ $(tail -1 "$work/log") == "failed: startup-2" ]] || fail "a run that fails: $(tail -1 "$work/log")"
[[ $(wc -l < "$work/calls-0.2") -eq $(($(wc -l < "$work/calls-1") - 1)) ]] || fail "runs are missing after one that fails"
