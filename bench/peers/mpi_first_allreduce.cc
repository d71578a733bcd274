// SPDX-License-Identifier: Apache-2.0

// `ronda-bench startup` runs this program under the launcher of an MPI library. The program performs one MPI allreduce.
// Rank 0 writes the time at which the allreduce completed, and the MPI version, to the pipe that RONDA_BENCH_OUTPUT
// names.
#include <mpi.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>

#include "bench/peers/mpi_version.h"

namespace {

double NowSeconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Writes the time and the MPI version in the format of bench/harness/output.h.
void Say(double seconds) {
  const char* const path = std::getenv("RONDA_BENCH_OUTPUT");
  std::FILE* const pipe = path != nullptr ? std::fopen(path, "w") : nullptr;
  if (pipe == nullptr) return;
  std::fprintf(pipe, "T %.9f\nV %s\n", seconds, ronda::bench::MpiLibraryVersion().c_str());
  std::fclose(pipe);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  float value = 1;
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  const double now = NowSeconds();
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (rank == 0) Say(now);
  MPI_Finalize();
  return value == static_cast<float>(size) ? 0 : 1;
}
