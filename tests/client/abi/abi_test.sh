#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# abi_test.sh PROGRAM [RONDARUN]: runs a job of two ranks whose program was built with the ronda.h of an earlier release,
# and loads today's libronda.so. With RONDARUN, also runs `PROGRAM elastic` on the two members of an elastic job.
set -euo pipefail

readonly program=$PWD/$1 rondarun=${2:+$PWD/$2}
# The program finds the library by its soname, like an installed program.
cp client/libronda.so "$TEST_TMPDIR/libronda.so.0"
export LD_LIBRARY_PATH=$TEST_TMPDIR

loaded=$(ldd "$program" | sed -n 's/.*libronda[^ ]* => \([^ ]*\) .*/\1/p')
[[ $loaded == "$TEST_TMPDIR/libronda.so.0" ]] || { echo "FAILED: the program loads '$loaded'" && exit 1; }

run_as_rank() {
  RONDA_RANK=$1 RONDA_SIZE=2 RONDA_JOB_ID=abi-$$ "$program"
}

failed=0
run_as_rank 0 &
readonly first=$!
run_as_rank 1 || failed=1
wait "$first" || failed=1
[[ -z $rondarun ]] || "$rondarun" -np 2 --min-np 2 "$program" elastic || failed=1
exit "$failed"
