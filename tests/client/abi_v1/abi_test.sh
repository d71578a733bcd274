#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# A job of two ranks whose program was built with the first ronda.h, and loads today's libronda.so.
set -euo pipefail

readonly program=$PWD/tests/client/abi_v1/old_client
# The program finds the library by its soname, like an installed program.
cp client/libronda.so "$TEST_TMPDIR/libronda.so.0"
export LD_LIBRARY_PATH=$TEST_TMPDIR RONDA_SIZE=2 RONDA_JOB_ID="abi-$$"

loaded=$(ldd "$program" | sed -n 's/.*libronda[^ ]* => \([^ ]*\) .*/\1/p')
[[ $loaded == "$TEST_TMPDIR/libronda.so.0" ]] || { echo "FAILED: the program loads '$loaded'" && exit 1; }

RONDA_RANK=0 "$program" &
readonly first=$!
failed=0
RONDA_RANK=1 "$program" || failed=1
wait "$first" || failed=1
exit "$failed"
