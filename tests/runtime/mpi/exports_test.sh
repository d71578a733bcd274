#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# A plugin exports only its table, so that no symbol of it can replace one of another library.
set -euo pipefail

for library in runtime/mpi/libronda_mpi.so runtime/mpi/libronda_mpi_mpich.so; do
  exported=$(nm --dynamic --defined-only --format=posix "$library" | awk '{ print $1 }')
  [[ $exported == ronda_mpi_plugin_table ]] || { echo "FAILED: $library exports $exported" && exit 1; }
done
