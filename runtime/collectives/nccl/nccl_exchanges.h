#ifndef RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_EXCHANGES_H_
#define RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_EXCHANGES_H_

#include <cstddef>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/members.h"
#include "runtime/collectives/nccl/nccl_groups.h"
#include "runtime/cuda/device.h"

namespace ronda {

// What of an NcclCommunicator moves bytes without looking at them, between the tensors themselves.
//
// Thread-compatible. What it is made of must outlive it.
class NcclExchanges {
 public:
  struct Options {
    Device* device = nullptr;
    StreamHandle stream = nullptr;
    NcclGroups* groups = nullptr;
  };

  explicit NcclExchanges(const Options& options) : options_(options) {}

  // REQUIRES: this rank is a member.
  absl::Status Broadcast(const BroadcastCall& call, const Members& members);
  absl::Status Allgather(const AllgatherCall& call, const Members& members);
  absl::Status Alltoall(const AlltoallCall& call, const Members& members);

 private:
  // Bytes that this rank sends to a member, and receives from it.
  struct Piece {
    const std::byte* from = nullptr;
    size_t sent = 0;
    std::byte* to = nullptr;
    size_t received = 0;
  };

  // Exchanges pieces with all members; the one with itself is copied.
  absl::Status Exchange(const CallInfo& info, const Members& members, const std::vector<Piece>& pieces);
  absl::Status GatherEqual(const AllgatherCall& call, const Members& members);
  absl::Status GatherByBroadcasts(const AllgatherCall& call, const Members& members);
  absl::Status GatherForOne(const AllgatherCall& call, const Members& members);
  absl::Status Copy(void* to, const void* from, size_t bytes);

  const Options options_;
  std::vector<Piece> pieces_;  // kept for its memory
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_EXCHANGES_H_
