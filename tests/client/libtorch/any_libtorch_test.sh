#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# All public headers of the C++ API, and this folder's tests, compile without a warning in each C++ standard that the
# libtorch supports; and the tests pass.
set -euo pipefail
source tests/client/libtorch/libtorch.sh

# One translation unit, because the compiler needs half a minute for libtorch's headers.
readonly unit=$TEST_TMPDIR/all.cc
printf '#include "%s"\n' client/ronda.hpp client/ronda/*.hpp client/ronda/*/*.hpp tests/client/libtorch/*_test.cc > "$unit"

# Only preprocesses: newer versions refuse older standards in their first lines.
takes() {
  g++ "-std=c++$1" "${flags[@]}" -E -o /dev/null "$unit" > "$TEST_TMPDIR/refusal" 2>&1
}

if takes 17; then
  g++ -std=c++17 "${flags[@]}" -fsyntax-only "$unit" || fail "libtorch $version, C++17"
  echo "libtorch $version: C++17 compiles"
else
  grep -q 'C++20 or later' "$TEST_TMPDIR/refusal" || fail "libtorch $version, C++17: $(cat "$TEST_TMPDIR/refusal")"
  echo "libtorch $version asks for C++20"
fi

if ((abi == 0)); then
  g++ "-std=c++$standard" "${flags[@]}" -fsyntax-only "$unit" || fail "libtorch $version, C++$standard"
  echo "libtorch $version: C++$standard compiles; GoogleTest has another ABI, so the tests do not run"
  exit 0
fi
g++ "-std=c++$standard" "${flags[@]}" "$unit" -o "$TEST_TMPDIR/tests" -lgtest_main -lgmock -lgtest "${libraries[@]}" ||
  fail "libtorch $version, C++$standard"
"$TEST_TMPDIR/tests"
