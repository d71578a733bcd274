#!/bin/bash
# The plugin exports its table, and nothing that could take another library's place: a trainer has a CUDA runtime of its own.
set -euo pipefail

readonly library=runtime/cuda/libronda_cuda.so
exported=$(nm --dynamic --defined-only --format=posix "$library" | awk '{ print $1 }')
[[ $exported == ronda_cuda_plugin_table ]] || { echo "FAILED: $library exports $exported" && exit 1; }
! ldd "$library" | grep -E "cuda|not found" || { echo "FAILED: $library needs what is not on every machine" && exit 1; }
