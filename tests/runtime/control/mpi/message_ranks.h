#ifndef RONDA_TESTS_RUNTIME_CONTROL_MPI_MESSAGE_RANKS_H_
#define RONDA_TESTS_RUNTIME_CONTROL_MPI_MESSAGE_RANKS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/control/mpi/mpi_control_plane.h"

namespace ronda::testing {

// A job of ranks of this process, whose control messages are fake ones (message_transports.h).
struct MessageRanks {
  int size = 2;
  int fan_out = kMpiControlFanOut;
  uint64_t seed = 1;
  // Called with each rank's options before it connects; nullptr: nothing is changed.
  std::function<void(MpiControlPlaneOptions& options)> adapt = nullptr;
};

using MpiPlanes = std::vector<absl::StatusOr<std::unique_ptr<ControlPlane>>>;

// The options of each rank.
std::vector<MpiControlPlaneOptions> OptionsOf(const MessageRanks& ranks);

// Connects the ranks, each on a thread of its own.
MpiPlanes ConnectAll(std::vector<MpiControlPlaneOptions> options);

// The same, and expects all to connect; returns nothing otherwise.
std::vector<std::unique_ptr<ControlPlane>> Connect(const MessageRanks& ranks);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_RUNTIME_CONTROL_MPI_MESSAGE_RANKS_H_
