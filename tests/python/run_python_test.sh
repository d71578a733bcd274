#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# run_python_test.sh RANKS NEEDS MODULE...: see ronda_python_test.bzl.
set -euo pipefail

readonly ranks=$1 needs=$2
shift 2

# Looks for the modules without importing them, because PyTorch's import takes seconds.
has_modules() {
  local modules=${needs%,gpu}
  "$1" -c 'import importlib.util as u, sys; sys.exit(any(not u.find_spec(m) for m in sys.argv[1:]))' \
    ${modules//[,-]/ } > /dev/null 2>&1
}

skip() {
  echo "SKIPPED: $1"
  if [[ -n ${XML_OUTPUT_FILE:-} ]]; then
    printf '%s\n' '<?xml version="1.0" encoding="UTF-8"?>' '<testsuites tests="1" failures="0">' \
      "<testsuite name=\"needs\"><testcase name=\"$needs\" result=\"skipped\"/>" '</testsuite></testsuites>' > "$XML_OUTPUT_FILE"
  fi
  exit 0
}

if [[ $needs == *,gpu && ! -e /dev/nvidiactl ]]; then skip "no NVIDIA driver here"; fi

python=
for candidate in ${TEST_PYTHON:-/usr/bin/python3 python3}; do
  if has_modules "$candidate"; then
    python=$candidate
    break
  fi
done
[[ -n $python ]] || skip "no Python here has $needs"

readonly package=$PWD/client/python/package
unset RONDA_HOSTS_PLUGIN  # the package has it
# With this variable, Paddle 3.3.1 damages its heap at the end of a process (docs/fleet.md).
if [[ $needs == *paddle* ]]; then unset TEST_TMPDIR; fi

# If libronda.so is built with AddressSanitizer (bazel test --config=asan), AddressSanitizer also checks Python's
# processes. Its runtime must be the first library of a process. At its start, before Python loads the C++ library with
# PyTorch, it looks for the functions of that library. With PYTHONMALLOC, it sees each of Python's objects.
preload_address_sanitizer() {
  local runtime
  runtime=$(ldd "$package/ronda/lib/libronda.so.0" | sed -nE 's/.* => (.*libasan[^ ]*) .*/\1/p')
  [[ -n $runtime ]] || return 0
  export LD_PRELOAD="$runtime libstdc++.so.6" PYTHONMALLOC=malloc
  # Python and PyTorch keep memory until the end of the process.
  export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0
}

export PYTHONPATH=$package:$PWD/tests/python PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# If a rank waits for a tensor that another one does not submit, it reports that before the test's time is over.
export RONDA_STALL_WARNING=${RONDA_STALL_WARNING:-5s} RONDA_STALL_DEADLINE=${RONDA_STALL_DEADLINE:-30s}
preload_address_sanitizer
launch=()
if ((ranks > 0)); then launch=("$package/ronda/lib/rondarun" -np "$ranks"); fi
exec "${launch[@]}" "$python" "$PWD/tests/python/ronda_test.py" "$@"
