// SPDX-License-Identifier: Apache-2.0

// A rank whose job has failed: leaving_rank PLUGIN. It must end even though the other rank never calls MPI_Finalize.
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "runtime/mpi/mpi_session.h"

namespace ronda {
namespace {

int Run(const char* plugin) {
  absl::StatusOr<std::shared_ptr<MpiSession>> session = MpiSession::Start({.plugin = plugin});
  if (!session.ok()) return 1;
  std::unique_ptr<PointToPoint> messages = *(*session)->Connect({0, 1}, 0);
  const RankId other = 1 - messages->rank();
  char byte = 0;
  // No rank sends the message for which this rank waits.
  PointToPoint::Request request = *messages->Receive(&byte, 1, other);
  (*session)->LeaveWithoutEnd();
  const bool is_refused = messages->Send(&byte, 1, other).status().code() == absl::StatusCode::kCancelled &&
                          messages->Test({&request, 1}).status().code() == absl::StatusCode::kCancelled &&
                          (*session)->Broadcast("x").status().code() == absl::StatusCode::kCancelled;
  const bool is_rank0 = (*session)->rank() == 0;
  messages.reset();
  session->reset();
  std::printf(is_refused ? "left\n" : "FAILED\n");
  std::fflush(stdout);
  // Rank 1 never calls MPI_Finalize. If rank 0 waited for it, rank 0 would never end.
  while (!is_rank0) pause();
  return 0;
}

}  // namespace
}  // namespace ronda

int main(int argc, char** argv) { return argc == 2 ? ronda::Run(argv[1]) : 2; }
