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

  // NCCL's communicator of the members; nullptr for one alone.
  using Entry = NcclGroups::Entry;

  // Whether anybody has anything to send.
  static bool IsNeeded(const BroadcastCall& call);
  static bool IsNeeded(const AllgatherCall& call);
  static bool IsNeeded(const AlltoallCall& call);

  // REQUIRES: IsNeeded(call), and this rank is a member.
  absl::Status Broadcast(const BroadcastCall& call, const Members& members, Entry* entry);
  absl::Status Allgather(const AllgatherCall& call, const Members& members, Entry* entry);
  absl::Status Alltoall(const AlltoallCall& call, const Members& members, Entry* entry);

 private:
  // Bytes that this rank sends to a member, and receives from it.
  struct Piece {
    const std::byte* from = nullptr;
    size_t sent = 0;
    std::byte* to = nullptr;
    size_t received = 0;
  };

  // Exchanges pieces_, one a member, with all members; the one with itself is copied.
  absl::Status Exchange(const CallInfo& info, const Members& members, Entry* entry);
  absl::Status GatherEqual(const AllgatherCall& call, Entry* entry);
  absl::Status GatherByBroadcasts(const AllgatherCall& call, const Members& members, Entry* entry);
  absl::Status GatherForOne(const AllgatherCall& call, const Members& members, Entry* entry);
  absl::Status Copy(void* to, const void* from, size_t bytes);

  const Options options_;
  std::vector<Piece> pieces_;  // kept for its memory
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_NCCL_NCCL_EXCHANGES_H_
