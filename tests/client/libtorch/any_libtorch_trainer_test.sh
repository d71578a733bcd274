#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# examples/torch_lenet compiles with the libtorch and learns to read digits on 2 ranks.
set -euo pipefail
source tests/client/libtorch/libtorch.sh

readonly trainer=$TEST_TMPDIR/torch_lenet
g++ "-std=c++$standard" -O1 "${flags[@]}" -Wno-missing-field-initializers examples/torch_lenet/*.cc \
  examples/lenet_mnist/{flag_list,idx_reader,mnist,program,reporter}.cc -o "$trainer" "${libraries[@]}" -lz ||
  fail "torch_lenet does not compile with libtorch $version"
programs/rondarun/rondarun -np 2 "$trainer" --epochs 2 --data examples/lenet_mnist/data | tee "$TEST_TMPDIR/output"
grep -qE 'test accuracy 0\.9[0-9]+ \(2 ranks' "$TEST_TMPDIR/output" || fail "libtorch $version: the accuracy is below 0.9"
