#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Formatting, Python's types, then clang's thread-safety analysis of everything, then clang-tidy on the sources.
set -euo pipefail
cd "$(dirname "$0")/.."
bazel=${BAZEL:-bazel}
progress=() && [ -t 2 ] || progress=(--show_progress_rate_limit=60)  # one line per minute

git ls-files '*.cc' '*.h' '*.hpp' | xargs clang-format-14 --dry-run -Werror
echo "lint: formatting is right"

# gRPC takes deadlines as calendar times, and converts them to steady ones at once. Two tests stand in for the clock.
if git grep -nE 'absl::Now\(|system_clock|CLOCK_REALTIME' -- '*.cc' '*.h' '*.hpp' ':!runtime/base/clock.h' ':!runtime/net/hosts_plugin.cc' \
  ':!tests/multiprocess/shifted_clock.cc' ':!tests/simulation/virtual_calls.cc'; then
  echo "lint: these wait by the calendar, which may jump: take SteadyNow(), or CalendarNow() for a date (runtime/base/clock.h)" >&2
  exit 1
fi

# An Abseil table that has found no memory to grow cannot be destroyed. Members of a state that is then abandoned
# (Runtime::AbandonState) may be such tables; variables of a function may not.
if git grep -nE 'flat_hash_(map|set)' -- 'runtime/*.cc' 'client/*.cc'; then
  echo "lint: take the standard library's tables here: one of Abseil's that lacks memory corrupts the heap" >&2
  exit 1
fi

tools/layers/circles.py
echo "lint: no circle of folders"

# Without what depends on PyTorch's stubs, which change with its versions.
(cd client/python && mypy --strict --python-version 3.10 --follow-imports=silent --no-error-summary ronda/*.py ronda/paddle ronda/ray)
if command -v ruff > /dev/null; then
  ruff check --quiet && ruff format --check --quiet client examples tests bench tools
  echo "lint: ruff and mypy have no complaints about Python"
else
  echo "lint: mypy has no complaints about Python (ruff is not installed: pip install ruff)"
fi

"$bazel" build --config=clang "${progress[@]}" //...
echo "lint: clang compiles everything with -Wthread-safety -Werror"

generated=$("$bazel" info bazel-bin 2>/dev/null)
cuda=${CUDA_HOME:-/usr/local/cuda}/include
left_out=(hosts_plugin torch_finetune/main torch_lenet/main)  # include gRPC's or libtorch's headers, which take clang-tidy minutes
if [[ ! -d $cuda ]]; then mapfile -t -O 3 left_out < <(git grep -l '#include <cu' -- '*.cc' '*.h' | sed 's/\.[ch]*$//'); fi
git ls-files 'kernels/*.cc' 'runtime/*.cc' 'client/*.cc' 'examples/*.cc' | grep -vF "${left_out[@]/#/-e}" |
  xargs -P "$(nproc)" -I{} clang-tidy-14 --quiet {} -- -xc++ -std=c++20 -I. -I"$generated" -isystem /usr/include/eigen3 -isystem "$cuda"
echo "lint: clang-tidy has no complaints"
