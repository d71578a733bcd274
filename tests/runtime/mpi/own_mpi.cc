// SPDX-License-Identifier: Apache-2.0

// A program that initializes Open MPI itself, before Ronda: own_mpi PLUGIN funneled|serialized.
#include <mpi.h>

#include <cstdio>
#include <string>

#include "absl/strings/match.h"
#include "runtime/mpi/mpi_session.h"

namespace ronda {
namespace {

int Fail(const std::string& what) {
  std::printf("FAILED: %s\n", what.c_str());
  return 1;
}

// Checks that the program can use MPI again after the session.
int CheckMpiGoesOn() {
  int sum = 0;
  int one = 1;
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  return sum == size ? 0 : Fail("MPI has been disturbed");
}

int Run(const std::string& plugin, bool expect_refusal) {
  for (int turn = 0; turn < 2; ++turn) {
    const absl::StatusOr<std::shared_ptr<MpiSession>> session = MpiSession::Start({.plugin = plugin});
    if (expect_refusal) {
      if (session.status().code() != absl::StatusCode::kFailedPrecondition) return Fail(session.status().ToString());
      if (!absl::StrContains(session.status().message(), "MPI_THREAD_SERIALIZED")) return Fail("no remedy is named");
    } else if (!session.ok()) {
      return Fail(session.status().ToString());
    } else if (*(*session)->Broadcast("text") != "text") {
      return Fail("the session does not work");
    }
  }
  return CheckMpiGoesOn();
}

}  // namespace
}  // namespace ronda

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const bool is_funneled = std::string(argv[2]) == "funneled";
  int level = 0;
  MPI_Init_thread(&argc, &argv, is_funneled ? MPI_THREAD_FUNNELED : MPI_THREAD_SERIALIZED, &level);
  const int result = ronda::Run(argv[1], level < MPI_THREAD_SERIALIZED);
  MPI_Finalize();
  return is_funneled && level != MPI_THREAD_FUNNELED ? 3 : result;
}
