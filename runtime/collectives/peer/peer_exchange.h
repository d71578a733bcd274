// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_COLLECTIVES_PEER_PEER_EXCHANGE_H_
#define RONDA_RUNTIME_COLLECTIVES_PEER_PEER_EXCHANGE_H_

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/peer/peer_group.h"
#include "runtime/collectives/transport.h"
#include "runtime/cuda/device.h"

namespace ronda {

// Does the collectives of one group of a PeerCommunicator that only move bytes. They go in rounds: each member copies
// the next bytes of its input into its slot, the members meet, and each copies the bytes for it from the slots of the
// others. A member's bytes for itself are copied without a slot.
//
// Thread-compatible.
class PeerExchange {
 public:
  struct Options {
    std::shared_ptr<Device> device;
    StreamHandle stream = nullptr;
    StreamMarks* marks = nullptr;  // may be nullptr
  };

  // `group` must outlive the object.
  PeerExchange(Options options, PeerGroup* group) : options_(std::move(options)), group_(group) {}

  absl::Status Broadcast(const BroadcastCall& call);
  absl::Status Allgather(const AllgatherCall& call);
  absl::Status Alltoall(const AlltoallCall& call);

 private:
  // Runs rounds of up to `share` bytes until `most` bytes of every piece have been moved. In each round calls
  // put(begin, slot), where `slot` is this member's, then lets the members meet, then calls get(begin, slot), where
  // `slot` is the first member's. `begin` is the offset in each piece.
  using Put = absl::FunctionRef<absl::Status(size_t begin, std::byte* slot)>;
  using Get = absl::FunctionRef<absl::Status(size_t begin, const PeerGroup::Slot& slot)>;
  absl::Status RunRounds(const CallInfo& info, size_t most, size_t share, Put put, Get get);
  absl::Status Copy(void* to, const void* from, size_t bytes);

  const Options options_;
  PeerGroup* const group_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_PEER_PEER_EXCHANGE_H_
