#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# The optional parts of an installation, each of which needs a package that Ronda itself does not need. install.sh
# sources this file. `optional_parts.sh targets` prints the Bazel targets of the parts that can be built here.
#
# Each package has a line with four fields: HEADER | REMEDY | USE | FILES. The package is installed if the file HEADER
# exists; if not, the user should follow REMEDY. USE says what the package is for. FILES are the outputs of Bazel that
# are built with the package.
readonly mpi_homes=/usr/lib/$(uname -m)-linux-gnu
readonly optional_parts="\
$mpi_homes/openmpi/include/mpi.h|install Debian's libopenmpi-dev|Open MPI|runtime/mpi/libronda_mpi.so bench/peers/libronda_bench_openmpi.so bench/peers/openmpi_first_allreduce
$mpi_homes/mpich/include/mpi.h|install Debian's libmpich-dev|MPICH|runtime/mpi/libronda_mpi_mpich.so bench/peers/libronda_bench_mpich.so bench/peers/mpich_first_allreduce
${CUDA_HOME:-/usr/local/cuda}/include/cuda_runtime.h|install the CUDA toolkit, 12.1 or later, and set CUDA_HOME|NVIDIA's GPUs|runtime/cuda/libronda_cuda.so
/usr/include/gloo/allreduce.h|install Debian's libgloo-dev|ronda-bench beside Gloo|bench/peers/libronda_bench_gloo.so"

# Calls COMMAND once per line, with the four fields of the line.
for_each_optional_part() {  # for_each_optional_part COMMAND
  local header remedy use files
  while IFS='|' read -r header remedy use files; do "$1" "$header" "$remedy" "$use" "$files"; done <<< "$optional_parts"
}

print_targets() {
  local file
  [[ -e $1 ]] || return 0
  for file in $4; do
    # If the toolkit is too old, Bazel leaves the plugin out of a pattern, but would fail on the plugin's own name.
    if [[ $file == runtime/cuda/* ]]; then echo "//runtime/cuda:all"; else echo "//${file%/*}:${file##*/}"; fi
  done
}

if [[ ${1:-} == targets ]]; then for_each_optional_part print_targets; fi
