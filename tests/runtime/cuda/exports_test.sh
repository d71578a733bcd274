#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# The plugin exports only its table, so that no symbol of it can replace one of the trainer's own CUDA runtime.
set -euo pipefail

readonly library=runtime/cuda/libronda_cuda.so
exported=$(nm --dynamic --defined-only --format=posix "$library" | awk '{ print $1 }')
[[ $exported == ronda_cuda_plugin_table ]] || { echo "FAILED: $library exports $exported" && exit 1; }
! ldd "$library" | grep -E "cuda|not found" || { echo "FAILED: $library needs what is not on every machine" && exit 1; }
