#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# The conformance tests on real devices: tensors that go through pinned memory, between ranks that map each other's
# memory, and over NCCL with as many ranks as the machine has devices. Without a device the tests are skipped.
set -uo pipefail

export RONDA_TEST_CUDA_PLUGIN=$PWD/runtime/cuda/libronda_cuda.so
status=0
for test in adasum reduce exchange conformance; do
  "tests/conformance/${test}_test" --gtest_filter='*/Staged*:*/Peer*:*/Nccl*' || status=1
done
exit $status
