#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# device_ranks_test on real devices. Without one it is skipped.
set -euo pipefail

export RONDA_TEST_CUDA_PLUGIN=$PWD/runtime/cuda/libronda_cuda.so
exec tests/multiprocess/device_ranks_test
